"""`watch`: entries, the weight 0, and what may not depend on a watcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Resolved, resolve_rewards
from rmrl.rewards.entries.section import Surroundings
from rmrl.rewards.specs.spec import Watch

RULE = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shipped").mkdir()
    for name in ("weak", "truth"):
        (tmp_path / "shipped" / f"{name}.py").write_text(RULE, encoding="utf-8")
    return tmp_path


def resolve(folder: Path, watch: Any, **settings: Any) -> Resolved:
    specs = {"truth": {"watch": watch}} | settings.pop("specs", {})
    config = RewardConfig(**{"models": ["weak", "truth"], **settings}, specs=specs)
    around = Surroundings(device="cpu", threads=2, functions_dirs=[folder / "shipped"])
    return resolve_rewards(config, around)


def problem(folder: Path, watch: Any, **settings: Any) -> str:
    (sentence,) = resolve(folder, watch, **settings).problems
    return sentence


def test_a_watcher_has_the_weight_0_whether_or_not_it_is_typed(folder: Path) -> None:
    for weights in (None, [1.0, 0.0]):
        resolved = resolve(folder, {"rows": 0.05, "every": 10}, weights=weights)
        assert resolved.problems == []
        weak, truth = resolved.specs
        assert (weak.weight, weak.watch) == (1.0, None)
        assert (truth.weight, truth.watch) == (0.0, Watch(rows=0.05, every=10))
    assert "watched: 0.05 of the rows, every 10 steps, everywhere" in reward_table(resolved.specs)


def test_either_entry_may_be_left_out(folder: Path) -> None:
    assert resolve(folder, {"rows": 0.5}).specs[1].watch == Watch(rows=0.5, every=1)
    assert resolve(folder, {"every": 3}).specs[1].watch == Watch(rows=1.0, every=3)
    assert resolve(folder, {}).specs[1].watch == Watch()
    assert resolve(folder, None).specs[1].watch is None


def test_a_watcher_keeps_its_sources_with_the_weight_0(folder: Path) -> None:
    by_source = {"maths": {"models": ["weak", "truth"]}, "chat": {"models": ["weak"]}}
    resolved = resolve(folder, {"every": 2}, by_source=by_source)
    assert resolved.problems == []
    sources = resolved.specs[1].sources
    assert sources is not None
    # chat has no truth; any other source has it through reward.models
    assert dict(sources) == {"maths": 0.0}
    assert sources["elsewhere"] == 0.0
    assert "chat" not in sources


@pytest.mark.parametrize(
    ("watch", "sentence"),
    [
        (True, "watch=True: give entries, e.g. reward.specs.truth.watch.rows=0.05"),
        ({"rows": 0}, "watch.rows=0: give a number above 0 and at most 1"),
        ({"rows": 1.5}, "watch.rows=1.5: give a number above 0 and at most 1"),
        ({"every": 0}, "watch.every=0: give at least 1"),
        ({"every": 2.5}, "watch.every=2.5: give a whole number"),
        ({"row": 0.1}, "watch.row: no such entry"),
    ],
)
def test_entries_that_cannot_be(folder: Path, watch: Any, sentence: str) -> None:
    assert sentence in problem(folder, watch)


def test_a_weight_besides_0_is_refused(folder: Path) -> None:
    assert problem(folder, {"every": 2}, weights=[1.0, 0.5]) == (
        "reward.weights gives truth the weight 0.5, and reward.specs.truth.watch makes it a watcher,"
        " which is not asked about every response: give it the weight 0, or leave watch out"
    )
    by_source = {"maths": {"models": ["weak", "truth"], "weights": [1, 2]}}
    assert "reward.by_source.maths.weights gives truth the weight 2" in problem(
        folder, {"every": 2}, by_source=by_source
    )
    schedules = {"truth": [[0, 0.0], [10, 1.0]]}
    assert "leave out reward.weight_schedules.truth" in problem(
        folder, {"every": 2}, weight_schedules=schedules
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"specs": {"weak": {"gate": "truth"}}},
        {"specs": {"weak": {"counts_at": {"truth": 1}}}},
        {"combine": "gate", "gates": ["truth"]},
        {
            "models": ["truth", "panel"],
            "specs": {"panel": {"kind": "ensemble", "of": ["truth", "weak"]}},
        },
    ],
)
def test_nothing_that_counts_may_need_a_watcher(folder: Path, settings: dict[str, Any]) -> None:
    assert "depends on the score of truth on every row" in problem(folder, {}, **settings)


def test_an_ensemble_and_its_parts_are_no_watchers(folder: Path) -> None:
    panel = {"kind": "ensemble", "of": ["truth", "weak"]}
    assert problem(folder, {}, models=["panel"], specs={"panel": panel}) == (
        "reward.specs.truth.watch: the score of panel needs it on every row; leave watch out"
    )
    specs = {"panel": {**panel, "watch": {}}}
    assert "panel is computed from the scores of its members" in problem(
        folder, None, models=["panel"], specs=specs
    )
