"""Criteria in the forms of data sets and of other projects, field names as they have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.kinds.rubric.criteria import NO_YES, CriteriaError, Criterion
from rmrl.rewards.kinds.rubric.find_criteria import configured_criteria, read_criteria
from rmrl.rewards.kinds.rubric.forms import FORMS

LIKERT = (("1", 0.0), ("2", 0.25), ("3", 0.5), ("4", 0.75), ("5", 1.0))

EXAMPLES: dict[str, tuple[Any, tuple[Criterion, ...]]] = {
    "own": (
        [
            {"text": "Correct.", "weight": 3, "must_have": True, "name": "correct"},
            {"text": "Padded.", "weight": -1, "choices": ["No", "Somewhat", "Yes"]},
            {"text": "Kind.", "choices": {"Rude": 0, "Kind": 1, "Neutral": 0.6}, "tags": ["tone"]},
        ],
        (
            Criterion(text="Correct.", weight=3.0, must_have=True, name="correct"),
            Criterion(
                text="Padded.", weight=-1.0, choices=(("No", 0.0), ("Somewhat", 0.5), ("Yes", 1.0))
            ),
            Criterion(
                text="Kind.",
                choices=(("Rude", 0.0), ("Neutral", 0.6), ("Kind", 1.0)),
                tags=("tone",),
            ),
        ),
    ),
    "texts": (
        ["It is short.", " It is true. "],
        (Criterion(text="It is short."), Criterion(text="It is true.")),
    ),
    "healthbench": (
        [
            {"criterion": "Advises to call a doctor", "points": 7, "tags": ["level:example", "axis:accuracy"]},
            {"criterion": "Fails to ask for the age", "points": -5, "tags": ["axis:context_awareness"]},
        ],
        (
            Criterion(text="Advises to call a doctor", weight=7.0, tags=("level:example", "axis:accuracy")),
            Criterion(text="Fails to ask for the age", weight=-5.0, tags=("axis:context_awareness",)),
        ),
    ),
    "open_instruct": (
        {
            "query": "What is the capital of France?",
            "rubrics": [
                {"description": "Names Paris", "weight": 1.0, "title": "Capital"},
                {"rubric_item": "Is long-winded", "weight": -1.0},
                {"Ingredient": "Says where Paris is"},
            ],
            "rubrics_types": ["persistent", "evolving", "evolving"],
        },
        (
            Criterion(text="Names Paris", name="Capital"),
            Criterion(text="Is long-winded", weight=-1.0),
            Criterion(text="Says where Paris is"),
        ),
    ),
    "verifiers": (
        {
            "criteria": [
                {"name": "cites", "text": "Claims have sources", "weight": 2.0},
                {"name": "style", "text": "Reads well", "choices": ["poor", "fair", "good"]},
            ]
        },
        (
            Criterion(text="Claims have sources", name="cites", weight=2.0, choices=(("no", 0.0), ("yes", 1.0))),
            Criterion(text="Reads well", name="style", choices=(("poor", 0.0), ("fair", 0.5), ("good", 1.0))),
        ),
    ),
    "harbor": (
        {
            "judge": {"judge": "anthropic/claude-sonnet-4-6", "files": ["/app/main.py"]},
            "criterion": [
                {"description": "Is the code correct?", "type": "binary", "name": "correct"},
                {"description": "How readable is it?", "type": "likert", "points": 5, "weight": 2.0},
                {"description": "Does it leak the key?", "type": "binary", "negate": True},
                {"description": "Tests from 0 to 2", "type": "numeric", "min": 0, "max": 2, "optional": True},
            ],
            "scoring": {"aggregation": "weighted_mean"},
        },
        (
            Criterion(text="Is the code correct?", name="correct", choices=(("no", 0.0), ("yes", 1.0))),
            Criterion(text="How readable is it?", weight=2.0, choices=LIKERT),
            Criterion(text="Does it leak the key?", choices=(("no", 1.0), ("yes", 0.0))),
            Criterion(text="Tests from 0 to 2", choices=(("0", 0.0), ("1", 0.5), ("2", 1.0)), optional=True),
        ),
    ),
}  # fmt: skip


def test_every_form_has_an_example() -> None:
    assert set(EXAMPLES) == set(FORMS)


@pytest.mark.parametrize("form", EXAMPLES)
def test_a_form_is_found_by_its_fields_and_read(form: str) -> None:
    document, criteria = EXAMPLES[form]
    assert read_criteria(document, where="rubrics") == criteria
    assert read_criteria(document, where="rubrics", form=form) == criteria
    assert read_criteria(json.dumps(document), where="rubrics") == criteria


def test_answers_with_values_go_from_not_at_all_to_fully() -> None:
    def answers(choices: Any) -> list[str]:
        (criterion,) = read_criteria([{"text": "a", "choices": choices}], where="r")
        return [text for text, _ in criterion.choices]

    assert answers({"good": 1, "poor": 0, "fair": 0.5}) == ["poor", "fair", "good"]
    assert answers({"b": 0.5, "a": 0.5, "c": 0}) == ["c", "b", "a"]  # equal ones as they stand
    # No is worth more than Yes: the criterion still holds fully with Yes
    assert answers({"Yes": 0, "Partly": 0.5, "No": 1}) == ["No", "Partly", "Yes"]
    assert answers({"Yes": 1, "No": 0}) == ["No", "Yes"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_plain_text_stands_among_objects_with_fields(turned: bool) -> None:
    entries: list[Any] = ["It is right.", {"text": "It is rude.", "weight": -2}]
    if turned:
        entries.reverse()
    criteria = sorted(read_criteria(entries, where="c"), key=lambda each: each.weight)
    assert criteria == [
        Criterion(text="It is rude.", weight=-2.0),
        Criterion(text="It is right."),
    ]
    # Another form's entries all have its fields.
    with pytest.raises(CriteriaError, match=r"c\[1\]"):
        read_criteria([{"criterion": "It is right.", "points": 5, "tags": []}, "kind"], where="c")


def test_a_list_of_json_texts_is_a_list_of_objects() -> None:
    objects = [
        {"criterion": "It {is} right.", "points": 2},
        {"criterion": "It cites.", "points": 1},
    ]
    texts = list(map(json.dumps, objects))
    expected = read_criteria(objects, where="r")
    assert [criterion.weight for criterion in expected] == [2.0, 1.0]
    assert read_criteria(texts, where="r") == expected
    assert read_criteria(np.array(texts, dtype=object), where="r") == expected
    assert read_criteria(json.dumps(texts), where="r") == expected
    with pytest.raises(CriteriaError, match="r: some entries are JSON texts of objects and others"):
        read_criteria([*texts, "It is short."], where="r")
    braces = read_criteria(["{x} is named.", "It is short."], where="r")
    assert [criterion.text for criterion in braces] == ["{x} is named.", "It is short."]


@pytest.mark.parametrize(
    "entry",
    [
        {"text": "a \ud83d"},
        {"text": "a", "name": "\ud83d"},
        {"text": "a", "tags": ["\ud83d"]},
        {"text": "a", "choices": ["N", "\ud83d"]},
    ],
)
def test_half_of_a_letter_is_refused_in_a_sentence_that_files_take(entry: Any) -> None:
    with pytest.raises(CriteriaError, match=r"r\[0\]\..*half of a letter") as error:
        read_criteria(json.dumps([entry]), where="r")
    assert str(error.value).isascii()
    with pytest.raises(CriteriaError) as error:
        read_criteria([{"\ud83d": "a"}], where="r")
    assert "its fields: \\ud83d" in str(error.value)


def test_a_form_of_ones_own_is_named_by_its_path() -> None:
    path = "rmrl.rewards.kinds.rubric.forms.own:FORM"
    document = {"criteria": [{"text": "a", "name": "n"}]}  # without a form: that of verifiers
    assert read_criteria(document, where="r", form=path)[0].choices == NO_YES
    assert read_criteria(document, where="r")[0].choices == (("no", 0.0), ("yes", 1.0))


def test_columns_of_tables_fill_up_with_nulls_and_arrays() -> None:
    """A parquet file's list of structs has every field in every entry, and pandas makes arrays."""
    rows = np.array(
        [
            {"text": "a", "weight": None, "choices": None, "tags": np.array(["x"], dtype=object)},
            {"text": "b", "weight": 2.0, "choices": np.array(["N", "Y"]), "tags": None},
        ],
        dtype=object,
    )
    assert read_criteria(rows, where="rubrics") == (
        Criterion(text="a", tags=("x",)),
        Criterion(text="b", weight=2.0, choices=(("N", 0.0), ("Y", 1.0))),
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("no json", "r is text that is no JSON"),
        (7, "r=7: give a list of criteria"),
        ([], "r is an empty list: give at least one"),
        ([3], "r[0]=3: give text, or the fields"),
        ([""], "r[0]: no text in the text"),
        (["fine", {"text": " "}], "r[1]"),
        ([{"text": "a", "weight": "much"}], "r[0].weight='much': give a finite number"),
        ([{"text": "a", "weight": float("nan")}], "r[0].weight=nan: give a finite number"),
        ([{"text": "a", "wieght": 2}], "r[0].wieght: no such field; did you mean 'weight'?"),
        ([{"text": "a", "choices": ["Yes"]}], "r[0].choices=['Yes']: give at least two answers"),
        ([{"text": "a", "choices": ["A", "A"]}], "all different"),
        ([{"text": "a", "choices": [False, True]}], "False is no text; quote the answer"),
        ([{"text": "a", "choices": {"A": 0, "B": 2}}], "r[0].choices.B=2: give a number from 0"),
        ([{"text": "a", "choices": "A"}], "r[0].choices='A': give answers from the worst"),
        ([{"text": "a", "must_have": "yes"}], "r[0].must_have='yes': give true or false"),
        ([{"text": "a", "tags": "x"}], "r[0].tags='x': give a list of texts"),
        ([{"text": 5}], "r[0].text=5: give text"),
        ([{"criterion": "a"}], "r[0] has no points"),
        ([{"score": 1}], "r[0] is of no known form (its fields: score)"),
        ({"query": "q"}, "r is an object with query: give its list of criteria as criteria or"),
        ({"criteria": [{"name": "n", "text": "t", "weight": -1}]}, "no weights below 0"),
        ({"criterion": [{"description": "d", "type": "yes/no"}]}, "not a type; known: binary"),
        ({"criterion": [{"description": "d", "type": "numeric", "min": 0, "max": 100}]}, "one token"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_names_the_entry(document: Any, words: str) -> None:
    with pytest.raises(CriteriaError) as error:
        read_criteria(document, where="r")
    assert words in str(error.value)


def test_files(tmp_path: Path) -> None:
    toml = tmp_path / "quality.toml"
    toml.write_text(
        '[judge]\njudge = "anthropic/claude-sonnet-4-6"\nfiles = ["/app/main.py"]\n\n'
        '[[criterion]]\ndescription = "Is the code correct?"\ntype = "binary"\n\n'
        '[[criterion]]\ndescription = "How readable is the code?"\ntype = "likert"\npoints = 5\n'
        "weight = 2.0\n",
        encoding="utf-8",
    )
    first, second = configured_criteria(str(toml), where="criteria")
    assert (first.text, first.choices) == ("Is the code correct?", (("no", 0.0), ("yes", 1.0)))
    assert (second.weight, second.choices) == (2.0, LIKERT)
    text = tmp_path / "list.yaml"
    text.write_text("- {text: It is short.}\n- {text: It is true., weight: 2}\n", encoding="utf-8")
    assert configured_criteria(str(text), where="criteria", form="own")[1].weight == 2.0
    assert configured_criteria(None, where="criteria") == ()
    with pytest.raises(CriteriaError, match=r"ends in \.toml, \.json"):
        configured_criteria("It is short.", where="criteria")
    with pytest.raises(CriteriaError, match="cannot be read"):
        configured_criteria(str(tmp_path / "none.json"), where="criteria")


def test_a_fault_passes_where_it_does_not_hold() -> None:
    good = Criterion(text="a")
    fault = Criterion(text="a", weight=-2)
    assert good.choices == NO_YES
    assert [good.passes(value, 0.5) for value in (0.49, 0.5)] == [False, True]
    assert [fault.passes(value, 0.5) for value in (0.49, 0.5)] == [True, False]
