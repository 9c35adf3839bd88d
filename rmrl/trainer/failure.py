"""Results that a failed run leaves behind: a checkpoint of its last finished step, and the
responses that exceeded a budget."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from rmrl.cluster.watch import CHECKPOINTS_END, loss, seconds_left
from rmrl.errors import ClusterLostError, DataError, InfrastructureError, RewardError, StallError
from rmrl.telemetry.transcripts import SAMPLES_FILE
from rmrl.types import RewardBatch

if TYPE_CHECKING:
    from rmrl.trainer.run import Run

_log = logging.getLogger(__name__)

_SETTLE_S = 10.0
"""Seconds given to samples of earlier steps that are still being written after a failure."""

SAVE_S = 60.0
"""Seconds given to the checkpoint of a run that failed with its cluster alive."""


@asynccontextmanager
async def saved_when_it_fails(run: Run) -> AsyncIterator[None]:
    """When the block ends with an error, save a checkpoint of the last finished step, where there
    is time, and report it.

    The responses of a batch whose verdicts exceeded a budget are in samples.jsonl, until a resumed
    run cuts them off.
    """
    try:
        yield
    except ClusterLostError as error:
        await _log_faults(run)
        saved = await _saved(run, seconds_left(CHECKPOINTS_END))
        raise ClusterLostError(f"{loss() or error}; {saved}") from error
    except (RewardError, InfrastructureError, StallError, DataError):
        if run.telemetry is not None:
            await _log_faults(run)
            if run.collector.unrewarded is not None:
                responses, scores = run.collector.unrewarded
                count = len(responses)
                nothing = RewardBatch(
                    scores=scores,
                    weights_C=np.full(len(scores.names), np.nan),
                    rewards_B=np.full(count, np.nan),
                    keep_B=np.zeros(count, dtype=bool),
                )
                samples = run.telemetry.samples
                with _logged():
                    written = samples.write(run.step + 1, responses, nothing)
                    if not samples.flush():
                        written = 0
                    _log.info(
                        f"{written} responses of step {run.step + 1} are in"
                        f" {run.out_dir / SAMPLES_FILE} with their verdicts"
                    )
            saved = "no step was finished, so there is nothing to save"
            if run.step:
                saved = await _saved(run, SAVE_S)
            _log.info(saved)
        raise


@contextmanager
def _logged() -> Iterator[None]:
    """Log an error of writing samples: the one that ended the run is the one to raise."""
    try:
        yield
    except Exception as error:
        _log.warning(f"{error}; the run had already failed")


async def _log_faults(run: Run) -> None:
    """Log the errors of earlier steps' samples, which would else be raised by the next call."""
    if run.telemetry is None:
        return
    for samples in (run.telemetry.samples, run.telemetry.val_samples):
        with _logged():
            await asyncio.to_thread(samples.flush, _SETTLE_S)


async def _saved(run: Run, deadline_s: float) -> str:
    """Save a checkpoint in at most `deadline_s` seconds and describe what is on disk after the
    failure, as the end of a sentence."""
    saves = run.saves
    if run.loader is None:
        return "the same command starts again"
    try:
        async with asyncio.timeout(deadline_s):
            await _complete(run)
    # the error that ended the run is the one to raise, whatever else is broken
    except Exception as error:
        why = "there was no time for it" if isinstance(error, TimeoutError) else str(error)
        return f"no checkpoint of step {run.step} could be saved ({why}); {saves.last()}"
    if saves.step != run.step:
        return (
            f"it was in the middle of the update of step {run.step + 1}, so nothing was saved;"
            f" {saves.last()}"
        )
    return saves.last()


async def _complete(run: Run) -> None:
    """Save the last finished step where the models are those of it, and bring to the disk what is
    written already."""
    with _logged():
        await run.saves.settle()
    if run.saves.step != run.step and run.between_steps:
        # the models may need the room on their devices
        await run.collector.rollouts.close()
        await run.collector.scorer.residency.close()
        await run.save()
        await run.saves.settle()
