"""Inputs and outputs of the jobs that tests run: rows as lines of JSON, the code of rules, and what
an error says."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Write each row as one line of JSON."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[Any]:
    """Read a file of one JSON value per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rule(*lines: str) -> str:
    """Code of a drop-in whose `compute_score` has these lines."""
    head = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
    return head + textwrap.indent("\n".join(lines), "    ") + "\n"


def raises_with(error: type[Exception], *parts: str):
    """pytest.raises that looks for each part, in order, in the message."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(p) for p in parts))
