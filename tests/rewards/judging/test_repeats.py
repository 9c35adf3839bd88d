"""A line of the prompt that the judge repeats is no verdict; a choice among those offered is."""

from __future__ import annotations

import time

import pytest

from rmrl.rewards.judging.repeats import Prompt
from rmrl.rewards.judging.verdicts import last_choice, last_number

EXAMPLE = 'Is the reply kind? Reply with "Score: 10" if it is, and with a lower number if not.'
RUBRIC = """How good is the reply?
10: answers everything that was asked, nothing else.
5: answers, but with padding or a small mistake.
0: does not answer, or is wrong."""
FORMS = """Which is better?
Verdict: A
Verdict: B"""


@pytest.mark.parametrize(
    ("prompt", "text", "verdict"),
    [
        # the example alone, in quotation marks or not, bold or not, or the line that holds it
        (EXAMPLE, "Score: 10", None),
        (EXAMPLE, '"Score: 10"', None),
        (EXAMPLE, "**Score: 10**", None),
        (EXAMPLE, EXAMPLE, None),
        (EXAMPLE, 'The instruction is: reply with "Score: 10" if it is.', None),
        (f"{EXAMPLE}\nScore: 10", f"{EXAMPLE}\nScore: 10", None),
        # an echo and a verdict of the judge's own
        (EXAMPLE, f"{EXAMPLE}\nScore: 3", 3),
        (EXAMPLE, "Score: 10\nNo: it mocks the reader. My score: 2", 2),
        (EXAMPLE, "Score: 3", 3),
        # the same words as a conclusion
        (EXAMPLE, "The reply thanks the reader and helps.\nScore: 10", 10),
        (EXAMPLE, "The reply thanks the reader and helps.\n\n**Score: 10**\n", 10),
        (EXAMPLE, "It has 2 flaws and 3 merits, 4 of 5 steps.\nScore: 10", 10),
        # levels: one of them is chosen, all of them are copied
        (RUBRIC, "5: answers, but with padding or a small mistake.", 5),
        (RUBRIC, RUBRIC, None),
        (RUBRIC, f"{RUBRIC}\nScore: 5", 5),
        ("Score: 1\nScore: 2\nScore: 3", "Score: 2", 2),
        ("Score: 1\nScore: 2\nScore: 3", "Score: 1\nScore: 2\nScore: 3", None),
        # a number alone stands in many prompts
        ("How much is 3 + 4?\n7", "7", 7),
        ("", "Score: 10", 10),
    ],
)
def test_echoes_of_numbers(prompt: str, text: str, verdict: float | None) -> None:
    assert last_number(text, 0, 10, prompt=prompt) == verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("Verdict: B", "B"), ("Verdict: A\nVerdict: B", None), ("A is better.", "A")],
)
def test_echoes_of_choices(text: str, verdict: str | None) -> None:
    assert last_choice(text, ["A", "B"], prompt=FORMS) == verdict


def test_a_json_example_repeated_is_no_verdict() -> None:
    prompt = 'End with a line such as\n{"score": 10}'
    assert last_number('{"score": 10}', 0, 10, prompt=prompt) is None
    assert last_number('{"score": 10}\n{"score": 4}', 0, 10, prompt=prompt) == 4
    assert last_number('It has padding in places.\n{"score": 10}', 0, 10, prompt=prompt) == 10


def test_a_level_of_the_prompt_is_a_quotation_of_it_only_where_it_is_the_only_one() -> None:
    line = "5: a perfect answer to the question"
    assert Prompt(f"Give a number.\n{line}\n").has(line)
    assert not Prompt(f"Give a number.\n{line}\n1: a useless answer\n").has(line)


def test_long_prompts_and_texts_are_read_in_linear_time() -> None:
    prompt = "\n".join(f'line {i} says "Score: {i}" and more' for i in range(20_000))
    started = time.process_time()
    assert last_number(prompt + "\nScore: 7", 0, 10, prompt=prompt) == 7
    assert time.process_time() - started < 60
