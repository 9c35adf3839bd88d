"""Hints on disk: warnings, and lines that a resumed run goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.telemetry import jsonl
from rmrl.telemetry.hints import HintFile


def test_a_resumed_run_drops_the_hints_of_later_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = HintFile(tmp_path)
    first.write(3, ["step 3: a", "step 3: b"])
    first.write(4, [])
    first.write(5, ["step 5: c"])
    first.close()
    assert caplog.messages == ["step 3: a", "step 3: b", "step 5: c"]
    second = HintFile(tmp_path, resume_step=4)
    second.write(6, ["step 6: d"])
    second.close()
    second.close()
    assert list(jsonl.read(tmp_path / "hints.jsonl")) == [
        {"step": 3, "hint": "step 3: a"},
        {"step": 3, "hint": "step 3: b"},
        {"step": 6, "hint": "step 6: d"},
    ]


def test_a_start_from_nothing_drops_all(tmp_path: Path) -> None:
    file = HintFile(tmp_path)
    file.write(1, ["step 1: a"])
    file.close()
    HintFile(tmp_path).close()
    assert (tmp_path / "hints.jsonl").read_bytes() == b""


def test_a_full_disk_ends_the_writing_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(jsonl, "open_at", lambda *_: full)
        file = HintFile(tmp_path)
        file.write(1, ["step 1: a"])
        file.write(2, ["step 2: b"])
        file.close()
    first, refused, *_, last = caplog.messages
    assert (first, last) == ("step 1: a", "step 2: b")
    assert refused.startswith(f"hints can no longer be written to {tmp_path / 'hints.jsonl'} (")
