"""Watchers in a scorer: what they cost, what they see, and that no reward depends on them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.offline.show import show
from rmrl.rewards.session.draw import Draw
from rmrl.rewards.session.order import graph_of
from rmrl.rewards.specs.spec import RewardSpec, Watch
from tests.rewards.parts import calls, engine, judge, make_scorer, rows, rule, scalar

RECORDING = engine(name="tests.rewards.parts:RecordingEngine", kwargs={"text": "7"})
MANY = rows(*(f"answer {i}" for i in range(200)), group_size=4)


def watching(folder: Path, **watch: Any) -> RewardSpec:
    """A judge on an engine of its own. Its drop-in compares nothing, so rows are rendered as they
    come."""
    spec = judge(folder, "truth", engine=RECORDING, weight=0.0, watch=Watch(**watch))
    assert spec.dropin is not None
    return dataclasses.replace(spec, dropin=dataclasses.replace(spec.dropin, preprocess=None))


async def scored(specs: list[RewardSpec], tokenizer: Any, draw: Draw, **settings: Any) -> Any:
    calls.clear()
    scorer = make_scorer(specs, tokenizer, **settings)
    try:
        batch = await scorer.score(MANY, step=draw.step, draw=draw)
        return batch, dict(scorer.residency.states)
    finally:
        await scorer.close()


def reached() -> int:
    return sum(len(requests) for _, requests in calls)


async def test_a_step_in_between_loads_no_engine(tmp_path: Path, tokenizer: Any) -> None:
    specs = [rule(tmp_path, "weak", "return 1"), watching(tmp_path, every=10)]
    batch, states = await scored(specs, tokenizer, Draw(step=9))
    assert states == {"truth": "unloaded"}
    assert calls == []
    assert set(batch.scores.status_BC[:, 1]) == {"skipped"}
    assert batch.rewards_B.tolist() == [1.0] * 200
    batch, states = await scored(specs, tokenizer, Draw(step=10))
    assert states == {"truth": "awake"}
    assert reached() == 200


async def test_only_the_drawn_rows_are_asked_about(tmp_path: Path, tokenizer: Any) -> None:
    specs = [rule(tmp_path, "weak", "return 1"), watching(tmp_path, rows=0.1)]
    draw = Draw(seed=1, step=3)
    batch, _ = await scored(specs, tokenizer, draw)
    drawn = [draw.skipped(specs[1].watch, row, whole_groups=False) is None for row in MANY]
    assert 5 <= sum(drawn) <= 40  # 20 expected, standard deviation 4.2
    assert reached() == sum(drawn)
    statuses = ["ok" if each else "skipped" for each in drawn]
    assert batch.scores.status_BC[:, 1].tolist() == statuses
    assert batch.keep_B.all()
    assert batch.rewards_B.tolist() == [1.0] * 200
    assert "it watches 0.1 of the rows" in batch.scores.results[1][drawn.index(False)].detail


async def test_responses_that_stream_are_drawn_alike(tmp_path: Path, tokenizer: Any) -> None:
    specs = [
        dataclasses.replace(rule(tmp_path, "truth", "return 1", weight=0.0), watch=Watch(rows=0.2)),
        rule(tmp_path, "weak", "return 1"),
    ]
    draw = Draw(step=5)
    whole, _ = await scored(specs, tokenizer, draw)
    scorer = make_scorer(specs, tokenizer)
    try:
        async with scorer.streaming(draw) as session:
            for position in np.random.default_rng(0).permutation(len(MANY)).tolist():
                session.add(position, MANY[position])
            streamed = await scorer.finish(session)
    finally:
        await scorer.close()
    assert streamed.scores.status_BC.tolist() == whole.scores.status_BC.tolist()
    assert 20 <= (whole.scores.status_BC[:, 0] == "ok").sum() <= 60


async def test_a_transform_by_group_draws_whole_groups(tmp_path: Path, tokenizer: Any) -> None:
    truth = rule(
        tmp_path,
        "truth",
        "return len(solution_str)",
        weight=0.0,
        transforms=({"kind": "standardize", "by": "group"},),
        watch=Watch(rows=0.3),
    )
    batch, _ = await scored([rule(tmp_path, "weak", "return 1"), truth], tokenizer, Draw(step=1))
    asked_PG = (batch.scores.status_BC[:, 1] == "ok").reshape(50, 4)
    assert (asked_PG.all(axis=1) | ~asked_PG.any(axis=1)).all()
    assert 5 <= asked_PG.all(axis=1).sum() <= 27  # 15 of 50 expected


def test_what_is_drawn_in_groups() -> None:
    watch = Watch(rows=0.5)
    specs = [
        scalar("one", watch=watch),
        scalar("by_group", watch=watch, transforms=({"kind": "rank"},)),
        scalar("by_batch", watch=watch, transforms=({"kind": "rank", "by": "batch"},)),
        dataclasses.replace(scalar("lists", watch=watch), whole_groups=True),
        scalar("no_watcher", transforms=({"kind": "rank"},)),
    ]
    assert graph_of(specs, how="weighted_sum").drawn_in_groups == {1, 3}


async def test_a_watcher_sees_what_a_product_rejects(tmp_path: Path, tokenizer: Any) -> None:
    specs = [rule(tmp_path, "weak", "return 0"), watching(tmp_path)]
    batch, _ = await scored(specs, tokenizer, Draw(step=1), combine="product")
    assert reached() == 200
    assert batch.rewards_B.tolist() == [0.0] * 200


async def test_validation_and_baselines(tmp_path: Path, tokenizer: Any) -> None:
    def specs(*, validation: bool) -> list[RewardSpec]:
        spec = watching(tmp_path, rows=0.05, every=7, validation=validation)
        return [rule(tmp_path, "weak", "return 1"), spec]

    await scored(specs(validation=False), tokenizer, Draw(step=7, rows="validation"))
    assert reached() == 0
    await scored(specs(validation=True), tokenizer, Draw(step=5, rows="validation"))
    assert reached() == 200
    await scored(specs(validation=True), tokenizer, Draw(step=7, rows="none"))
    assert reached() == 0


async def test_a_check_asks_about_every_row(tmp_path: Path, tokenizer: Any) -> None:
    specs = [rule(tmp_path, "weak", "return 1"), watching(tmp_path, rows=0.001, every=1000)]
    scorer = make_scorer(specs, tokenizer)
    try:
        text = await show(scorer, MANY[:3])
    finally:
        await scorer.close()
    assert text.count("--- truth (generative, weight 0)") == 3
    assert text.count("score: 7\n") == 3
