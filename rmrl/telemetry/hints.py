"""Hints that a run's monitor gives: warnings in its log, and lines in `hints.jsonl`, which the
report shows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from rmrl.telemetry import jsonl

HINTS_FILE = "hints.jsonl"

_log = logging.getLogger(__name__)


class HintFile:
    """`<out_dir>/hints.jsonl`: one object a hint, {"step": 35, "hint": "step 35: look at ..."}.

    `resume_step`: the checkpoint's step from which the run continues. Later hints are cut away
    (None: all are). A disk that is full or gone ends the writing with a warning, not the run.
    """

    def __init__(self, out_dir: Path, *, resume_step: int | None = None) -> None:
        self._path = out_dir / HINTS_FILE
        self._file = jsonl.open_at(self._path, resume_step)

    def write(self, step: int, hints: Sequence[str]) -> None:
        """Log each hint as a warning and append it to the file."""
        for hint in hints:
            _log.warning(hint)
        if not hints or self._file.closed:
            return
        try:
            jsonl.append(self._file, [{"step": step, "hint": hint} for hint in hints])
        except OSError as error:
            _log.warning(f"hints can no longer be written to {self._path} ({error})")
            self.close()

    def close(self) -> None:
        """Close the file. A second call has no effect."""
        try:
            self._file.close()
        except OSError as error:  # what waits in the buffer cannot be written either
            _log.warning(f"{self._path} was not written whole ({error})")
