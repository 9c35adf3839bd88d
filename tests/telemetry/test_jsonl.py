"""Appending, cutting back and reading JSON lines."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from rmrl.telemetry import jsonl


def fill(path: Path, *steps: int) -> None:
    with jsonl.open_at(path, None) as file:
        jsonl.append(file, [{"step": step} for step in steps])


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("resume", "left"), [(None, []), (0, [0]), (2, [0, 1, 2, 2]), (9, [0, 1, 2, 2, 3])]
)
def test_cut_after(tmp_path: Path, resume: int | None, left: list[int]) -> None:
    path = tmp_path / "m.jsonl"
    fill(path, 0, 1, 2, 2, 3)
    assert jsonl.cut_after(path, resume) == 5 - len(left)
    assert steps(path) == left
    assert [p.name for p in tmp_path.iterdir()] == ["m.jsonl"]


def test_a_torn_last_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    fill(path, 1, 2)
    with path.open("a") as file:
        file.write('{"step": 2, "reward/me')
    assert jsonl.cut_after(path, 2) == 1
    fill_more = jsonl.open_at(path, 2)
    jsonl.append(fill_more, [{"step": 3}])
    fill_more.close()
    assert steps(path) == [1, 2, 3]


def test_a_complete_object_without_a_line_end_is_torn_too(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    jsonl.cut_after(path, 5)
    assert steps(path) == [1]


def test_an_untouched_file_is_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    fill(path, 1, 2)
    before = path.stat().st_ino
    assert jsonl.cut_after(path, 2) == 0
    assert path.stat().st_ino == before


def test_what_json_cannot_hold(tmp_path: Path) -> None:
    row = {
        "step": 1,
        "nan": math.nan,
        "inf": np.float32(math.inf),
        "n": np.int64(3),
        "a": np.asarray([1.5, math.nan]),
        "s": {2},
        4: Path("x"),
    }
    path = tmp_path / "m.jsonl"
    with jsonl.open_at(path, None) as file:
        jsonl.append(file, [row])
    assert json.loads(path.read_text()) == {
        "step": 1,
        "nan": None,
        "inf": None,
        "n": 3,
        "a": [1.5, None],
        "s": [2],
        "4": "x",
    }


def test_text_stays_readable_and_lone_surrogates_survive(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    text = "答え é \u2028 \ud83d cut"
    with jsonl.open_at(path, None) as file:
        jsonl.append(file, [{"step": 1, "text": text}])
    assert "答え" in path.read_bytes().decode("utf-8")
    assert next(jsonl.read(path))["text"] == text
