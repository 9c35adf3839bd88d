"""A small measurement of benchmarks/score_rows.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import score_rows


def test_a_small_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "result.json"
    monkeypatch.setattr(
        sys, "argv", ["score_rows", "--only", "memory", "--rows", "300", "--out", str(out)]
    )
    score_rows.main()
    measured = json.loads(out.read_text())["memory"]["300"]
    assert measured["seconds"] > 0
    assert measured["driver_peak_mib"] > 20
