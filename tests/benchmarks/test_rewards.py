"""The parts of benchmarks/rewards that decide what its numbers mean, with engines that follow a
script."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.rewards import rig, savings, sharing
from benchmarks.rewards.plain import agreement
from benchmarks.rewards.show import ratio
from benchmarks.rewards.solutions import WRONG, Solutions, solutions
from rmrl.assemble.resolve import resolve
from rmrl.config.schema import RewardConfig
from rmrl.rewards.residency import Residency, plan_engines
from rmrl.rewards.session.scorer import Scorer
from rmrl.types import RewardBatch, ScoreResult, Scores
from tests.rewards import parts
from tests.support import fakes

PAIRS = [(f"Q{i}?", f"{i} + 1 = {i + 1}\nA: {i + 1}") for i in range(10)]


@pytest.fixture
def sizes(tmp_path: Path) -> rig.Sizes:
    judge = str(parts.checkpoint(tmp_path / "judge"))
    return rig.Sizes(
        judge=judge, scalar=judge, embedder=judge, items=8, model_items=4, rounds=1, threads=1
    )


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[RewardConfig], Scorer]:
    """The scorer of a benchmark's own configuration, with fake engines that write 7."""
    tokenizer = parts.chat_tokenizer(tmp_path)

    def made(config: RewardConfig) -> Scorer:
        config.engine = dataclasses.replace(
            config.engine, name=fakes.REWARD_ENGINE, kwargs={"text": "7"}
        )
        found = resolve(
            config,
            device="cpu",
            shipped_functions=rig.ROOT / "reward_functions",
            trust_remote_code=False,
        )
        assert not found.problems, found.problems
        host = parts.fake_host()
        residency = Residency(lambda _: host, plan_engines(found.specs))
        return Scorer(
            found.specs,
            config,
            residency=residency,
            tokenizer=parts.always(tokenizer),
            rule_workers=1,
        )

    return made


def test_batches_have_no_response_in_common_and_close_as_many_gates_as_asked() -> None:
    texts = Solutions(PAIRS, "made up")
    first, second = texts.batch(10, "gated", closed=5), texts.batch(8, "all_asked", distinct=2)
    assert [row.prompt.ground_truth == WRONG for row in first] == [False, True] * 5
    assert not {row.text for row in first} & {row.text for row in second}
    assert len({row.text for row in second}) == 2
    assert first[0].prompt.ground_truth == "1"


def test_generated_solutions_end_in_their_own_answer(tmp_path: Path) -> None:
    texts = solutions(tmp_path / "missing.jsonl")
    row = texts.batch(1, "")[0]
    parts_of_sum = [
        int(word)
        for word in row.prompt.messages[-1]["content"].replace(",", " ").split()
        if word.isdigit()
    ]
    assert row.prompt.ground_truth == str(sum(parts_of_sum))


def test_both_sides_of_sharing_ask_the_same_of_one_engine(sizes: rig.Sizes, opened: Any) -> None:
    scorer = opened(sharing.config_of(sizes))
    rows = Solutions(PAIRS, "made up").batch(4, "two")
    same, tokens = sharing.compared_requests(scorer, rows)
    assert same
    assert tokens > 0
    assert len({spec.engine.key for spec in scorer.specs}) == 1


async def test_two_judges_load_their_engine_once(sizes: rig.Sizes, opened: Any) -> None:
    scorer, texts = opened(sharing.config_of(sizes)), Solutions(PAIRS, "made up")
    try:
        two = await rig.scored(scorer, texts.batch(4, "two"))
        union = await rig.scored(scorer, sharing.as_union(texts.batch(4, "two")))
    finally:
        await scorer.close()
    assert (two.loads, union.loads) == (1.0, 0.0)
    assert (rig.sent(two, "copies"), rig.sent(two, "checks")) == (4, 4)
    asked = [result.status for result in union.batch.scores.results[2]]
    assert asked == ["ok"] * 8


async def test_what_a_gate_and_duplicates_save_is_counted(sizes: rig.Sizes, opened: Any) -> None:
    scorer, texts = opened(savings.config_of(sizes)), Solutions(PAIRS, "made up")
    try:
        steps = {
            side: await rig.scored(scorer, savings._rows(side, 8, texts)) for side in savings.SIDES
        }
    finally:
        await scorer.close()
    requests = {side: savings._asked(side, step) for side, step in steps.items()}
    assert requests == {
        "all_asked": 8,
        "gate_0": 8,
        "gate_50": 4,
        "gate_90": 1,
        "duplicates_75": 2,
    }  # 90 % of 8 rows are 7


def test_parts_of_a_step_add_up() -> None:
    metrics = {
        "engine/a/load_s": 3.0,
        "engine/b/load_s": 1.0,
        "engine/a/loads": 1.0,
        "engine/b/loads": 1.0,
        "engine/a/wake_s": 0.5,
    }
    metrics |= {"engine/a/unload_s": 1.0, "engine/b/sleep_s": 0.5, "score/a/load_s": 99.0}
    nothing = np.zeros(0)
    batch = RewardBatch(
        scores=Scores(names=(), results=()),
        weights_C=nothing,
        rewards_B=nothing,
        keep_B=nothing,
        metrics=metrics,
    )
    step = rig.split(10.0, batch)
    assert (step.load_s, step.wake_s, step.put_away_s, step.score_s, step.loads) == (
        4.0,
        0.5,
        1.5,
        4.0,
        2.0,
    )


def test_sides_take_every_place() -> None:
    orders = [rig.in_turn(("a", "b"), number) for number in range(4)]
    assert orders == [["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"]]


def test_ratios_are_of_rounds_not_of_medians() -> None:
    found = rig.ratios([2.0, 9.0, 4.0], [1.0, 3.0, 4.0])
    assert (found["median"], found["min"], found["max"]) == (2.0, 1.0, 3.0)
    assert ratio(found) == "2 [1, 3]"


def test_agreement_counts_verdicts_and_texts() -> None:
    ours = [
        ScoreResult(value=1.0, raw_text="12"),
        ScoreResult(value=None, status="unparseable", raw_text="well ..."),
        ScoreResult(value=0.0, raw_text="13"),
    ]
    found = agreement(ours, [(1.0, "12"), (None, "well"), (1.0, "14")])
    assert found == {
        "rows": 3,
        "same_verdict": 2,
        "largest_difference": 1.0,
        "same_text": 1,
        "texts": 3,
    }
