"""A part of each sort, as a user would bring it: nothing in the package names any of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from rmrl.algorithms.descriptors import estimator, policy_loss
from rmrl.backends.descriptor import Backend, RowAssignment, Sharding
from rmrl.config.schema.actor import ActorConfig, TrainedConfig
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, TextOutput
from rmrl.inference.rollout_base import RolloutEngineSettings, samples_to_draw
from rmrl.rewards.combine.table import CombineInputs
from rmrl.rewards.kinds.ensemble.reward import Ensemble
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.response_facts import Rows
from rmrl.telemetry.sinks import SinkContext
from rmrl.types import (
    AdvantageInputs,
    Advantages,
    Generation,
    LossInputs,
    Sampling,
    ScoreItem,
    ScoreResult,
)
from tests.support.fake_backend import FakeTrainEngine


@estimator(group=True, token_rewards=False)
def above_the_worst(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Reward minus the lowest of the group."""
    rewards_B = inputs.rewards_B.clone()
    for group in inputs.group_ids_B.unique():
        rows = inputs.group_ids_B == group
        rewards_B[rows] -= inputs.rewards_B[rows].min()
    return Advantages(advantages_BT=rewards_B[:, None] * inputs.response_mask_BT)


@estimator(values=True)
def reward_minus_value(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Reward minus the critic's value of each token."""
    assert inputs.values_BT is not None, "a critic is trained for this estimator"
    returns_BT = inputs.rewards_B[:, None] * inputs.response_mask_BT
    return Advantages(
        advantages_BT=(returns_BT - inputs.values_BT) * inputs.response_mask_BT,
        returns_BT=returns_BT,
    )


def plain_reward(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """The reward at every token: a function without a descriptor."""
    return Advantages(advantages_BT=inputs.rewards_B[:, None] * inputs.response_mask_BT)


@policy_loss()
def likelihood(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Advantage-weighted log-likelihood."""
    loss_BT = -inputs.advantages_BT * inputs.logprobs_BT * inputs.mask_BT
    sums: dict[str, Any] = {"toy_tokens": inputs.mask_BT.sum()}
    return loss_BT, sums


class Vowels(Kind):
    """A kind of reward without a model: the share of vowels in a response."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        upper: bool = False
        """Count upper-case vowels too."""

    def __init__(self, spec: Any, context: Any) -> None:
        super().__init__(spec, context)
        self._vowels = "aeiouAEIOU" if spec.options.upper else "aeiou"

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        return [self._one(item.response) for item in items]

    def _one(self, text: str) -> ScoreResult:
        if not text:
            return ScoreResult(value=None, status="user_error", detail="the response is empty")
        return ScoreResult(value=sum(c in self._vowels for c in text) / len(text))


class Pooled(Ensemble):
    """A kind of a user's own that combines the scores of others."""


class Echo:
    """A reward engine without a model: it writes the number of tokens it was given."""

    sleeps_on: ClassVar[tuple[str, ...]] = ()
    reserves_gpu_share: ClassVar[bool] = False

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec

    @staticmethod
    def stated_bytes(spec: EngineSpec) -> tuple[int, int]:
        return 7, 3

    def start(self) -> None: ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        return [[self._one(len(r.token_ids))] * r.sampling.n for r in requests]

    def _one(self, tokens: int) -> TextOutput:
        return TextOutput(str(tokens), "stop", tokens, 1)

    def sleep(self, level: int = 1) -> None: ...

    def wake(self) -> None: ...

    def resident_bytes(self) -> int:
        return 7

    def ping(self) -> str:
        return "awake"


def largest(inputs: CombineInputs, *, settings: Any) -> np.ndarray:
    """A combiner: the largest weighted score."""
    return np.where(inputs.counted_NC, inputs.values_NC * inputs.weights_NC, -np.inf).max(axis=1)


@dataclass(frozen=True, kw_only=True)
class PerToken:
    """A transform: score / number of response tokens, minus the lowest of the group."""

    scale: float = 1.0
    example = "{kind: tests.contracts.toy_parts:PerToken}"
    per_value = False
    compares = "group"
    reads_length = True

    def problems(self) -> list[str]:
        return [] if self.scale > 0 else [f"scale={self.scale:g}: give a number greater than 0"]

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        per_token_N = self.scale * values_N / np.maximum(rows.lengths_B, 1)
        lowest = {g: per_token_N[rows.group_ids_B == g].min() for g in set(rows.group_ids_B)}
        return per_token_N - np.asarray([lowest[g] for g in rows.group_ids_B])


class Counting:
    """A rollout engine without a model: responses of three tokens that differ by their number."""

    sleeps_on: ClassVar[tuple[str, ...]] = ("cpu",)
    reserves_gpu_share: ClassVar[bool] = False

    def __init__(self, settings: RolloutEngineSettings) -> None:
        self.version = 0

    async def start(self) -> None: ...

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        for prompt_index, sample_index in samples_to_draw(len(prompts), sampling.n, only):
            tokens = (sample_index, 2 * self.version, 1)
            yield Generation(
                prompt_index=prompt_index,
                sample_index=sample_index,
                text=" ".join(map(str, tokens)),
                token_ids=tokens,
                logprobs=(-4.0,) * 3,
                finish_reason="stop",
                policy_version=self.version,
            )

    async def load_weights(self, path: str, *, version: int) -> None:
        self.version = version

    async def sleep(self, level: int = 1) -> None: ...

    async def wake(self, tags: Sequence[str] | None = None) -> None: ...

    async def resident_bytes(self) -> int:
        return 0

    async def shutdown(self) -> None: ...


class Steps:
    """A tracker: one line per step in <output>/steps.txt."""

    def __init__(self, context: SinkContext) -> None:
        self._file = (context.out_dir / "steps.txt").open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._file.write(f"{step}\n")

    def close(self) -> None:
        self._file.close()


class Ranked(FakeTrainEngine):
    """A training backend of a user's own: a plain class."""


def _twice(trained: TrainedConfig, world_size: int, section: str) -> RowAssignment:
    return RowAssignment((0,) * world_size, (world_size - 1,))


def _refused(sharding: Sharding) -> list[str]:
    return [f"{sharding.section}: {sharding.world_size} processes"]


DESCRIBED = Backend(
    engine="tests.contracts.toy_parts:Ranked",
    row_assignment=_twice,
    environment={"TOY_VARIABLE": "1"},
    problems=_refused,
    missing=lambda: "toy-core, which is not installed",
)
