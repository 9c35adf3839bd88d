"""The configuration's root."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.actor import ActorConfig, CriticConfig, ModelConfig, RefConfig
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.config.schema.data import DataConfig
from rmrl.config.schema.fields import changeable
from rmrl.config.schema.reward import ClusterConfig, RewardConfig
from rmrl.config.schema.rollout import RolloutConfig
from rmrl.config.schema.trainer import TrainerConfig


@dataclass(kw_only=True, slots=True)
class ActorRolloutRefConfig:
    hybrid_engine: bool = True
    """Rollout and training share the devices. False needs rollout.pool."""
    model: ModelConfig = field(default_factory=ModelConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    ref: RefConfig = changeable(factory=RefConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)


@dataclass(kw_only=True, slots=True)
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    actor_rollout_ref: ActorRolloutRefConfig = field(default_factory=ActorRolloutRefConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    reward_model: dict[str, Any] = field(default_factory=dict)
    """Older names. `rmrl.config.compat` translates them."""
    custom_reward_function: dict[str, Any] = field(default_factory=dict)
    """Older names: {path, name, reward_kwargs} of a rule."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
