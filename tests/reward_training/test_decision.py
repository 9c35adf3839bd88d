"""Questions with answers: their layout, the tokens of the answers, the losses and the figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.config.schema import RewardDataConfig, RewardLossConfig
from rmrl.errors import DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item, batch_of
from rmrl.reward_training.objectives.decision import Decision
from rmrl.reward_training.read_examples import read_examples
from rmrl.reward_training.readings.answer_tokens import CRITERIA, AnswerTokens
from rmrl.reward_training.tokens import tokenized
from rmrl.tokenizer import load_tokenizer
from tests.reward_training.pairs import write_rows

ROW = {"prompt": "Q", "response": "R", "question": "Good?", "label": True}
ORDERED = {**ROW, "answers": ["A", "B", "C"], "label": "C"}


def read(tmp_path: Path, *rows: dict[str, Any], **data: Any) -> list[Example]:
    path = write_rows(tmp_path / "rows.jsonl", rows)
    return read_examples(
        str(path), "data.train_files", RewardDataConfig(**data), among=Decision.forms
    )


@pytest.mark.parametrize(
    ("row", "answers", "distribution"),
    [
        (ROW, ("No", "Yes"), (0, 1)),
        ({**ROW, "label": 0}, ("No", "Yes"), (1, 0)),
        ({**ROW, "label": "No"}, ("No", "Yes"), (1, 0)),
        (ORDERED, ("A", "B", "C"), (0, 0, 1)),
        ({**ORDERED, "label": 1}, ("A", "B", "C"), (0, 1, 0)),
        ({**ROW, "distribution": [0.25, 0.75]}, ("No", "Yes"), (0.25, 0.75)),
        ({**ORDERED, "distribution": {"A": 0.5, "C": 0.5}}, ("A", "B", "C"), (0.5, 0, 0.5)),
    ],
)
def test_a_label_is_a_distribution_over_the_answers(
    tmp_path: Path, row: dict[str, Any], answers: tuple[str, ...], distribution: tuple[float, ...]
) -> None:
    (example,) = read(tmp_path, row)
    assert (example.prompt, example.responses, example.question) == ("Q", ("R",), "Good?")
    assert (example.answers, example.distribution) == (answers, distribution)


def test_rows_of_unpaired_preferences_are_asked_one_question(tmp_path: Path) -> None:
    row = {"prompt": "Q", "completion": "R", "label": False}
    (example,) = read(tmp_path, row, question="Good?")
    assert (example.question, example.distribution) == ("Good?", (1, 0))
    with pytest.raises(DataError, match=r"data\.question='The answer is correct\.'"):
        read(tmp_path, row)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**ROW, "label": "Maybe"}, ["'label'", "No, Yes"]),
        ({**ROW, "label": 2}, ["'label'", "from 0 to 1"]),
        ({**ORDERED, "label": True}, ["'label'", "A, B, C"]),
        ({**ROW, "answers": ["Yes"]}, ["'answers'", "two or more"]),
        ({**ROW, "distribution": [0.5, 0.6]}, ["'distribution'", "add up to 1"]),
        ({**ROW, "distribution": {"Perhaps": 1.0}}, ["'distribution'", "2 probabilities"]),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, row: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, row)
    for word in ["rows.jsonl row 0", *words]:
        assert word in str(caught.value)


@pytest.fixture(scope="module")
def tokenizer(tiny_llama: Path) -> Any:
    words = load_tokenizer(str(tiny_llama), trust_remote_code=False)
    words.add_tokens(["No", "Yes"])
    return words


def test_an_answer_is_a_row_behind_the_same_text(tmp_path: Path, tokenizer: Any) -> None:
    examples = read(tmp_path, ROW)
    (item,) = tokenized(examples, tokenizer, Decision(RewardLossConfig()), RewardDataConfig()).items
    no, yes = item.tokens
    assert item.shared == len(no) - 1 == len(yes) - 1
    np.testing.assert_array_equal(no[:-1], yes[:-1])
    assert tokenizer.decode(no[-1:]).strip() == "No"
    assert tokenizer.decode(yes[-1:]).strip() == "Yes"
    assert [reads.tolist() for reads in item.reads] == [[True], [True]]
    assert item.targets == ((0.0,), (1.0,))


def test_a_question_is_read_as_the_kind_reads_it(tmp_path: Path, tokenizer: Any) -> None:
    """White space around an answer is no part of it. Half a letter is U+FFFD there too."""
    objective = Decision(RewardLossConfig())
    plain, padded = read(tmp_path, ROW, {**ROW, "answers": [" No", "Yes "], "label": 1})
    items = tokenized([plain, padded], tokenizer, objective, RewardDataConfig()).items
    for first, second in zip(items[0].tokens, items[1].tokens, strict=True):
        np.testing.assert_array_equal(first, second)
    (broken,) = read(tmp_path, {**ROW, "question": "Good \ud83d?"})
    assert broken.question == "Good \ufffd?"
    assert len(tokenized([broken], tokenizer, objective, RewardDataConfig()).items) == 1


def loss_of(labels: list[float], logprobs: list[float], **settings: Any) -> tuple[float, Any]:
    """One question's loss and gradient with these log-probabilities."""
    entries: dict[str, Any] = {"label_mass": 0.0, **settings}
    objective = Decision(RewardLossConfig(**entries))
    count = len(labels)
    tokens = [np.asarray([1, 2, 3 + number], np.int32) for number in range(count)]
    item = Item(
        number=0,
        tokens=tuple(tokens),
        shared=2,
        reads=(np.ones(1, bool),) * count,
        targets=tuple((label,) for label in labels),
    )
    outputs = torch.tensor(logprobs)[:, None].requires_grad_()
    loss, _ = objective.loss(batch_of([item]), outputs)
    loss.backward()
    assert outputs.grad is not None
    return loss.item(), outputs.grad[:, 0]


