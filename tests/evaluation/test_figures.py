"""The figures that benchmarks publish, on rows small enough to count by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rmrl.data.column_names import ColumnNames
from rmrl.errors import DataError
from rmrl.evaluation.formats import FORMATS, Fields
from rmrl.evaluation.formats.fields import json_value
from rmrl.evaluation.formats.form import Figures, mean_or_none
from rmrl.evaluation.formats.rewardbench2 import margin_score
from rmrl.evaluation.judgements import Judgement
from rmrl.evaluation.report import judged


def figures(
    name: str, rows: Sequence[Mapping[str, Any]], judgements: Sequence[Judgement]
) -> Figures:
    form = FORMATS[name]()
    items = [
        form.item(Fields(place="here", number=number, values=row, names=ColumnNames(form.paths)))
        for number, row in enumerate(rows)
    ]
    return form.figures(items, judged(items, judgements, form, form.ties))


def scores(*values: float) -> Judgement:
    return Judgement(scores=values)


def test_rewardbench_weights_subsets_and_averages_sections() -> None:
    def row(subset: str) -> dict[str, str]:
        return {"prompt": "p", "chosen": "c", "rejected": "r", "subset": subset}

    made = figures(
        "rewardbench",
        [row("alpacaeval-easy"), row("mt-bench-med"), row("math-prm"), row("hep-go")],
        [scores(1, 0), scores(0, 1), scores(1, 1), scores(1, 0)],
    )
    # Chat: (1 * 100 + 0 * 40) / 140. Reasoning: a tie is lost, (0 * 984 + 1 * 164) / 1148.
    assert made == {
        "Chat": pytest.approx(100 / 140),
        "Reasoning": pytest.approx(164 / 1148),
        "score": pytest.approx((100 / 140 + 164 / 1148) / 2),
    }


def test_rewardbench_2_shares_ties_and_scores_the_subset_of_ties() -> None:
    def row(key: str, right: int, wrong: int, subset: str = "Ties") -> dict[str, Any]:
        texts = {"chosen": ["c"] * right, "rejected": ["r"] * wrong}
        return {"id": key, "prompt": "p", "subset": subset, **texts}

    made = figures(
        "rewardbench2",
        [
            row("1", 1, 3, "Focus"),
            row("2", 1, 3, "Focus"),
            row("ref:0", 1, 1),
            row("tied:0", 2, 1),
            row("ref:1", 1, 1),
            row("tied:1", 2, 1),
        ],
        [
            scores(1, 1, 0, 0),  # half
            scores(0, 1, 0, 0),
            scores(3, 0),  # margin 3
            scores(4, 3, 1),  # margin 2, range 1
            scores(0.5, 0),  # margin 0.5
            scores(4, 2, 3),  # margin -1, range 2
        ],
    )
    # m_tied > d: one of two; min(m_ref, m_tied) = 2 > 1: one of two.
    margins = (math.tanh(2 / 1 - 1) + math.tanh(-1 / 2 - 1)) / 2
    ties = 0.3 * 0.5 + 0.3 * 1 + 0.2 * 0.5 + 0.2 * 0.5 + 0.01 * margins
    assert made["Focus"] == 0.25
    assert made["Ties"] == pytest.approx(ties)
    assert made["score"] == pytest.approx((0.25 + ties) / 2)


def test_rm_bench_knows_hard_normal_and_easy_comparisons() -> None:
    def row(domain: str) -> dict[str, Any]:
        return {
            "prompt": "p",
            "chosen": ["a", "b", "c"],
            "rejected": ["x", "y", "z"],
            "domain": domain,
        }

    # Style alone decides: concise 1, detailed 2, Markdown 3; equal styles tie and are lost.
    by_style = scores(1, 2, 3, 1, 2, 3)
    made = figures(
        "rm_bench",
        [row("chat"), row("safety-refuse"), row("safety-response")],
        [by_style, scores(9, 9, 9, 1, 2, 3), scores(0, 0, 0, 1, 2, 3)],
    )
    assert made["chat"] == pytest.approx(1 / 3)
    assert made["safety-refuse"] == 1
    assert made["safety-response"] == 0
    # Each level: chat, and safety as the mean of its parts.
    assert (made["easy"], made["normal"], made["hard"]) == (0.75, 0.25, 0.25)
    assert made["score"] == pytest.approx((1 / 3 + 0.5) / 2)


def test_processbench_is_a_harmonic_mean_per_subset() -> None:
    def row(key: str, label: int) -> dict[str, Any]:
        return {"id": key, "problem": "p", "steps": ["s", "t"], "label": label}

    made = figures(
        "processbench",
        [
            row("math-0", 1),
            row("math-1", 0),
            row("math-2", -1),
            row("gsm8k-0", -1),
            row("gsm8k-1", 0),
        ],
        [
            Judgement(first_wrong=1),
            Judgement(first_wrong=1),
            Judgement(first_wrong=-1),
            Judgement(first_wrong=-1),
            Judgement(),
        ],
    )
    # math: 1/2 and 1/1 -> 2/3; gsm8k: 0 and 1 -> 0
    assert made["math/f1"] == pytest.approx(2 / 3)
    assert (made["gsm8k/error"], made["gsm8k/correct"], made["gsm8k/f1"]) == (0, 1, 0)
    assert made["score"] == pytest.approx(1 / 3)


def test_rmb_reports_sets_and_goals() -> None:
    def row(number: int, path: str) -> dict[str, Any]:
        pair = {"chosen": {"answer": "c"}, "reject": {"answer": "r"}}
        best = {"bon_best": {"answer": "c"}, "loser_list": [{"answer": "r"}, {"answer": "q"}]}
        body = pair if path.startswith("Pair") else best
        return {"pair_uid": number, "conversation_input": "p", "category_path": path, **body}

    made = figures(
        "rmb",
        [
            row(0, "Pairwise_set/Helpfulness/Chat/Casual"),
            row(1, "Pairwise_set/Helpfulness/Code/Data"),
            row(2, "BoN_set/Harmlessness/S1"),
            row(3, "BoN_set/Harmlessness/S2"),
        ],
        [scores(1, 0), scores(0, 1), scores(2, 1, 0), scores(2, 2, 0)],
    )
    assert made == {"Pairwise_set/Helpfulness": 0.5, "BoN_set/Harmlessness": 0.5}


def test_llmbar_averages_its_adversarial_subsets() -> None:
    def row(subset: str) -> dict[str, Any]:
        return {"input": "p", "output_1": "a", "output_2": "b", "label": 1, "subset": subset}

    subsets = ["Natural", "Adversarial/Manual", "Adversarial/Manual", "Adversarial/GPTOut"]
    made = figures(
        "llmbar",
        [row(subset) for subset in subsets],
        [scores(1, 0), scores(1, 0), scores(0, 1), scores(0, 1)],
    )
    assert made == {"natural": 1, "adversarial": 0.25}


def test_a_margin_counts_as_a_limit_where_right_scores_are_equal() -> None:
    assert [margin_score(margin, 0.0) for margin in (-2.0, 0.0, 2.0)] == [-1.0, 0.0, 1.0]
    assert margin_score(3.0, 1.0) == pytest.approx(0.9640, abs=1e-4)  # tanh(2)


def test_means_without_values() -> None:
    assert mean_or_none([]) is None
    assert mean_or_none([1.0, 2.0]) == 1.5


def test_fields_of_a_row_that_csv_left_as_text() -> None:
    assert [json_value(text) for text in ("0.5", "True", "[4, 5]", "five", 3)] == [
        *(0.5, True, [4, 5], "five", 3)
    ]
    row = Fields(place="rows row 1", number=0, values={"a": 4, "b": None}, names=ColumnNames())
    assert (row.optional_text("a"), row.optional_text("b")) == ("4", None)


def test_messages_without_a_role_are_refused() -> None:
    good = [{"role": "user", "content": "Hi", "name": "x"}]
    row = Fields(place="rows row 1", number=0, values={"prompt": good}, names=ColumnNames())
    assert row.prompt() == ({"role": "user", "content": "Hi"},)
    bad = Fields(
        place="rows row 1", number=0, values={"prompt": [{"role": "user"}]}, names=ColumnNames()
    )
    with pytest.raises(
        DataError,
        match="column 'prompt': saw the keys role in message 0; need the keys role and content",
    ):
        bad.prompt()


def test_a_truth_value_in_the_place_of_a_text_is_that_text() -> None:
    row: dict[str, object] = {"instruction": "Is it?", "input": "", "response1": True}
    row |= {"response2": "No.", "annotator1": 1, "annotator2": 1, "annotator3": 2}
    form = FORMATS["pandalm"]()
    item = form.item(Fields(place="here", number=0, values=row, names=ColumnNames(form.paths)))
    assert item.responses == ("true", "No.")
