"""A head's logits become the values of its labels, and those a score."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import yaml

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import LabelOutput
from rmrl.models.label_head import LabelHead
from rmrl.rewards.kinds.bradley_terry.reward import BradleyTerryReward
from rmrl.rewards.specs.labels import activated, reading_of
from tests.rewards.parts import problems_of

FIVE = LabelHead(("helpful", "correct", "coherent", "complex", "verbose"), "regression")


def read(
    head: LabelHead, logits: tuple[float, ...], label: Any = None, **entries: Any
) -> tuple[float, dict[str, Any]]:
    entries = {"weights": {}, "activation": "auto"} | entries
    reading = reading_of(head, label, entries["weights"], activation=entries["activation"])
    assert reading is not None
    output = reading.score(LabelOutput(logits, 7))
    assert output.tokens_in == 7
    return output.value, dict(output.extra)


def test_a_regression_head_gives_its_raw_outputs() -> None:
    logits = (1.5, -2.0, 0.25, 4.0, 3.0)
    score, labels = read(FIVE, logits, "correct")
    assert score == -2.0
    assert labels == dict(zip(FIVE.names, logits, strict=True))
    # 0.5 * 1.5 + 1 * -2 - 0.1 * 3 = -1.55
    score, _ = read(FIVE, logits, weights={"helpful": 0.5, 1: 1, "verbose": -0.1})
    assert score == pytest.approx(-1.55, abs=1e-12)


def test_single_label_classes_share_one_softmax() -> None:
    head = LabelHead(("no", "yes"))
    # e^0 / (e^0 + e^ln 3) = 1/4
    score, labels = read(head, (0.0, math.log(3)), "no")
    assert score == pytest.approx(0.25)
    assert labels["yes"] == pytest.approx(0.75)
    assert read(head, (1000.0, -1000.0), 1)[0] == 0.0


def test_labels_that_hold_together_have_a_sigmoid_each() -> None:
    head = LabelHead(("toxic", "insult"), "multi_label_classification")
    score, labels = read(head, (math.log(3), -1000.0), "toxic")
    assert score == pytest.approx(0.75)  # 1 / (1 + 1/3)
    assert labels["insult"] == 0.0
    assert read(head, (1000.0, 0.0), "toxic")[0] == 1.0


def test_the_activation_can_be_chosen() -> None:
    head = LabelHead(("a", "b"))
    assert read(head, (3.0, 1.0), "a", activation="none")[0] == 3.0
    assert read(head, (0.0, 1.0), "a", activation="sigmoid")[0] == 0.5
    assert read(FIVE, (0.0,) * 5, "helpful", activation="softmax")[0] == pytest.approx(0.2)


def test_a_head_with_one_label_stays_a_raw_logit_unless_more_is_said() -> None:
    one = LabelHead(("LABEL_0",))
    assert reading_of(one, None, {}, activation="auto") is None
    assert read(one, (math.log(3),), "LABEL_0") == (
        pytest.approx(0.75),
        {"LABEL_0": pytest.approx(0.75)},
    )
    assert read(one, (-2.0,), None, activation="none")[0] == -2.0
    with pytest.raises(ConfigError, match="always 1; use sigmoid"):
        reading_of(one, None, {}, activation="softmax")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("helpfull", r"label 'helpfull': not a label.*did you mean 'helpful'"),
        (5, r"label 5: the labels are numbered 0 to 4 \(helpful, correct"),
        (-1, "label -1"),
        ("1", "label '1': not a label"),
    ],
)
def test_an_unknown_label_is_told_with_the_known_ones(label: Any, words: str) -> None:
    for entries in ({"label": label, "weights": {}}, {"label": None, "weights": {label: 1.0}}):
        with pytest.raises(ConfigError, match=words):
            reading_of(FIVE, **entries, activation="auto")


@pytest.mark.parametrize(
    ("entries", "seen"),
    [("label_weights: {yes: 1, no: -1}", ["True", "False"]), ("label: yes", ["True"])],
)
def test_labels_that_yaml_makes_truth_values_are_refused(entries: str, seen: list[str]) -> None:
    """Taken as the indices 1 and 0 of (yes, no), they would flip the score's sign."""
    (problem,) = problems_of(BradleyTerryReward, yaml.safe_load(entries), "x")
    assert all(word in problem for word in seen)
    assert "YAML reads yes, no, on, off, true and false as True or False: quote a name" in problem
    for label in (True, False):
        with pytest.raises(ConfigError, match="quote it"):
            reading_of(LabelHead(("yes", "no")), label, {}, activation="auto")


def test_a_label_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="the label 'yes' twice, by its name and by its index 0"):
        reading_of(LabelHead(("yes", "no")), None, {0: 1, "yes": 2}, activation="auto")


def test_two_labels_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="the label 'x' twice"):
        reading_of(LabelHead(("x", "x")), 0, {}, activation="auto")


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        ((1.0, 2.0), r"gave 2 values .* 5 labels \(helpful, "),
        ((1.0, 2.0, math.nan, 0.0, 0.0), r"the model gave 1\.0, 2\.0, nan"),
        ((1.0, math.inf, 1.0, 0.0, 0.0), "inf"),
    ],
)
def test_what_is_no_number_for_each_label_is_a_failure(
    logits: tuple[float, ...], words: str
) -> None:
    reading = reading_of(FIVE, "helpful", {}, activation="auto")
    assert reading is not None
    output = reading.score(LabelOutput(logits, 1))
    assert (output.failure, math.isnan(output.value), output.extra) == ("provider_error", True, ())
    assert re.search(words, output.detail)


def test_an_engines_failure_keeps_its_words() -> None:
    reading = reading_of(FIVE, "helpful", {}, activation="auto")
    assert reading is not None
    output = reading.score(LabelOutput((), 9, failure="overlong", detail="9 and 8"))
    assert (output.failure, output.detail, output.tokens_in) == ("overlong", "9 and 8", 9)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"label": "a", "label_weights": {"b": 1}}, "x.label and x.label_weights are both given"),
        (
            {"label_weights": {"b": "much"}},
            "{'b': 'much'}: give names and their values, each a finit",
        ),
        (
            {"label_weights": {"b": math.nan}},
            "{'b': nan}: give names and their values, each a finite",
        ),
        ({"label_weights": ["a", "b"]}, "x.label_weights=['a', 'b']: give names and their values"),
        ({"activation": "softmx"}, "x.activation='softmx': not a choice; did you mean 'softmax'?"),
    ],
)
def test_entries_that_no_checkpoint_makes_right(entries: dict[str, Any], words: str) -> None:
    (problem,) = problems_of(BradleyTerryReward, entries, "x")
    assert words in problem


def test_it_is_told_in_words() -> None:
    chosen = reading_of(FIVE, None, {"helpful": 1, "verbose": -0.2}, activation="auto")
    assert str(chosen) == (
        "helpful + -0.2 x verbose of 5 labels (helpful, correct, coherent, complex, verbose),"
        " activation none"
    )
    assert "what rm_postprocess makes of 5" in str(reading_of(FIVE, None, {}, activation="auto"))


def test_activations_of_many() -> None:
    assert activated([1.0, 2.0], "none") == [1.0, 2.0]
    assert sum(activated([5.0, 1.0, -3.0], "softmax")) == pytest.approx(1)
