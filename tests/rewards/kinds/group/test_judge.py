"""Settings of a judge that compares: the form of its verdict, in words and as a constraint."""

from __future__ import annotations

import pytest

from rmrl.rewards.kinds.group.judge import JudgeSettings
from rmrl.types import Sampling


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (JudgeSettings(), "Answer with one of these and nothing else: A, B, tie."),
        (JudgeSettings(ties=False), "Answer with one of these and nothing else: A, B."),
        (JudgeSettings(reasoning=True), "[[A]] or [[B]] or [[tie]]"),
        (JudgeSettings(listwise=True), 'Answer with a line such as "2 > 1 > 3"'),
        (JudgeSettings(listwise=True, reasoning=True), "Say briefly why, then end with a line"),
    ],
)
def test_the_prompt_states_the_form_of_the_verdict(settings: JudgeSettings, words: str):
    assert words in settings.answer_form()


def test_with_a_parser_only_the_rubric_states_the_form():
    assert JudgeSettings(parser="(?P<verdict>A|B)").answer_form() == ""


def test_a_verdict_on_a_pair_is_a_choice_and_one_on_a_list_a_ranking():
    number = "[1-9][0-9]{0,2}"
    assert JudgeSettings().constrained(Sampling(max_tokens=8), 2).choice == ("A", "B", "tie")
    assert (
        JudgeSettings(listwise=True).constrained(Sampling(max_tokens=8), 3).regex
        == f"{number}( > {number}){{2}}"
    )


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [
        (JudgeSettings(reasoning=True), Sampling(max_tokens=8)),
        (JudgeSettings(parser="(?P<verdict>A|B)"), Sampling(max_tokens=8)),
        (JudgeSettings(), Sampling(max_tokens=8, choice=("A",))),
        (JudgeSettings(), Sampling(max_tokens=8, regex="A")),
        (JudgeSettings(), Sampling(max_tokens=8, json_schema="{}")),
    ],
)
def test_a_judge_that_writes_more_is_not_constrained(settings: JudgeSettings, sampling: Sampling):
    assert settings.constrained(sampling, 2) is sampling
