"""A row to learn from, whatever its layout."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rmrl.evaluation.formats.response_text import conversations_of, turns_of
from rmrl.types import Message, ScoreItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A prompt with one or several responses, and labels that say how good they are."""

    place: str
    """For messages: "pairs.jsonl row 3"."""
    prompt: str | tuple[Message, ...]
    responses: tuple[str, ...]
    before: tuple[tuple[Message, ...], ...] = ()
    """Turns between the prompt and each response. () where each response follows the prompt."""
    source: str = ""
    """The row's origin: its `data_source`, else its `source`."""
    ranks: tuple[int, ...] = ()
    """Each response's place, 0 for the best. Equal numbers are ties. () without an order."""
    margin: float = 0.0
    """By how much a pair's better response is better."""
    attributes: Mapping[str, float] = field(default_factory=dict[str, float])
    """The only response's numbers, by attribute."""
    critiques: tuple[str, ...] = ()
    """The critic's text about each response; () before it is written."""
    step_labels: tuple[float, ...] = ()
    """P(right) for each step of the only response, from 0 to 1. NaN where it is not known."""
    question: str = ""
    """What the only response is asked about."""
    answers: tuple[str, ...] = ()
    """The question's answers, from the worst to the best."""
    distribution: tuple[float, ...] = ()
    """The probability of each answer."""

    @property
    def has_prompt(self) -> bool:
        """Whether the prompt has text."""
        if isinstance(self.prompt, str):
            return bool(self.prompt.strip())
        return any(turn["content"].strip() for turn in self.prompt)

    @property
    def is_conversation(self) -> bool:
        """Whether a response follows more than one user turn."""
        if any(self.before):
            return True
        return not isinstance(self.prompt, str) and [turn["role"] for turn in self.prompt] != [
            "user"
        ]

    @property
    def key(self) -> str:
        """The prompt as one text, to compare prompts by. Rows without one have their responses."""
        if isinstance(self.prompt, str):
            return self.prompt.strip() or "\n".join(sorted(self.responses))
        if len(self.prompt) == 1:
            return self.prompt[0]["content"].strip()
        return "\n".join(f"{turn['role']}: {turn['content'].strip()}" for turn in self.prompt)

    @property
    def asked(self) -> str:
        """The key without system turns, to hold rows out by: a question under two system turns is
        one question."""
        if isinstance(self.prompt, str):
            return self.key
        turns = tuple(turn for turn in self.prompt if turn["role"] != "system")
        return replace(self, prompt=turns or self.prompt).key

    @property
    def labels(self) -> Hashable:
        """All labels, in a form that two examples can be compared by."""
        order = tuple(sorted(zip(self.responses, self.ranks, strict=False)))
        known = tuple(None if math.isnan(label) else label for label in self.step_labels)
        return order, tuple(sorted(self.attributes.items())), known, self.distribution

    @property
    def plain_prompt(self) -> str | list[dict[str, str]]:
        """The prompt as rows have it."""
        if isinstance(self.prompt, str):
            return self.prompt
        return [{"role": turn["role"], "content": turn["content"]} for turn in self.prompt]

    @property
    def plain_responses(self) -> list[Any]:
        """The responses as rows have them: texts, or messages with the turns before each."""
        talks = conversations_of(self.before, self.responses)
        return list(map(list, talks)) or list(self.responses)

    @property
    def score_items(self) -> list[ScoreItem]:
        """The responses as a reward sees them."""
        prompt = self.prompt
        if not isinstance(prompt, str) and not self.is_conversation:
            prompt = prompt[0]["content"]
        whole = turns_of(self.prompt)
        prompts = [(*whole, *turns) for turns in self.before] or [prompt] * len(self.responses)
        return [
            ScoreItem(prompt_id=self.place, messages=(), response=text, rm_prompt=each)
            for each, text in zip(prompts, self.responses, strict=True)
        ]

    @property
    def all_alike(self) -> bool:
        """Whether all of several responses are the same text behind the same turns."""
        first, *others = self.plain_responses
        return bool(others) and all(other == first for other in others)

    @property
    def ends(self) -> tuple[int, int] | None:
        """The best and the worst response's numbers, None where all are equally good."""
        if len(set(self.ranks)) < 2:
            return None
        return self.ranks.index(min(self.ranks)), self.ranks.index(max(self.ranks))


def pairs_of(examples: Sequence[Example]) -> list[Example]:
    """Return each example's best and worst response, as a pair with the better one first. Examples
    without an order are left out."""
    pairs: list[Example] = []
    for example in examples:
        if example.ends is not None:
            best, worst = example.ends
            responses = (example.responses[best], example.responses[worst])
            before = example.before and (example.before[best], example.before[worst])
            pairs.append(replace(example, responses=responses, before=before, ranks=(0, 1)))
    return pairs
