"""Scores by token probability: a judge is asked a question, and how likely it is to begin each
answer is its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.errors import ConfigError


class ScoreTokens:
    """Answers of one token each, and what they are worth.

    The score is sum(p(answer) * value) / sum(p(answer)) over the answers, p being the probability
    of the first generated token: with Yes worth 1 and No worth 0, the probability of Yes among the
    two.
    """

    def __init__(self, values: Mapping[str, float], tokenizer: Any, *, where: str) -> None:
        self._values, self._tokenizer, self._where = dict(values), tokenizer, where
        self._found: dict[bool, tuple[int, ...]] = {}

    def ids_after(self, prompt: str) -> tuple[int, ...]:
        """Token id of each answer as it would continue `prompt`: with a space before it, unless the
        prompt ends in space or a marker.

        Where answers are no single token that way, the other way is tried. Raises ConfigError
        naming the tokens when neither will do.
        """
        spaced = (
            bool(prompt)
            and not prompt[-1].isspace()
            and not prompt.endswith(tuple(self._markers()))
        )
        if spaced not in self._found:
            self._found[spaced] = self._single(spaced)
        return self._found[spaced]

    def score(self, logprobs: Sequence[float]) -> tuple[float, dict[str, float]] | None:
        """(score, share of each answer), or None where the engine tells the probability of no
        answer.

        `logprobs`: one per answer, up to a constant; -inf where it is too small to be told. NaN
        gives NaN.
        """
        highest = max(logprobs, default=-math.inf)
        if highest == -math.inf:
            return None
        weights = [math.exp(logprob - highest) for logprob in logprobs]
        shares = {
            text: weight / math.fsum(weights)
            for text, weight in zip(self._values, weights, strict=True)
        }
        return math.fsum(share * self._values[text] for text, share in shares.items()), shares

    def _markers(self) -> list[str]:
        added = getattr(self._tokenizer, "get_added_vocab", dict)()
        return [token for token in {*self._tokenizer.all_special_tokens, *added} if token]

    def _single(self, spaced: bool) -> tuple[int, ...]:
        ways = [
            [self._ids(prefix + text) for text in self._values]
            for prefix in ((" ", "") if spaced else ("", " "))
        ]
        for split in ways:
            ids = [
                tokens[0]
                for tokens in split
                if len(tokens) == 1 and tokens[0] != self._tokenizer.unk_token_id
            ]
            if len(set(ids)) == len(self._values):
                return tuple(ids)
        raise ConfigError(
            [f"{self._where}.score_tokens: {problem}" for problem in self._problems(ways[0])]
        )

    def _problems(self, split: Sequence[Sequence[int]]) -> list[str]:
        """Why these answers will not do; where only the other way to write them fails, both are
        equal or unknown."""
        shown = {
            text: self._tokenizer.convert_ids_to_tokens(list(ids))
            for text, ids in zip(self._values, split, strict=True)
        }
        many = [
            f"'{text}' is {len(tokens)} tokens of the judge's tokenizer"
            f" ({', '.join(map(repr, tokens))}); each answer must be one token"
            for text, tokens in shown.items()
            if len(tokens) != 1
        ]
        names = ", ".join(
            f"'{text}' is {tokens[0]!r}" for text, tokens in shown.items() if len(tokens) == 1
        )
        return many or [
            "the judge's tokenizer does not tell the answers apart or does not know them"
            f" ({names}); choose others"
        ]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
