"""Passages cut to some of their tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Passage = list[str]
"""Texts that are cut as one, such as a conversation's turns."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Pieces:
    """A passage and its tokens' places: (number of the text, start, end)."""

    texts: Passage
    spans: list[tuple[int, int, int]]

    @classmethod
    def of(cls, passage: Passage, tokenizer: Any) -> Pieces:
        """The tokens of `passage`; its words, for a tokenizer without offsets."""
        spans: list[tuple[int, int, int]] = []
        for k, text in enumerate(passage):
            if getattr(tokenizer, "is_fast", False):
                # No tokenizer takes half a letter; one character stands for one, so places agree.
                whole = _SURROGATE.sub("\ufffd", text)
                encoded = tokenizer(
                    whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False
                )
                for start, end in encoded["offset_mapping"]:
                    spans.append((k, int(start), int(end)))
            else:
                for word in re.finditer(r"\S+", text):
                    spans.append((k, word.start(), word.end()))
        return cls(passage, spans)

    def cut(self, count: int, *, how: str, mark: str) -> Passage:
        """The texts with `count` of their tokens; `mark` stands where some were cut.

        `how`: see `kept_numbers`.
        """
        total = len(self.spans)
        if count >= total:
            return self.texts
        numbers = set(kept_numbers(total, count, how=how))
        texts: list[str] = []
        for k, text in enumerate(self.texts):
            tokens: list[int] = []
            lost: list[int] = []  # one stretch of them
            for number, (place, _, _) in enumerate(self.spans):
                if place == k:
                    tokens.append(number)
                    if number not in numbers:
                        lost.append(number)
            if not lost:
                texts.append(text)
                continue
            parts: list[str] = []
            if lost[0] > tokens[0]:
                parts.append(text[: self.spans[lost[0] - 1][2]])
            parts.append(mark)
            if lost[-1] < tokens[-1]:
                parts.append(text[self.spans[lost[-1] + 1][1] :])
            texts.append(" ".join(filter(None, parts)))
        return texts


def kept_numbers(total: int, count: int, *, how: str) -> list[int]:
    """Numbers of the `count` things out of `total` in a row that stay.

    `how`: truncate_right keeps the first, truncate_left the last, truncate_middle count // 2 of the
    first and the rest of the last.
    """
    head = {"truncate_right": count, "truncate_left": 0, "truncate_middle": count // 2}[how]
    return [*range(head), *range(total - (count - head), total)]


def shares(lengths: Sequence[int], keep: int) -> list[int]:
    """Number of tokens that each text keeps, `keep` together.

    All texts keep equally many, as long as they have that many. The rest goes to the longest.
    """
    counts = [0] * len(lengths)
    rest = keep
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for place, i in enumerate(order):
        counts[i] = min(lengths[i], rest // (len(order) - place))
        rest -= counts[i]
    return counts
