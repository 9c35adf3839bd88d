"""A response's steps as a process reward model reads them, and the value of a step's
logits."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.rewards.dropins.verdict import RowError
from rmrl.rewards.kinds.process.steps import cut_steps, locate_steps, step_ends
from rmrl.rewards.kinds.shared.dropin_calls import take
from rmrl.rewards.kinds.shared.row_errors import Origin
from rmrl.rewards.kinds.shared.untrusted import neutralised_with_map

ACTIVATIONS = ("auto", "sigmoid", "none")


@dataclass(frozen=True, slots=True)
class Parts:
    """One response's steps as the model reads them, with the end of each in the response."""

    texts: tuple[str, ...]
    ends: tuple[int, ...] | None
    """Offsets in the response. None: a step does not occur there."""
    prompt: Any = None
    """A drop-in's own prompt. None: the item's rm_prompt."""
    whole: int = 0
    """Number of steps before some were left out. 0: none was."""

    def only(self, numbers: Sequence[int]) -> Parts:
        """The steps of these numbers, counted from 0, and where they end in the whole response."""
        ends = None
        if self.ends is not None:
            ends = tuple(take(self.ends, numbers))
        return Parts(tuple(take(self.texts, numbers)), ends, self.prompt, whole=len(self.texts))


def cut_parts(response: str, separator: str, tokenizer: Any) -> Parts:
    """The response cut at its own separators. The steps' texts have no special tokens."""
    ends = step_ends(cut_steps(response, separator))
    text, places = neutralised_with_map(response, tokenizer)
    texts: list[str] = []
    start = 0
    for end in ends[:-1]:
        cut = bisect.bisect_left(places, end)
        texts.append(text[start:cut])
        start = cut
    return Parts((*texts, text[start:]), tuple(ends))


def returned_parts(
    returned: Any, response: str, tokenizer: Any, *, origin: Origin
) -> Parts | RowError:
    """The parts in a list of steps, or in (prompt, steps), that a drop-in returned for a
    response."""
    if isinstance(returned, RowError):
        return returned
    prompt = None
    steps = returned
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], list):
        prompt, steps = returned
    readable = isinstance(steps, list) and steps and all(isinstance(step, str) for step in steps)
    if not readable or not (prompt is None or isinstance(prompt, str | list)):
        return RowError(
            origin.what,
            f"returned {repr(returned)[:80]} ({type(returned).__name__}) for a response; give a"
            " list of its steps, ['First ...', 'So ...'], or a tuple (prompt, steps)"
            f" {origin.seen_on(response)}",
        )
    text, places = neutralised_with_map(response, tokenizer)
    ends = locate_steps(steps, text)
    if ends is None:
        return Parts(tuple(steps), None, prompt)
    return Parts(tuple(steps), tuple(take(places, ends)), prompt)


def tagged_pieces(
    steps: Sequence[str], tag: str, *, joint: str = "", separator: str = ""
) -> list[str]:
    """Two pieces per step: the step without white space around it and with the tag behind it, and
    the joint to the next step ("" behind the last).

    A tag inside a step is broken by a space. The `separator` that ends a step is removed.
    """
    broken = f"{tag[:1]} {tag[1:]}" if len(tag.strip()) > 1 else tag
    pieces: list[str] = []
    for step in steps:
        inert = step.replace(tag, broken).removesuffix(separator).strip()
        pieces += [inert + tag, joint]
    if pieces:
        pieces[-1] = ""
    return pieces


def step_score(logits: Sequence[float], label: int, activation: str) -> float:
    """The score of a step from its logits, one per label; NaN where one is not finite.

    `activation`: one of ACTIVATIONS. none: the logit of `label`; sigmoid: its logistic function;
    auto: the softmax over several labels, the logistic function of a single one.
    """
    if not all(map(math.isfinite, logits)):
        return math.nan
    logit = logits[label]
    if activation == "none":
        return float(logit)
    if activation == "auto" and len(logits) > 1:
        highest = max(logits)
        weights = [math.exp(other - highest) for other in logits]
        return weights[label] / math.fsum(weights)
    # Written so that neither end overflows.
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    return math.exp(logit) / (1 + math.exp(logit))
