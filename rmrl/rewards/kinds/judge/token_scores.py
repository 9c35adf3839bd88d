"""Scores by token probability: the probability that a judge begins its answer with each of some
words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from rmrl.errors import ConfigError


class ScoreTokens:
    """Answers of one token each, and their values.

    The score is sum(p(answer) * value) / sum(p(answer)) over the answers, p being the probability
    of the first generated token: with Yes worth 1 and No worth 0, the probability of Yes among the
    two.
    """

    def __init__(
        self,
        values: Mapping[str, float] | Sequence[tuple[str, float]],
        tokenizer: Any,
        *,
        where: str,
    ) -> None:
        """`where`: the entry that states the answers, for messages."""
        self._values = dict(values)
        self._tokenizer = tokenizer
        self._where = where
        self._ids_by_spacing: dict[bool, tuple[int, ...]] = {}

    def ids_after(self, prompt: str) -> tuple[int, ...]:
        """Token id of each answer as it would continue `prompt`: with a space before it, unless the
        prompt ends in space or a marker.

        Where answers are no single token that way, the other way is tried. Raises ConfigError
        naming the tokens when both fail.
        """
        spaced = False
        if prompt and not prompt[-1].isspace():
            spaced = not prompt.endswith(self.markers)
        if spaced in self._ids_by_spacing:
            return self._ids_by_spacing[spaced]
        prefixes = (" ", "") if spaced else ("", " ")
        for prefix in prefixes:
            answers: list[int] = [
                tokens[0]
                for tokens in self._split(prefix)
                if len(tokens) == 1 and tokens[0] != self._tokenizer.unk_token_id
            ]
            if len(set(answers)) == len(self._values):
                self._ids_by_spacing[spaced] = tuple(answers)
                return self._ids_by_spacing[spaced]
        raise ConfigError(self._problems(self._split(prefixes[0])))

    def score(self, logprobs: Sequence[float]) -> tuple[float, dict[str, float]] | None:
        """(score, share of each answer), or None where the engine reports the probability of no
        answer.

        `logprobs`: one per answer, up to a constant; -inf where it is too small to be reported. NaN
        gives NaN.
        """
        highest = max(logprobs, default=-math.inf)
        if highest == -math.inf:
            return None
        weights = [math.exp(logprob - highest) for logprob in logprobs]
        total = math.fsum(weights)
        shares: dict[str, float] = {}
        terms: list[float] = []
        for (text, value), weight in zip(self._values.items(), weights, strict=True):
            shares[text] = weight / total
            terms.append(shares[text] * value)
        return math.fsum(terms), shares

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Special and added tokens, but the empty one."""
        added = getattr(self._tokenizer, "get_added_vocab", dict)()
        return tuple({*self._tokenizer.all_special_tokens, *added} - {""})

    def _split(self, prefix: str) -> list[list[int]]:
        """The token ids of each answer behind `prefix`."""
        ids: list[list[int]] = []
        for text in self._values:
            encoded = self._tokenizer(prefix + text, add_special_tokens=False)
            ids.append(list(encoded["input_ids"]))
        return ids

    def _problems(self, split: Sequence[Sequence[int]]) -> list[str]:
        """Problems of these answers, one sentence each.

        Where each is one token, they are equal or unknown tokens.
        """
        name = self._where
        problems: list[str] = []
        single: list[str] = []
        for text, ids in zip(self._values, split, strict=True):
            tokens = self._tokenizer.convert_ids_to_tokens(list(ids))
            if len(tokens) == 1:
                single.append(f"'{text}' is {tokens[0]!r}")
                continue
            problems.append(
                f"{name}: '{text}' is {len(tokens)} tokens of the judge's tokenizer"
                f" ({', '.join(map(repr, tokens))}); each answer must be one token"
            )
        if problems:
            return problems
        return [
            f"{name}: some answers are the same token of the judge's tokenizer, or its unknown"
            f" token ({', '.join(single)}); choose others"
        ]


def score_token_problems(values: Mapping[str, float], name: str) -> list[str]:
    """Problems of configured answers and values, one sentence each that begins with `name`."""
    problems: list[str] = [
        f"{name}: {key!r} is no answer; give its text" for key in values if not key.strip()
    ]
    if len(values) == 1:
        problems.append(f"{name} has one answer, whose share is always 1: give at least two")
    return problems
