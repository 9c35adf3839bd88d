"""JSON lines with a `step`, one object a line, appended and flushed; cut back when a run resumes.

Valid JSON only: numbers that are not finite become null, values without a JSON form become their
text.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np


def cut_after(path: Path, step: int | None) -> int:
    """Drop lines of steps after `step` (None: all lines) and lines that were torn by a crash.
    Returns the number of dropped lines.

    The file is replaced in one move, so a crash leaves either the old lines or the new ones. A
    missing file is fine.
    """
    if not path.exists():
        return 0
    rest = path.with_name(f".{path.name}.tmp")
    dropped = 0
    with path.open("rb") as source, rest.open("wb") as target:
        for line in source:
            line_step = _step_of(line) if line.endswith(b"\n") else None
            if step is not None and line_step is not None and line_step <= step:
                target.write(line)
            else:
                dropped += 1
        target.flush()
        os.fsync(target.fileno())
    if dropped:
        rest.replace(path)
    else:
        rest.unlink()
    return dropped


def open_at(path: Path, resume_step: int | None) -> TextIO:
    """Open `path` for appending the step after `resume_step` (None: a start from nothing, which
    drops earlier lines)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_after(path, resume_step)
    # A lone surrogate cannot be UTF-8; backslashreplace turns it into \udXXX, which is its JSON
    # escape.
    return path.open("a", encoding="utf-8", errors="backslashreplace")


def append(file: TextIO, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows and flush."""
    for row in rows:
        file.write(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n")
    file.flush()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the readable lines that have a step; torn lines are skipped."""
    with path.open("rb") as source:
        for line in source:
            if _step_of(line) is not None:
                yield json.loads(line)


def plain(value: Any) -> Any:
    """Convert `value` for JSON: non-finite floats become None, numpy becomes Python, unknown
    objects become text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | np.floating):
        number = float(cast("float", value))
        return number if math.isfinite(number) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(cast("np.ndarray", value).tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in cast("Iterable[Any]", value)]
    return str(value)


def _step_of(line: bytes) -> int | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    step = cast("dict[str, Any]", row).get("step")
    return step if isinstance(step, int) else None
