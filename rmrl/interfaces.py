"""Interfaces that a run's parts implement: scorers, engines, processes.

A part implements its interface without naming it. `rmrl.types` has the data that parts exchange.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rmrl.types import Generation, Metrics, Ragged, Sampling, ScoreItem, ScoreResult, TrainBatch

if TYPE_CHECKING:
    import torch


class ItemScorer(Protocol):
    """Scores items: one result per item, in order."""

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]: ...


class RolloutEngine(Protocol):
    """Turns prompt tokens into samples, in its own process. Each sample is yielded as soon as it is
    finished."""

    async def start(self) -> None:
        """Load the model. Raises EngineLoadError where loading fails."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        """Yield `sampling.n` samples for each prompt. `only` restricts the call to these samples,
        each given by its prompt's number and its own number. A restricted call draws the same
        samples as a call for all."""
        ...

    async def load_weights(self, path: str, *, version: int) -> None: ...

    # Where its class states `answers`: answer(requests), as `generate` of a RewardEngine, and
    # progress(), as that of a RewardEngine: the deadline of `answer` counts from the last one.

    async def sleep(self, level: int = 1) -> None: ...

    async def wake(self) -> None: ...


class TrainEngine(Protocol):
    """Turns a TrainBatch into new weights. Every process in the group is called at the same time,
    each with its own part."""

    def logprobs(self, batch: TrainBatch) -> Ragged:
        """Return the response tokens' log-probabilities. Roles actor and ref."""
        ...

    # Where its backend states `energies`: logprobs_and_energies(batch), the log-probabilities and
    # the energies of the response tokens (see TrainBatch), for estimators that read those.

    def values(self, batch: TrainBatch) -> Ragged:
        """Return V before each response token, in the returns' units. Role critic."""
        ...

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """Make one optimizer step per mini-batch and epoch, on this process's share."""
        ...

    def weights(self, dtype: str | None = None) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield whole tensors under Hugging Face names, one at a time. Every process must exhaust
        the iterator."""
        ...

    def export_weights(self, path: str, dtype: str) -> int:
        """Write all weights to one file, on rank 0. Return the bytes written, 0 on other ranks."""
        ...

    def save(self, path: str) -> None: ...

    def save_hf(self, path: str, dtype: str | None = None) -> None: ...

    def load(self, path: str) -> None: ...

    def offload(self) -> None: ...

    def onload(self) -> None: ...

    def memory_bytes(self) -> int: ...


class ProcessHost(Protocol):
    """Hosts a plain class in its own process. The cluster layer implements the host with Ray, tests
    with fakes in the same process."""

    async def spawn(
        self, factory: str, settings: Mapping[str, Any], *, name: str
    ) -> ProcessHandle: ...


class ProcessHandle(Protocol):
    """A living process. `call` raises EngineLostError when the process died."""

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any: ...

    def remember_family(self) -> None:
        """Note the process's present children, so that `kill` also ends them after the process
        itself has died."""
        ...

    async def alive(self, *, timeout_s: float) -> None:
        """Return from a living process. Raises EngineLostError where the process has ended. Raises
        StallError where it does not answer in time, as a busy process may."""
        ...

    async def kill(self) -> None: ...
