"""The games among the responses to one prompt, and the results that follow from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rmrl.rewards.kinds.group.comparisons import Game, Pair, Schedule, ranking_games, settle, tally
from rmrl.rewards.kinds.group.votes import Outcome
from rmrl.types import ScoreResult, Status


@dataclass(slots=True)
class Table:
    """Games among the responses to one prompt. `rows` are their numbers among all items; games
    count them from 0."""

    rows: list[int]
    texts: list[str]
    rng: random.Random
    schedule: Schedule | None = None
    pairs: list[Pair] = field(default_factory=list)
    """Pairs of the current round."""
    games: list[Game] = field(default_factory=list)
    outcomes: list[tuple[tuple[int, ...], Outcome]] = field(default_factory=list)
    """(numbers in the displayed order, outcome) of each comparison."""
    flips: int = 0
    settled: int = 0
    """Pairs with a verdict in every configured order."""

    def of(self, number: int) -> list[Outcome]:
        """The outcomes of the comparisons that a response takes part in."""
        return [outcome for order, outcome in self.outcomes if number in order]

    def add_pair(
        self, pair: Pair, verdicts: Sequence[tuple[Pair, Outcome]], *, rule: str
    ) -> float | None:
        """Settle a pair by its verdicts, one per order; none for two equal texts, which tie.

        Returns the first response's share of the point, which is added to the games, or None where
        a verdict is missing. `rule`: one of FLIP_RULES.
        """
        self.outcomes += verdicts
        if not verdicts:
            self.games.append(Game(*pair, 0.5))
            return 0.5
        shares: list[float | None] = []
        for order, outcome in verdicts:
            share = None
            if outcome.scores is not None:
                share = outcome.scores[order.index(pair[0])]
            shares.append(share)
        value, flipped = settle(shares, rule)
        if value is not None:
            self.games.append(Game(*pair, value))
            self.settled += 1
            self.flips += flipped
        return value

    def add_ranking(self, order: tuple[int, ...], outcome: Outcome) -> None:
        """Add the comparison of the whole group in one order: a game for each pair, if it has a
        ranking."""
        self.outcomes.append((order, outcome))
        if outcome.scores is not None:
            self.games += ranking_games(order, outcome.scores)

    def advance(self, values: Sequence[float | None]) -> None:
        """Replace `pairs` by those of the next round, [] when the schedule has ended. `values` are
        those of the current pairs."""
        assert self.schedule is not None
        try:
            self.pairs = self.schedule.send(values)
        except StopIteration:
            self.pairs = []

    def count_list_flips(self, orders: int) -> None:
        """Count a pair whose rankings disagree as a flip, among the pairs ranked in all `orders`
        orders."""
        values_of: dict[Pair, list[float]] = {}
        for game in self.games:
            if game.first < game.second:
                values_of.setdefault((game.first, game.second), []).append(game.value)
            else:
                values_of.setdefault((game.second, game.first), []).append(1 - game.value)
        for values in values_of.values():
            if len(values) == orders:
                self.settled += 1
                self.flips += len(set(values)) > 1

    def columns(self) -> list[dict[str, Any]]:
        """Further columns of each response: `wins`, `games`, and those of a parser, which have an
        entry for each comparison that the response takes part in."""
        points, played = tally(len(self.rows), self.games)
        columns: list[dict[str, Any]] = []
        for i in range(len(self.rows)):
            entries: dict[str, Any] = {"wins": points[i], "games": played[i]}
            verdicts = [outcome.columns for outcome in self.of(i)]
            for name in dict.fromkeys(chain.from_iterable(verdicts)):
                entries[name] = [verdict.get(name) for verdict in verdicts]
            columns.append(entries)
        return columns

    def result(self, i: int, value: float | None, extra: dict[str, Any]) -> ScoreResult:
        """The result of response `i` with the score `value`. None: it has no game."""
        texts: list[str] = []
        tokens_in = 0
        tokens_out = 0
        outcomes = self.of(i)
        cached = bool(outcomes)
        for order, outcome in self.outcomes:
            if i not in order:
                continue
            # Each comparison counts once, for its first response.
            counts = order[0] == i
            if counts and outcome.outputs:
                tokens_in += outcome.outputs[0].tokens_in
            for output in outcome.outputs:
                texts.append(output.text)
                cached = cached and output.cached
                if counts:
                    tokens_out += output.tokens_out
            for answer in outcome.answers:
                cached = cached and answer.cached
                if counts:
                    tokens_in += answer.tokens_in
                    tokens_out += answer.tokens_out
            for scored in outcome.further:
                if counts:
                    tokens_in += scored.tokens_in
                if scored.status == "ok":
                    cached = cached and scored.cached
        shared: dict[str, Any] = {
            "extra": extra,
            "rendered": outcomes[0].rendered if outcomes else "",
            "raw_text": "\n---\n".join(texts),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cached": cached,
        }
        if value is not None:
            return ScoreResult(value=value, **shared)
        status, detail = why_no_game(outcomes)
        return ScoreResult(value=None, status=status, detail=detail, **shared)


def why_no_game(outcomes: Sequence[Outcome]) -> tuple[Status, str]:
    """(status, sentence) of a response without a game; `outcomes` are those of its comparisons."""
    details: dict[Status, list[str]] = {}
    for outcome in outcomes:
        if outcome.scores is None:
            details.setdefault(outcome.status, []).append(outcome.detail)
    if not details:
        detail = (
            "max_pairs left it without a comparison; raise max_pairs to at least half the number of"
            " responses"
        )
        return "skipped", detail
    failures = sum(map(len, details.values()))
    status = max(details, key=lambda each: len(details[each]))
    detail = (
        f"none of its pairs has a verdict, as {failures} of its {len(outcomes)} comparisons"
        f" failed: {details[status][0]}"
    )
    return status, detail
