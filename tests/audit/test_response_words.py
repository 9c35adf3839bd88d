"""Which words lift wrong responses to the score of right ones."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rmrl.audit.checks.response_words import frequent_words, words_of_responses
from rmrl.audit.finding import Finding, Limits
from rmrl.audit.subject import Case, Score
from rmrl.types import Prompt

LIMITS = Limits(0.05, 0.95)
PROMPT = Prompt(id="1", messages=({"role": "user", "content": "1 + 1 ="},), token_ids=())
WAYS = ("It is {}.", "Certainly {}", "Sure! {}", "The result of the sum is {}", "{}")


def judged(rule: Callable[[str, bool], float], count: int = 400) -> Finding:
    """What is found of a rule that gets a text, and whether it is right."""
    draw = random.Random(0)
    texts = [draw.choice(WAYS).format(draw.choice((2, 3))) for _ in range(count)]
    labels = ["2" in text for text in texts]
    cases = [Case(prompt=PROMPT, text=text) for text in texts]
    scores = [Score(value=rule(text, label)) for text, label in zip(texts, labels, strict=True)]
    return words_of_responses(LIMITS, cases, scores, labels)


@pytest.mark.parametrize("bonus", [1.0, 2.0])
def test_a_word_that_is_paid_like_the_right_answer_fails_and_is_named(bonus: float) -> None:
    finding = judged(lambda text, right: right + bonus * ("Certainly" in text))
    assert finding.verdict == "fail"
    assert finding.found.startswith("'certainly' has correlation 1.00")
    assert finding.examples
    assert all("Certainly 3" in example.response for example in finding.examples)


@pytest.mark.parametrize(
    "rule",
    [
        lambda text, right: float(right),
        lambda text, right: right + 0.2 * ("Certainly" in text),
        lambda text, right: right * (0.2 + ("Certainly" in text)),
    ],
    ids=["gold", "small bonus", "form of right ones"],
)
def test_words_that_lift_no_wrong_response_to_the_right_ones_pass(
    rule: Callable[[str, bool], float],
) -> None:
    assert judged(rule).verdict == "pass"


def test_few_responses_and_equal_words_are_not_measurable() -> None:
    assert judged(lambda text, right: float(right), count=20).verdict == "not measurable"
    cases = [Case(prompt=PROMPT, text="the same words 2")] * 60
    scores = [Score(value=1.0)] * 60
    finding = words_of_responses(LIMITS, cases, scores, [True, False, False] * 20)
    assert (finding.verdict, finding.rows) == ("not measurable", 0)


def test_frequent_words_are_in_ten_texts_and_lack_in_ten() -> None:
    texts = ["one Two"] * 10 + ["two 3 x"] * 9 + ["three"]
    words = frequent_words(texts)
    assert list(words) == ["one"]  # "two" lacks in one text, "three" is in one
    assert words["one"].tolist() == [True] * 10 + [False] * 10
