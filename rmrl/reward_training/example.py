"""A row to learn from, whatever its layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmrl.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A prompt with one or several responses, and labels that say how good they are."""

    place: str
    """For messages: "pairs.jsonl row 3"."""
    prompt: str | tuple[Message, ...]
    responses: tuple[str, ...]
    source: str = ""
    """Where the row comes from: its `data_source`, else its `source`."""
    ranks: tuple[int, ...] = ()
    """Place of each response, 0 is the best; equal numbers are ties. () without an order."""
    margin: float = 0.0
    """By how much the better response of a pair is better."""

    @property
    def key(self) -> str:
        """The prompt as one text, to compare prompts by; of rows without one their responses."""
        if isinstance(self.prompt, str):
            return self.prompt.strip() or "\n".join(sorted(self.responses))
        if len(self.prompt) == 1:
            return self.prompt[0]["content"].strip()
        return "\n".join(f"{turn['role']}: {turn['content'].strip()}" for turn in self.prompt)

    @property
    def better(self) -> int:
        """Number of the better response of a pair; -1 for a tie and for what is no pair."""
        if len(self.ranks) != 2 or self.ranks[0] == self.ranks[1]:
            return -1
        return int(self.ranks[1] < self.ranks[0])


def pairs_of(examples: Sequence[Example]) -> list[Example]:
    """Return the examples that are a pair of a better and a worse response."""
    return [example for example in examples if example.better >= 0]