LOGPROBS = [math.log(0.1), math.log(0.3)]
"""Shares 1/4 and 3/4, mass 0.4."""


def test_cross_entropy_brier_and_label_mass() -> None:
    loss, _ = loss_of([1.0, 0.0], LOGPROBS)
    assert loss == pytest.approx(-math.log(0.25), abs=1e-6)
    loss, _ = loss_of([0.5, 0.5], LOGPROBS)
    assert loss == pytest.approx(-0.5 * (math.log(0.25) + math.log(0.75)), abs=1e-6)
    loss, _ = loss_of([1.0, 0.0], LOGPROBS, decision="brier")
    assert loss == pytest.approx(2 * 0.75**2, abs=1e-6)
    loss, _ = loss_of([1.0, 0.0], LOGPROBS, decision="brier", label_mass=0.5)
    assert loss == pytest.approx(2 * 0.75**2 - 0.5 * math.log(0.4), abs=1e-6)


@pytest.mark.parametrize("labels", [[1.0, 0.0, 0.0], [0.2, 0.5, 0.3]])
def test_rlcd_has_half_of_briers_gradient_and_outcome_that_of_the_share(
    labels: list[float],
) -> None:
    torch.manual_seed(1)
    logprobs = [math.log(each) for each in (0.2, 0.5, 0.3)]
    _, brier = loss_of(labels, logprobs, decision="brier")
    _, rlcd = loss_of(labels, logprobs, decision="rlcd", draws=200_000)
    torch.testing.assert_close(rlcd, brier / 2, atol=4e-3, rtol=0)
    _, outcome = loss_of(labels, logprobs, decision="outcome", draws=200_000)
    outputs = torch.tensor(logprobs, requires_grad=True)
    (outputs.softmax(0) * torch.tensor(labels)).sum().backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outcome, -outputs.grad, atol=4e-3, rtol=0)


def test_one_draw_needs_no_other_to_compare_with() -> None:
    torch.manual_seed(1)
    loss, _ = loss_of([1.0, 0.0], LOGPROBS, decision="outcome", draws=1)
    assert loss in (pytest.approx(0.0), pytest.approx(-math.log(0.25)))


def test_the_gate_allows_what_bfloat16_rounds_in_a_logit() -> None:
    """A 135M model trained in bfloat16 failed at .062, where .05 was allowed."""
    logits = torch.tensor([40.124, 63.876])
    rounding = (logits.bfloat16().float() - logits).abs().max().item()
    assert rounding == pytest.approx(0.124, abs=1e-5)
    assert rounding < AnswerTokens.half < 2 * rounding


def test_figures_and_the_prior(tmp_path: Path) -> None:
    labels = [True, True, True, False]
    examples = read(tmp_path, *({**ROW, "label": label} for label in labels))
    sure = [[[math.log(0.1)], [math.log(0.4)]]] * 4  # No .2, Yes .8
    decision = Decision(RewardLossConfig())
    figures = decision.quick(examples, sure)
    assert set(decision.chosen_by) <= figures.keys()
    assert figures["accuracy"] == 0.75
    assert figures["loss"] == pytest.approx(-(3 * math.log(0.8) + math.log(0.2)) / 4)
    assert figures["brier"] == pytest.approx((3 * 2 * 0.2**2 + 2 * 0.8**2) / 4)
    assert figures["ece"] == pytest.approx(0.05)
    assert figures["label_mass"] == pytest.approx(0.5)
    judges = decision.report(examples, examples, {"trained": sure}, seed=1)
    assert judges["trained"]["accuracy"]["value"] == 0.75
    prior = judges["share of each answer"]
    assert prior["ece"] == pytest.approx(0, abs=1e-9)
    assert prior["brier"] == pytest.approx(2 * 0.75 * 0.25)
    assert [row[0] for row in decision.table(judges)[1:]] == list(judges)


def test_words_are_a_judge(tmp_path: Path) -> None:
    """The label follows from a word. A question without training rows has equal shares."""
    rows = [
        {**ROW, "response": f"{word} {number}", "label": word == "indeed"}
        for number in range(20)
        for word in ("indeed", "sorry")
    ]
    train = read(tmp_path, *rows)
    held_out = read(tmp_path, *rows[:4], {**ROW, "question": "New?"})
    judges = Decision(RewardLossConfig()).report(train, held_out, {}, seed=1)
    assert judges["words"]["accuracy"]["value"] >= 4 / 5
    assert judges["words"]["brier"] < judges["share of each answer"]["brier"] / 2
    assert judges["words"]["label_mass"] == pytest.approx(1)


def test_few_questions_stand_in_the_section_and_many_in_the_rows(tmp_path: Path) -> None:
    reading = Decision(RewardLossConfig()).reading
    few = read(tmp_path, ROW, ORDERED, ROW)
    spec = reading.reward_spec("m", few)
    assert spec["criteria"] == [
        {"text": "Good?", "choices": ["No", "Yes"]},
        {"text": "Good?", "choices": ["A", "B", "C"]},
    ]
    many = read(tmp_path, *({**ROW, "question": f"Good {number}?"} for number in range(17)))
    assert reading.reward_spec("m", many)["criteria_from"] == CRITERIA
    criterion = {"text": "Good 3?", "choices": ["No", "Yes"]}
    assert reading.columns(many)["extra_info"][3] == {"criteria": [criterion]}
    logprobs = [[math.log(0.1)], [math.log(0.1)], [math.log(0.2)]]
    assert reading.scores(logprobs) == [pytest.approx(0.25 * 0.5 + 0.5)]
