"""Traces scored, shown and compared with their own rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl import Rewards
from rmrl.main_report import main as report
from rmrl.main_show import main as show
from tests.inputs import read_lines
from tests.offline.conftest import Bench

TRACES = Path(__file__).parents[1] / "data" / "traces"
EPISODES = TRACES / "verifiers_episodes.jsonl"
CALL = (
    'call: {"id": "c1", "type": "function",'
    ' "function": {"name": "calculate", "arguments": "{\\"term\\": \\"17 * 23\\"}"}}'
)


def scored(bench: Bench, *overrides: str, file: Path = EPISODES) -> list[Any]:
    bench.scored(file, *overrides)
    return read_lines(bench.folder / "s.jsonl")


def test_a_failed_trace_has_a_status_and_no_number(bench: Bench):
    rows = scored(bench)
    # `length`: a tenth of the number of characters; "It is 391." has 10.
    assert rows[0]["score_length"] == 1.0
    assert [row["status_length"] for row in rows] == [
        "ok", "provider_error", "timeout", "ok", "ok", "ok",
    ]  # fmt: skip
    for row in rows[1:3]:
        assert row["score_length"] is None
        assert row["reward"] is None
        assert row["score_env.reward"] is None
    assert rows[1]["detail_length"] == "ConnectionError: the sandbox is gone"
    assert rows[0]["score_env.reward"] == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        ("last", None),
        ("turn:1", f"I ask the tool.\n{CALL}"),
        ("turn:-1", None),
        ("tools", f"{CALL}\n\n[tool calculate]\n391"),
        (
            "transcript",
            "[system]\nUse the tool.\n\n[user]\nWhat is 17 * 23?\n\n"
            f"[assistant]\nI ask the tool.\n{CALL}\n\n[tool calculate]\n391\n\n"
            "[assistant thinking]\nThe tool says so.\n\n[assistant]\nIt is 391.",
        ),
    ],
)
def test_what_a_reward_reads(bench: Bench, reads: str, text: str | None):
    row = scored(bench, f"+reward.specs.length={{reads: '{reads}'}}", "columns=[read]")[0]
    assert row["read_length"] == text
    assert row["score_length"] == pytest.approx(len(text or "It is 391.") / 10)


def test_a_turn_that_is_not_there_has_no_verdict(bench: Bench):
    row = scored(bench, "+reward.specs.length={reads: 'turn:3'}")[0]
    assert (row["status_length"], row["score_length"]) == ("unparseable", None)
    assert row["detail_length"] == "the response has 2 turns: no turn:3"


@pytest.mark.parametrize("how", ["mean", "min", "max", "sum", "last"])
def test_every_turn_is_scored(bench: Bench, how: str):
    rows = scored(bench, f"+reward.specs.length={{per: {{turn: {how}}}}}", "columns=[turns]")
    turns = json.loads(rows[0]["turns_length"])
    first = len(f"I ask the tool.\n{CALL}") / 10
    assert turns == pytest.approx([first, 1.0])
    wanted = {
        "mean": (first + 1) / 2, "min": 1.0, "max": first, "sum": first + 1, "last": 1.0,
    }[how]  # fmt: skip
    assert rows[0]["score_length"] == pytest.approx(wanted)
    assert rows[1]["turns_length"] == "[]"
    assert rows[1]["score_length"] is None


def test_show_and_report_read_traces_as_they_are(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert show([str(EPISODES)]) == 0
    page = capsys.readouterr().out
    assert "--- env.reward: 1.1" in page
    assert "--- env.correct: none (provider_error)  ConnectionError: the sandbox is gone" in page
    file = tmp_path / "traces.jsonl"
    file.write_bytes(EPISODES.read_bytes())
    assert report([str(file)]) == 0
    assert "env.correct" in file.with_suffix(".html").read_text(encoding="utf-8")


def test_a_scored_trace_can_be_scored_again(bench: Bench):
    once = scored(bench)
    (bench.folder / "again.jsonl").write_bytes((bench.folder / "s.jsonl").read_bytes())
    bench.scored(bench.folder / "again.jsonl", out="t.jsonl")
    assert read_lines(bench.folder / "t.jsonl") == once


def test_rewards_in_memory_read_traces(bench: Bench):
    raw = [json.loads(line) for line in EPISODES.read_text(encoding="utf-8").splitlines()]
    section = {
        "models": ["length"],
        "functions_dir": str(bench.folder / "functions"),
        "rule_workers": 1,
    }
    with Rewards({"reward": section, "trainer": {"device": "cpu"}}) as rewards:
        table = rewards.score_rows(raw)
    assert table["status_length"][:3] == ["ok", "provider_error", "timeout"]
    assert table["score_env.correct"][0] == 1.0
