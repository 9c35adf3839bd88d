"""A reward per turn: the number follows from the tool's answer. The first one may be any from 0 to 9."""

import re

SPEC = {"kind": "rule", "per": {"turn": "each"}}

_NUMBER = re.compile(r"-?\d+")
_ANSWER = re.compile(r"(-?\d+)([+-])(\d+)=")


def follows(turns, text):
    """Whether a guess is what the last answer of the tool says."""
    match = _NUMBER.search(text)
    if match is None:
        return False
    guess = int(match[0])
    answer = _ANSWER.fullmatch(turns[-1]["content"])
    if answer is None:
        return 0 <= guess <= 9
    start, sign, way = answer.groups()
    return guess == int(start) + int(sign + way)


def compute_score(prompts, completions, **columns):
    scores = []
    for turns, completion in zip(prompts, completions, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        scores.append(float(follows(turns, text)))
    return scores
