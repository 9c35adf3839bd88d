"""A reward per turn: a guess that no earlier answer has ruled out. The secret stays unknown to it."""

import re

SPEC = {"kind": "rule", "per": {"turn": "each"}}

_NUMBER = re.compile(r"-?\d+")


def number_of(text):
    match = _NUMBER.search(text)
    return int(match[0]) if match else None


def is_rational(turns, guess):
    """Whether a guess lies between the bounds that the answers so far have left."""
    low, high = 0, 9
    last = None
    for turn in turns:
        if turn["role"] == "assistant":
            last = number_of(turn["content"])
        elif turn["content"] == "higher":
            low = max(low, last + 1)
        elif turn["content"] == "lower":
            high = min(high, last - 1)
    return guess is not None and low <= guess <= high


def compute_score(prompts, completions, **columns):
    scores = []
    for turns, completion in zip(prompts, completions, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        scores.append(float(is_rational(turns, number_of(text))))
    return scores
