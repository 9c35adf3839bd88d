"""Settings that every training engine has: `Engine(settings=TrainSettings,
process=ProcessSettings)`. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmrl.config.schema import ActorConfig, CriticConfig, ModelConfig, TrainedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """One engine's work, the same in every process of its group."""

    model: ModelConfig
    actor: ActorConfig
    role: Literal["actor", "ref", "critic"] = "actor"
    """ref: frozen weights, no optimizer. Only `logprobs` makes sense. critic: a value head,
    `values` in place of `logprobs`."""
    critic: CriticConfig | None = None
    """Settings of role critic, every null already replaced by the actor's setting."""
    temperature: float = 1.0
    """Divisor of the logits everywhere, so that training measures the distribution that was
    sampled."""
    total_steps: int = 1
    """Optimizer steps of the whole run, for the learning-rate schedule."""
    max_response_length: int = 1
    """Longest response allowed, in tokens: the constant of
    loss_agg_mode=seq-mean-token-sum-norm."""
    logprob_max_tokens: int | None = None
    """Padded tokens per forward pass of `logprobs`. None: actor.ppo_max_token_len_per_gpu."""
    logprob_max_rows: int | None = None
    """Rows per forward pass of `logprobs`. None: no limit."""
    seed: int = 1
    device: Literal["cpu", "cuda"] = "cpu"
    labels: tuple[str, ...] = ()
    """Names for a head's outputs, where role critic trains a reward model. A new head is drawn at
    random then. (): one value, and a new head is zero."""
    own_tokens: bool = False
    """Outputs belong to the counted response tokens themselves, as a reward's score does. False: to
    the state before each response token."""

    @property
    def trained(self) -> TrainedConfig:
        """This role's settings for optimizer, batches and sharding."""
        return self.actor if self.critic is None else self.critic

    @property
    def section(self) -> str:
        """The configuration section that holds `trained`, for errors."""
        return "actor_rollout_ref.actor" if self.critic is None else "critic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """This process's place in the group."""

    rank: int = 0
    world_size: int = 1
    init_method: str = ""
    """Address at which the processes meet, e.g. tcp://127.0.0.1:29500; rank 0 listens there. "" is
    enough for a group of one."""
    local_rank: int = 0
    """CUDA device of this process among those it can see."""
    threads: int | None = None
    """CPU threads of torch. None: leave as it is."""
    timeout_s: float = 1800.0
    """Deadline of every collective operation."""
