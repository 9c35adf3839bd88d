"""Rows for a reward that comes without any: small word problems with references and responses.

Each prompt has eight responses, right and wrong ones in turn, whose length, tone and layout have
nothing to do with whether they are right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

PROMPTS = 60
RESPONSES = 8
DATA_SOURCE = "openai/gsm8k"
"""Rules that choose by source know it."""
REASONING = "I work it out step by step."
"""A reasoning within a form."""
_NAMES = ("Ann", "Ben", "Chloe", "David", "Emma", "Farid", "Grace", "Hugo")
_THINGS = ("apples", "pens", "tickets", "stamps", "cups", "books", "shells")
_PATTERNS = (
    ("{name} has {a} {things} and buys {b} more. How many {things} has {name}?", 1, 1),
    ("{name} packs {a} boxes of {b} {things} each. How many {things} is that?", 0, 1),
    ("{name} had {a} {things} and gave {b} of them away. How many are left?", 1, -1),
)
_OPENERS = ("", "Sure! ", "I am certain about this. ", "Let us see. ")
_FILLER = (
    "The problem asks for one quantity, and everything that is needed stands in the text.",
    "First we write down what is known, and then what is to be found.",
    "It helps to say in words what happens before any arithmetic is done.",
    "No other fact of the story changes the quantity in question.",
)


def made_rows(seed: int) -> list[dict[str, Any]]:
    """Return the rows as `rmrl score` writes them, with a label per response."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(PROMPTS):
        pattern, adds, sign = draw.choice(_PATTERNS)
        b = draw.randint(3, 40)
        a = draw.randint(b + 2, 140)
        answer = a + sign * b if adds else a * b
        wrong: list[int] = [answer + draw.choice((-10, -2, -1, 1, 3, 10)) for _ in range(RESPONSES)]
        numbers = [answer if n % 2 else wrong[n] for n in range(RESPONSES)]
        rows.append(
            {
                "prompt": pattern.format(
                    name=draw.choice(_NAMES), things=draw.choice(_THINGS), a=a, b=b
                ),
                "data_source": DATA_SOURCE,
                "reward_model": {"ground_truth": str(answer)},
                "responses": [response(draw, a, b, number) for number in numbers],
                "label": [number == answer for number in numbers],
            }
        )
    return rows


def response(draw: random.Random, a: int, b: int, number: int) -> str:
    """Return a response that ends with `number`."""
    filler = " ".join(draw.sample(_FILLER, draw.randint(0, len(_FILLER))))
    return f"{draw.choice(_OPENERS)}{filler} From {a} and {b} we get {number}.\n#### {number}"


def in_form(responses: Sequence[str], template: str) -> tuple[str, ...]:
    """Return made responses with their last line in another form; "{}" stands for the answer. Where
    the form has its own reasoning, theirs takes its place."""
    texts: list[str] = []
    for text in responses:
        before, _, number = text.rpartition("#### ")
        whole = before + template
        if REASONING in template:
            whole = template.replace(REASONING, before.strip())
        texts.append(whole.replace("{}", number))
    return tuple(texts)
