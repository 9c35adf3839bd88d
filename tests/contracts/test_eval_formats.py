"""What every format of `rmrl eval` must hold, over all names of the table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmrl.config.schema import BenchmarkConfig, EvalConfig
from rmrl.errors import DataError
from rmrl.evaluation.check_eval import eval_problems, name_format
from rmrl.evaluation.formats import FORMATS
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement
from rmrl.evaluation.read_items import formats_of, read_items
from rmrl.evaluation.report import evaluate
from tests.evaluation.benchmark_rows import LABELS, ROWS
from tests.inputs import write_lines


@pytest.fixture(params=list(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def items_of(name: str, folder: Path, *, needs_texts: bool = True) -> list[Item]:
    path = write_lines(folder / "rows.jsonl", ROWS[name])
    return read_items(str(path), FORMATS[name](), {}, needs_texts=needs_texts)


def knowing(item: Item, *, right: bool) -> Judgement:
    """A judge that knows the label and follows it, or does the opposite."""
    if item.first_wrong is not None:
        return Judgement(first_wrong=item.first_wrong if right else len(item.steps) + 5)
    if item.values:
        return Judgement(scores=tuple(value if right else -value for value in item.values))
    good = frozenset().union(*(comparison.good for comparison in item.comparisons))
    scores = [float((number in good) == right) for number in range(len(item.responses))]
    if not good and not right:  # the label is a tie
        scores[0] += 1
    return Judgement(scores=tuple(scores))


def figures_of(name: str, items: Sequence[Item], judgements: Sequence[Judgement]) -> dict:
    form = FORMATS[name]()
    settings = BenchmarkConfig(format=name)
    made = evaluate(items, {"judge": judgements}, form=form, ties=form.ties, settings=settings)
    return made.numbers["judges"]["judge"]


def test_a_row_becomes_an_item_with_labels_on_its_own_responses(name: str, tmp_path: Path) -> None:
    items = items_of(name, tmp_path)
    assert len(items) == len(ROWS[name])
    assert len({item.id for item in items}) == len(items)
    for item in items:
        assert item.prompt
        assert all(item.responses)
        assert bool(item.comparisons) + bool(item.values) + (item.first_wrong is not None) == 1
        for comparison in item.comparisons:
            assert set(comparison.candidates) <= set(range(len(item.responses)))
            assert comparison.good < set(comparison.candidates)


def test_who_names_no_format_gets_the_one_that_fits(name: str, tmp_path: Path) -> None:
    """RewardBench's and LLMBar's rows are pairs as well."""
    config = EvalConfig()
    config.data.files = str(write_lines(tmp_path / "rows.jsonl", ROWS[name][:1]))
    problem = next(eval_problems(config))
    found = problem.partition("eval.format=")[2].partition(";")[0].split(" or ")
    assert name in found
    assert set(found) <= {name, "pairs"}
    name_format(config)
    assert config.eval.format == (name if found == [name] else None)


def test_formats_are_looked_for_under_the_names_of_columns(tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "rows.jsonl", [{"asked": "p", "chosen": "a", "rejected": "b"}])
    assert formats_of(str(rows), {}) == []
    assert formats_of(str(rows), {"prompt": "asked"}) == ["hhh", "pairs"]


def test_no_format_fits_other_rows(tmp_path: Path) -> None:
    config = EvalConfig()
    for files in (str(write_lines(tmp_path / "rows.jsonl", [{"a": 1}])), "nowhere.jsonl", None):
        config.data.files = files
        assert next(eval_problems(config)).startswith("eval.format is empty: give the layout of")


def test_a_judge_that_knows_the_labels_is_always_right(name: str, tmp_path: Path) -> None:
    items = items_of(name, tmp_path)
    numbers = figures_of(name, items, [knowing(item, right=True) for item in items])
    if name in ("absolute", "traces"):
        assert numbers["values"]["pearson"] == pytest.approx(1)
        return
    assert numbers["accuracy"]["value"] == 1
    assert numbers["missing"] == 0
    for figure, value in numbers["figures"].items():
        assert value is None or 0 <= value <= 1.01, figure
    assert numbers["figures"].get("score") in (None, pytest.approx(1, abs=0.011))


def test_a_judge_that_does_the_opposite_is_never_right(name: str, tmp_path: Path) -> None:
    items = items_of(name, tmp_path)
    numbers = figures_of(name, items, [knowing(item, right=False) for item in items])
    if name in ("absolute", "traces"):
        assert numbers["values"]["pearson"] == pytest.approx(-1)
        return
    assert numbers["accuracy"]["value"] == 0


def test_a_missing_verdict_is_no_number(name: str, tmp_path: Path) -> None:
    items = items_of(name, tmp_path)
    numbers = figures_of(name, items, [Judgement()] * len(items))
    if name in ("absolute", "traces"):
        assert numbers["values"]["count"] == 0
        assert numbers["values"]["missing"] == sum(len(item.values) for item in items)
        return
    assert numbers["accuracy"]["value"] == 0
    assert numbers["missing"] == numbers["verdicts"]


def test_a_row_without_its_label_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "x", "prompt": "q"}) + "\n")
    with pytest.raises(DataError, match=r"rows.jsonl row 0 .* need '"):
        read_items(str(path), FORMATS[name](), {})


def test_labels_are_enough_where_judgements_are_recorded(name: str, tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key in LABELS} for row in ROWS[name]]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    items = read_items(str(path), FORMATS[name](), {}, needs_texts=False)
    whole = items_of(name, tmp_path)
    labels = [(item.comparisons, item.values, item.first_wrong) for item in items]
    assert labels == [(item.comparisons, item.values, item.first_wrong) for item in whole]


def test_the_source_of_the_layout_is_named(name: str) -> None:
    form = FORMATS[name]
    assert form.source.startswith(("https://", "docs/"))
    assert form.__doc__
    assert not dataclasses.is_dataclass(form)


@pytest.mark.parametrize(
    "pairs", [[[0, 2]], [[0, 4]], [[0]], ["01"], [[True, 1.5]], 5, "01", {"0": 1}]
)
def test_ppes_pairs_are_of_a_right_and_a_wrong_response(tmp_path: Path, pairs: object) -> None:
    row = {**ROWS["ppe"][0], "sampled_conflict_pairs": pairs}
    path = write_lines(tmp_path / "rows.jsonl", [row])
    with pytest.raises(DataError, match="need pairs of a right and a wrong response"):
        read_items(str(path), FORMATS["ppe"](), {})
