"""The estimated cost of a step, and of a thousand responses."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import Any

import pytest

from rmrl.data.dataset import PromptTable
from rmrl.data.responses import answered_rows
from rmrl.data.schema import PromptRow
from rmrl.offline.estimate import (
    RewardCost,
    Workload,
    cost_line,
    estimate,
    first_of_each,
    of_rows,
    step_rows,
)
from rmrl.offline.response_rows import response_rows
from rmrl.offline.summary import Cost
from rmrl.rewards.session.missing import VerdictCounts
from rmrl.rewards.specs.spec import SourceWeights, Watch
from tests.offline.conftest import Bench


def table(*sources: str, truth: str = "four") -> PromptTable:
    rows: list[PromptRow] = []
    for i, source in enumerate(sources):
        rows.append(
            PromptRow(
                id=f"f:{i}",
                where=f"f row {i}",
                messages=({"role": "user", "content": f"q{i}"},),
                plain_text=False,
                rm_prompts={},
                ground_truth=truth,
                data_source=source,
                ability="",
                extra_info={},
            )
        )
    return PromptTable(rows, [[1, 2]] * len(rows))


async def lines_of(bench: Bench, *overrides: str) -> list[str]:
    checked = bench.checked(f"data.files={bench.folder}/rows.jsonl", *overrides, needs_out=False)
    rows = response_rows(list(answered_rows(checked.config.data)))
    scorer = bench.scorer(checked)
    try:
        return await estimate(scorer, of_rows(rows, responses=1000))
    finally:
        await scorer.close()


def test_the_first_rows_of_every_source() -> None:
    assert first_of_each(["a", "a", "b", "a", "b", "c"], 1) == [0, 2, 5]
    assert first_of_each(["a", "a", "b", "a", "b", "c"], 2) == [0, 1, 2, 4, 5]
    assert first_of_each([], 1) == []


def test_seconds_and_tokens_scale_with_the_number_of_responses() -> None:
    """8 responses in 2 s: 4,000 in 1,000 s, which is 17 minutes; 80 tokens / 8 * 4,000."""
    cost = RewardCost(
        name="judge",
        seconds=2.0,
        verdicts=VerdictCounts(rows=8, statuses=Counter(ok=5, unparseable=3)),
        tokens=Cost(computed=8, tokens_in=80, tokens_out=16),
    )
    assert cost_line(cost, 4000) == (
        "judge: 4,000 responses in about 17 min (8 took 2 s), 40,000 tokens in and 8,000 out;"
        " without a verdict: 3 unparseable"
    )


def test_a_watcher_counts_with_its_mean_over_the_steps(bench: Bench) -> None:
    """512 responses a step: 5 % of them in every 10th step are 2.56 on average, which take 0.25 s
    each. A file has no steps: 5 % of its rows."""
    bench.rows("x")
    spec = bench.checked(f"data.files={bench.folder}/rows.jsonl", needs_out=False).specs[0]
    watcher = dataclasses.replace(spec, watch=Watch(rows=0.05, every=10))
    step = Workload(
        title="one step", responses=512, sources={"": 1}, rows_of=lambda _: [], of_step=True
    )
    assert step.responses_of(spec) == 512
    assert step.responses_of(watcher) == pytest.approx(2.56)
    file = dataclasses.replace(step, responses=1000, of_step=False)
    assert file.responses_of(watcher) == pytest.approx(50)
    cost = RewardCost(
        name="watcher",
        seconds=2.0,
        verdicts=VerdictCounts(rows=8, statuses=Counter(ok=8)),
        tokens=Cost(computed=8, tokens_in=80, tokens_out=16),
    )
    assert cost_line(cost, step.responses_of(watcher)) == (
        "watcher: 2.6 (on average) responses in about 1 s (8 took 2 s), 26 tokens in and 5 out"
    )


async def test_each_reward_has_a_line_and_its_share_of_the_responses(bench: Bench) -> None:
    bench.rows("one", "two", data_source="a")
    lines = await lines_of(
        bench,
        "reward.models=[length,judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text='8'",
        "reward.by_source.a={models: [length]}",
    )
    assert lines[0] == "1,000 responses like these"
    assert re.match(r"length: 1,000 responses in about \d+ s \(2 took ", lines[1])
    assert lines[2] == "judge: counts for none of these rows"
    assert re.fullmatch(r"together: about \d+ s, one after another", lines[3])


async def test_tokens_of_a_judge_are_counted(bench: Bench) -> None:
    bench.rows("one", "two")
    lines = await lines_of(
        bench,
        "reward.models=[judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text='8'",
    )
    assert " tokens in and 1,000 out" in lines[1]  # one token each


async def test_unknown_seconds_of_the_policy_are_not_added_up(bench: Bench) -> None:
    bench.rows("one")
    checked = bench.checked(f"data.files={bench.folder}/rows.jsonl", needs_out=False)
    rows = response_rows(list(answered_rows(checked.config.data)))
    scorer = bench.scorer(checked)
    workload = Workload(
        title="one step",
        responses=8,
        sources={"": 1},
        rows_of=lambda _: rows,
        before=("policy: ...",),
        seconds_before=None,
    )
    try:
        lines = await estimate(scorer, workload)
    finally:
        await scorer.close()
    assert lines[:2] == ["one step", "policy: ..."]
    assert lines[-1].endswith("the policy's time comes on top")


@pytest.mark.parametrize(("kind", "ids"), [("rule", ["f:0", "f:3"]), ("group", ["f:0", "f:0"])])
def test_a_steps_responses_have_full_length_and_whole_groups(
    bench: Bench, tokenizer: Any, kind: str, ids: list[str]
) -> None:
    """The reward counts for source a alone, whose prompts are 0, 1 and 3."""
    spec = bench.checked(f"data.files={bench.rows('x')}", needs_out=False).specs[0]
    only_a = SourceWeights(named={"a": 1.0}, default=None)
    rows = step_rows(
        table("a", "a", "b", "a"),
        dataclasses.replace(spec, kind=kind, sources=only_a),
        count=2,
        group_size=2,
        tokens=12,
        coder=tokenizer,
    )
    assert [row.prompt.id for row in rows] == ids
    assert len({(row.prompt.id, row.text) for row in rows}) == len(rows)
    for row in rows:
        assert row.tokens == 12
        assert len(tokenizer(row.text, add_special_tokens=False)["input_ids"]) in range(11, 14)


def test_a_reference_with_half_a_letter_is_repeated_too(bench: Bench, tokenizer: Any) -> None:
    spec = bench.checked(f"data.files={bench.rows('x')}", needs_out=False).specs[0]
    data = table("a", truth="4\ud83d")
    (row,) = step_rows(data, spec, count=1, group_size=2, tokens=12, coder=tokenizer)
    assert (row.tokens, row.text.count("4")) == (12, 2)  # "(1) 4?\n" has 7 tokens


def test_a_reward_for_another_source_has_no_rows(bench: Bench, tokenizer: Any) -> None:
    spec = bench.checked(f"data.files={bench.rows('x')}", needs_out=False).specs[0]
    only_b = SourceWeights(named={"b": 1.0}, default=None)
    spec = dataclasses.replace(spec, sources=only_b)
    rows = step_rows(table("a"), spec, count=2, group_size=2, tokens=12, coder=tokenizer)
    assert rows == []
