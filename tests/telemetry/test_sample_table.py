"""Scored samples of a step as a table for trackers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from rmrl.telemetry.background import BackgroundSink
from rmrl.telemetry.sample_table import ROWS, SampleTable, sample_table
from rmrl.telemetry.sinks import Sinks
from rmrl.types import Prompt, Response, RewardBatch, ScoreResult, Scores


def response(
    text: str = "7", question: str = "What is 3 + 4?", truth: str | None = "7"
) -> Response:
    prompt = Prompt(
        id="train.parquet:17",
        messages=({"role": "user", "content": question},),
        token_ids=(1,),
        ground_truth=truth,
    )
    return Response(
        prompt=prompt,
        text=text,
        token_ids=(2,),
        logprobs=None,
        finish_reason="stop",
        policy_version=0,
    )


def rewards(count: int = 1, *, kept: bool = True) -> RewardBatch:
    judge = ScoreResult(value=None, status="timeout", detail="no answer within 10 s")
    rule = ScoreResult(value=0.5, raw_text="half of it")
    return RewardBatch(
        scores=Scores(names=("rule", "judge"), results=((rule,) * count, (judge,) * count)),
        weights_C=np.ones(2),
        rewards_B=np.asarray([0.75 if kept else np.nan] * count),
        keep_B=np.asarray([kept] * count),
    )


def test_a_row_has_every_components_score_status_and_reason() -> None:
    table = sample_table(10, [response()], rewards(), first=0)
    assert table.records() == [
        {
            "step": 10,
            "prompt_id": "train.parquet:17",
            "prompt": "What is 3 + 4?",
            "response": "7",
            "reference": "7",
            "reward": 0.75,
            "rule": 0.5,
            "rule/status": "ok",
            "rule/detail": "half of it",
            "judge": None,
            "judge/status": "timeout",
            "judge/detail": "no answer within 10 s",
        }
    ]


def test_a_missing_reward_or_reference_is_no_number() -> None:
    (row,) = sample_table(1, [response(truth=None)], rewards(kept=False), first=0).records()
    assert (row["reward"], row["reference"]) == (None, None)


def test_the_rows_are_bounded_and_go_on_at_the_start() -> None:
    responses = [response(str(place)) for place in range(20)]
    rows = sample_table(1, responses, rewards(20), first=15).records()
    # 15..19, then 0..10: sixteen of the twenty
    assert [int(row["response"]) for row in rows] == [*range(15, 20), *range(11)]
    assert len(rows) == ROWS == 16
    assert len(sample_table(1, responses[:3], rewards(3), first=2).rows) == 3


def test_texts_are_cut_with_a_mark_and_hold_no_hidden_characters() -> None:
    long = "a" * 2000 + "\x1b\ud800" + "b" * 2000
    (row,) = sample_table(1, [response(long, "q" * 1500, "t" * 600)], rewards(), first=0).records()
    # 4002 characters, of which 1000 at each end are kept
    assert row["response"] == "a" * 1000 + " ... (2002 characters) ... " + "b" * 1000
    assert row["prompt"] == "(500 characters) ... " + "q" * 1000
    assert row["reference"] == "t" * 250 + " ... (100 characters) ... " + "t" * 250
    (row,) = sample_table(1, [response("x\x1b[31m\ud800\n\ty")], rewards(), first=0).records()
    assert row["response"] == "x\ufffd[31m\ufffd\n\ty"
    # no-break and ideographic space, joiner, line end of Windows, private use, a right-to-left mark
    ordinary = "5\u00a0km\u3000\U0001f469\u200d\U0001f52c\r\n\ue000\u200f"
    (row,) = sample_table(1, [response(ordinary, ordinary)], rewards(), first=0).records()
    assert (row["response"], row["prompt"]) == (ordinary, ordinary)


class Numbers:
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


class Tables(Numbers):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.tables: list[tuple[int, SampleTable]] = []

    def table(self, step: int, table: SampleTable) -> None:
        if self.error:
            raise self.error
        self.tables.append((step, table))


def test_sinks_that_show_tables_get_them_and_a_broken_one_is_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = Tables()
    behind = Tables()
    sinks = Sinks(
        {
            "numbers": Numbers(),
            "broken": Tables(RuntimeError("full")),
            "good": good,
            "thread": BackgroundSink("thread", lambda: behind),
            "no tables": BackgroundSink("no tables", Numbers),
        }
    )
    table = sample_table(3, [response()], rewards(), first=0)
    sinks.table(3, table)
    assert sinks.names == ("numbers", "good", "thread", "no tables")
    sinks.close()
    assert good.tables == behind.tables == [(3, table)]
    (message,) = caplog.messages
    assert "the logger broken failed at step 3 with RuntimeError: full" in message
