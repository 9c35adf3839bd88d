"""A row to learn from, whatever its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmrl.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A prompt with one or several responses, and labels that say how good they are."""

    place: str
    """For messages: "pairs.jsonl row 3"."""
    prompt: str | tuple[Message, ...]
    responses: tuple[str, ...]
    source: str = ""
    """The row's origin: its `data_source`, else its `source`."""
    ranks: tuple[int, ...] = ()
    """Each response's place, 0 for the best. Equal numbers are ties. () without an order."""
    margin: float = 0.0
    """By how much a pair's better response is better."""
    attributes: Mapping[str, float] = field(default_factory=dict[str, float])
    """The only response's numbers, by attribute."""

    @property
    def key(self) -> str:
        """The prompt as one text, to compare prompts by. Rows without one have their responses."""
        if isinstance(self.prompt, str):
            return self.prompt.strip() or "\n".join(sorted(self.responses))
        if len(self.prompt) == 1:
            return self.prompt[0]["content"].strip()
        return "\n".join(f"{turn['role']}: {turn['content'].strip()}" for turn in self.prompt)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Numbers of the best and the worst response; None where all are equally good."""
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
            pairs.append(replace(example, responses=responses, ranks=(0, 1)))
    return pairs
