"""`votes_until` of a judge: votes are sampled in rounds, and a response whose votes agree is not
asked about again.

    {agree: 3, at_most: 8}: 3 votes each. Where not 3 of them are equal, as many more as could make
    it 3, and so on, up to 8

So clear responses cost `agree` votes and disputed ones up to `at_most` (adaptive self-consistency:
Aggarwal et al., Let's Sample Step by Step, EMNLP 2023, stop a vote by a test of its majority; here
the number that must agree is given). Every round has a seed of its own, so the same votes are drawn
again wherever the engine draws the same by its seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.config.plain_checks import field_problems
from rmrl.config.schema.fields import at_least, not_negative
from rmrl.errors import ConfigError
from rmrl.rewards.specs.values import known_entries
from rmrl.types import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class VotesUntil:
    """When a judge has voted enough on one response."""

    agree: int = at_least(least=2)
    """Votes that must agree. The first round has as many."""
    at_most: int
    within: float = not_negative(0.0)
    """Votes agree where the largest minus the smallest is not above this."""

    def agreed(self, values: Sequence[float | None]) -> bool:
        """Return whether enough of the votes agree."""
        return largest_agreement(values, self.within) >= self.agree

    def more(self, values: Sequence[float | None], asked: int) -> int:
        """Return the number of votes to ask for next: the fewest that could bring agreement, 0
        where it is reached, or `at_most` are asked. `values`: the votes so far, None where one
        could not be read."""
        lacking = self.agree - largest_agreement(values, self.within)
        return max(min(lacking, self.at_most - asked), 0)

    def sampling(self, sampling: Sampling | None, count: int, number: int) -> Sampling:
        """Return the sampling of `count` votes in round `number`, from 0, with its seed. A
        sampling.seed of None counts as 0."""
        assert sampling is not None
        text = f"{sampling.seed or 0} {number}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
        return dataclasses.replace(sampling, n=count, seed=int.from_bytes(digest, "big") >> 1)


def largest_agreement(values: Sequence[float | None], within: float) -> int:
    """Return the most votes of which no two are further apart than `within`."""
    ordered = sorted(value for value in values if value is not None)
    largest = 0
    start = 0
    for end, value in enumerate(ordered):
        # 0.4 - 0.3 is a little above 0.1 in binary.
        while value - ordered[start] > within + 1e-9 * max(abs(value), abs(ordered[start])):
            start += 1
        largest = max(largest, end - start + 1)
    return largest


def votes_until_problems(entries: Mapping[str, Any], where: str) -> list[str]:
    """Return the problems of what was typed, one sentence each; {} is none."""
    if not entries:
        return []
    example = "{agree: 3, at_most: 8}"
    try:
        until = VotesUntil(**known_entries(entries, VotesUntil, where, example=example))
    except ConfigError as error:
        return error.problems
    problems = list(field_problems(until, f"{where}."))
    if until.agree > until.at_most:
        problems.append(f"{where}: at_most={until.at_most} is below agree={until.agree}")
    return problems


def sampling_problem(entries: Mapping[str, Any], sampling: Sampling, min_votes: int) -> str:
    """Return why a judge cannot vote in rounds with this sampling, as the end of a sentence; ""
    without a problem. `entries` are without problems of their own."""
    if sampling.n > 1:
        return (
            f"has sampling.n={sampling.n} votes at once and votes_until, which asks for votes in"
            " rounds: leave one of them out"
        )
    if sampling.temperature == 0:
        return (
            "asks for votes in rounds (votes_until) with sampling.temperature=0, which gives equal"
            " ones: give a temperature above 0"
        )
    if min_votes > entries["at_most"]:
        return (
            f"needs min_votes={min_votes} of votes_until.at_most={entries['at_most']} votes: raise"
            " at_most or lower min_votes"
        )
    return ""
