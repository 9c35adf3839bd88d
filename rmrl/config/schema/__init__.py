"""The configuration's dataclasses: the only home for defaults, one docstring line per field."""

from rmrl.config.schema.actor import (
    ActorConfig,
    CheckpointConfig,
    CriticConfig,
    CriticMegatronConfig,
    FSDPConfig,
    MegatronConfig,
    ModelConfig,
    OptimConfig,
    PolicyLossConfig,
    RefConfig,
    TrainedConfig,
)
from rmrl.config.schema.algorithm import (
    AlgorithmConfig,
    FilterGroupsConfig,
    KLControlConfig,
    PFPPOConfig,
    RolloutCorrectionConfig,
)
from rmrl.config.schema.audit import AuditConfig, AuditSettings
from rmrl.config.schema.calibration import CalibrateConfig, CalibrationConfig
from rmrl.config.schema.comparison import CompareConfig, ComparisonConfig
from rmrl.config.schema.data import DataConfig
from rmrl.config.schema.evaluation import BenchmarkConfig, EvalConfig, EvalDataConfig
from rmrl.config.schema.reward import (
    ClusterConfig,
    RewardCacheConfig,
    RewardConfig,
    RewardEngineConfig,
    RewardMonitorConfig,
)
from rmrl.config.schema.reward_training import (
    GateConfig,
    RewardDataConfig,
    RewardLossConfig,
    RewardTrainerConfig,
    RewardTrainingConfig,
)
from rmrl.config.schema.rollout import RolloutConfig, ValSamplingConfig
from rmrl.config.schema.root import ActorRolloutRefConfig, Config
from rmrl.config.schema.score import (
    ScoreConfig,
    ScoreDataConfig,
    ScoreEngineConfig,
    ScoreTrainerConfig,
)
from rmrl.config.schema.serve import ServeConfig, ServerConfig
from rmrl.config.schema.trainer import TrainerConfig

CONFIG_NAMES: dict[type, str] = {
    Config: "ppo_trainer",
    ScoreConfig: "score",
    EvalConfig: "eval",
    CalibrateConfig: "calibrate",
    CompareConfig: "compare",
    AuditConfig: "audit",
    ServeConfig: "serve",
    RewardTrainingConfig: "train_rm",
}
"""Root dataclass -> the file in configs/ that its composition starts from."""

__all__ = [
    "CONFIG_NAMES", "ActorConfig", "ActorRolloutRefConfig", "AlgorithmConfig", "AuditConfig", "AuditSettings", "BenchmarkConfig", "CalibrateConfig", "CalibrationConfig", "CheckpointConfig", "ClusterConfig", "CompareConfig", "ComparisonConfig", "Config", "CriticConfig",
    "CriticMegatronConfig", "DataConfig", "EvalConfig", "EvalDataConfig", "FSDPConfig", "FilterGroupsConfig", "GateConfig", "KLControlConfig", "MegatronConfig", "ModelConfig",
    "OptimConfig", "PFPPOConfig", "PolicyLossConfig", "RefConfig", "RewardCacheConfig", "RewardConfig", "RewardDataConfig", "RewardEngineConfig",
    "RewardLossConfig", "RewardMonitorConfig", "RewardTrainerConfig", "RewardTrainingConfig", "RolloutConfig", "RolloutCorrectionConfig", "ScoreConfig", "ScoreDataConfig", "ScoreEngineConfig", "ScoreTrainerConfig", "ServeConfig", "ServerConfig",
    "TrainedConfig", "TrainerConfig", "ValSamplingConfig",
]  # fmt: skip
