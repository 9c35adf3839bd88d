"""The dataclasses of the configuration: the only home of defaults, one docstring line per field."""

from rmrl.config.schema.actor import ActorConfig, CheckpointConfig, FSDPConfig, ModelConfig, OptimConfig, RefConfig
from rmrl.config.schema.algorithm import AlgorithmConfig, KLControlConfig
from rmrl.config.schema.data import DataConfig
from rmrl.config.schema.reward import ClusterConfig, RewardCacheConfig, RewardConfig, RewardEngineConfig, RewardMonitorConfig
from rmrl.config.schema.rollout import RolloutConfig, ValSamplingConfig
from rmrl.config.schema.root import ActorRolloutRefConfig, Config
from rmrl.config.schema.score import ScoreConfig, ScoreDataConfig, ScoreTrainerConfig
from rmrl.config.schema.trainer import TrainerConfig

__all__ = [
    "ActorConfig", "ActorRolloutRefConfig", "AlgorithmConfig", "CheckpointConfig", "ClusterConfig", "Config", "DataConfig",
    "FSDPConfig", "KLControlConfig", "ModelConfig", "OptimConfig", "RefConfig", "RewardCacheConfig", "RewardConfig", "RewardEngineConfig",
    "RewardMonitorConfig",
    "RolloutConfig", "ScoreConfig", "ScoreDataConfig", "ScoreTrainerConfig", "TrainerConfig", "ValSamplingConfig",
]  # fmt: skip
