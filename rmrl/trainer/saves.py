"""Checkpoints of a run: files are written between two steps, and brought to the disk and digested
while the next steps run.

    write(step, models) ──► files, in the page cache ──► new weights reach the engines
    save(step, models, complete) ──► further files ──► the next step
                                └─ in the background: sync, digests, manifest, name ──► `step`

A run that is killed in between goes on from the checkpoint before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from rmrl.cluster.watch import keep_in_mind
from rmrl.errors import StallError
from rmrl.trainer import checkpoint

_log = logging.getLogger(__name__)

SAVE_EVERY_S = 1800.0
"""Seconds between two checkpoints where no frequency is given."""
_KEPT_BY_TIME = 2
"""Checkpoints kept where neither a frequency nor a number to keep is given."""
SEAL_S = 3600.0
"""Seconds within which a checkpoint's files must reach the disk."""


@dataclass(slots=True, kw_only=True)
class Saves:
    """The checkpoints under `root`."""

    root: Path
    keep: int | None
    """Newest checkpoints that are kept. None: all, or two where `every` is None."""
    config_fingerprint: str
    every: int | None = -1
    """Steps between two checkpoints, 0 or less: none is due. None: time decides."""
    step: int = -1
    """Step of the last complete checkpoint. -1: there is none."""
    _path: Path | None = None
    """Its folder, which is another run's after `resumed`."""
    written_step: int = -1
    """Step of the last one whose files are written: `step`, or one that is being sealed."""
    _written_at: float = field(default_factory=time.monotonic)
    _sealing: asyncio.Task[None] | None = None
    _ahead: checkpoint.Unsealed | None = None
    """Files that no call of `save` has completed yet."""

    def __post_init__(self) -> None:
        if self.keep is None and self.every is None:
            self.keep = _KEPT_BY_TIME

    def is_due(self, step: int) -> bool:
        """Return whether a step's checkpoint is to be written."""
        if self.every is None:
            return time.monotonic() - self._written_at >= SAVE_EVERY_S
        return self.every > 0 and step % self.every == 0

    def resumed(self, saved: checkpoint.Checkpoint) -> None:
        """Note the checkpoint that the run goes on from."""
        self.step = self.written_step = saved.step
        self._path = saved.path
        keep_in_mind(self.last())

    async def write(self, step: int, write: checkpoint.Write) -> checkpoint.Unsealed:
        """Write files that `save` completes. Raises the error that the last checkpoint ended with,
        and those that `write_files` raises."""
        await self.settle()
        self._ahead = await checkpoint.write_files(
            self.root, step, write, config_fingerprint=self.config_fingerprint
        )
        return self._ahead

    async def save(
        self,
        step: int,
        write: checkpoint.Write,
        complete: checkpoint.Write | None = None,
        *,
        best: int = -1,
    ) -> None:
        """Write a checkpoint with `write(folder)`, unless the method `write` has done so, then with
        `complete(folder)`, and begin to seal it. Does nothing where this step has one. `best`: the
        step whose checkpoint stays, as the link `best`; -1: none. Raises what the method `write`
        raises."""
        await self.settle()
        if self.written_step == step:
            return
        unsealed, self._ahead = self._ahead, None
        if unsealed is None or unsealed.step != step:
            unsealed = await self.write(step, write)
            self._ahead = None
        if complete is not None:
            await checkpoint.add_files(unsealed, complete)
        self.written_step = step
        self._written_at = time.monotonic()
        self._sealing = asyncio.create_task(self._seal(unsealed, best))

    async def settle(self) -> None:
        """Wait until the last checkpoint is complete. Raises CheckpointError where the disk is
        full, StallError where it takes too long, OSError for other faults of the disk."""
        sealing = self._sealing
        if sealing is None:
            return
        deadline = asyncio.timeout(SEAL_S)
        try:
            async with deadline:
                # A caller whose time is over leaves the work itself alone.
                await asyncio.shield(sealing)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise StallError(
                f"the checkpoint of step {self.written_step} was not on the disk of {self.root}"
                f" after {SEAL_S:g} s; look at that disk, then start the same command again"
            ) from error
        finally:
            if sealing.done():
                self._sealing = None

    def raise_failure(self) -> None:
        """Raise the error with which sealing has ended since the last call, if any."""
        sealing = self._sealing
        if sealing is not None and sealing.done():
            self._sealing = None
            sealing.result()

    async def close(self) -> None:
        """Like `settle`. An error is logged only."""
        try:
            await self.settle()
        # the run has ended, possibly with an error of its own
        except Exception as error:
            _log.warning(f"the last checkpoint is not complete: {error}")

    def last(self) -> str:
        """Describe the last complete checkpoint, as the end of a sentence."""
        if self._path is None:
            return "there is no checkpoint, the same command starts from the beginning"
        return f"the last checkpoint is {self._path}, and the same command goes on from it"

    async def _seal(self, unsealed: checkpoint.Unsealed, best: int) -> None:
        try:
            saved = await checkpoint.seal(unsealed)
        except BaseException:
            self.written_step = self.step
            raise
        self.step = saved.step
        self._path = saved.path
        keep_in_mind(self.last())
        _log.info(f"checkpoint {saved.path}")
        try:
            await asyncio.to_thread(checkpoint.prune, self.root, self.keep, best)
        except OSError as error:
            _log.warning(f"older checkpoints could not be removed: {error}")
        try:
            checkpoint.link_best(self.root, best)
        except OSError as error:
            path = checkpoint.folder_of(self.root, best)
            _log.warning(f"the best checkpoint is {path}; there can be no link to it: {error}")
