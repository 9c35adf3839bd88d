"""Results that a failed run leaves behind: a checkpoint of its last finished step, and the
responses that exceeded a budget."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np

from rmrl.cluster.watch import CHECKPOINTS_END, loss, seconds_left
from rmrl.errors import ClusterLostError, DataError, InfrastructureError, RewardError, StallError
from rmrl.telemetry.transcripts import SAMPLES_FILE
from rmrl.types import RewardBatch

if TYPE_CHECKING:
    from rmrl.trainer.run import Run

_log = logging.getLogger(__name__)

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
        saved = await _saved(run, seconds_left(CHECKPOINTS_END))
        raise ClusterLostError(f"{loss() or error}; {saved}") from error
    except (RewardError, InfrastructureError, StallError, DataError):
        if run.telemetry is not None:
            if run.collector.unrewarded is not None:
                responses, scores = run.collector.unrewarded
                count = len(responses)
                nothing = RewardBatch(
                    scores=scores,
                    weights_C=np.full(len(scores.names), np.nan),
                    rewards_B=np.full(count, np.nan),
                    keep_B=np.zeros(count, dtype=bool),
                )
                written = run.telemetry.samples.write(run.step + 1, responses, nothing)
                _log.info(
                    f"{written} responses of step {run.step + 1} are in"
                    f" {run.out_dir / SAMPLES_FILE} with their verdicts"
                )
            saved = "no step was finished, so there is nothing to save"
            if run.step:
                saved = await _saved(run, SAVE_S)
            _log.info(saved)
        raise


async def _saved(run: Run, deadline_s: float) -> str:
    """Save a checkpoint in at most `deadline_s` seconds and describe what is on disk after the
    failure, as the end of a sentence."""
    newest = run.checkpoints / f"step_{run.saved_step:06d}"
    if run.loader is None:
        return "the same command starts again"
    if run.saved_step == run.step:
        return run.last_checkpoint(newest)
    if not run.between_steps:
        return (
            f"it was in the middle of the update of step {run.step + 1}, so nothing was saved;"
            f" {run.last_checkpoint(newest)}"
        )
    try:
        async with asyncio.timeout(deadline_s):
            await run.collector.rollouts.close()  # the models may need the room on their devices
            await run.collector.scorer.residency.close()
            await run.save()
    # the error that ended the run is the one to raise, whatever else is broken
    except Exception as error:
        why = "there was no time for it" if isinstance(error, TimeoutError) else str(error)
        return (
            f"no checkpoint of step {run.step} could be saved ({why});"
            f" {run.last_checkpoint(newest)}"
        )
    return run.last_checkpoint(run.checkpoints / f"step_{run.step:06d}")
