"""Kind `group`: a judge compares the responses of one prompt with each other; games become scores.

    pairwise     every pair (or a balanced part of them), each in both orders
    tournament   Swiss rounds of about n/2 pairs: n * log2(n) / 2 pairs instead of n * (n-1) / 2
    listwise     all responses at once, in several seeded orders; a ranking is a game for each pair
      in it

All prompts' comparisons of one round are sent together. Orders and pairings depend on the texts
alone, so a score can be made again. Two equal responses tie without being asked about.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rmrl.inference.scoring_base import Runner
from rmrl.rewards.judging.asking import conversation_text
from rmrl.rewards.judging.comparisons import (
    FLIP_RULES,
    Game,
    Pair,
    Schedule,
    all_pairs,
    bradley_terry,
    ranking_games,
    settle,
    swiss,
    tally,
    win_rates,
)
from rmrl.rewards.judging.parser import parser_problem
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.group_judge import Asking, GroupJudge
from rmrl.rewards.kinds.group_votes import Heard
from rmrl.rewards.kinds.rendering import Rendered
from rmrl.rewards.kinds.truncation import with_cuts
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult, Status

WAYS = ("pairwise", "tournament", "listwise")
NO_PREFERENCE = ("tie", "none")
AGGREGATES: Mapping[str, Callable[[int, Sequence[Game]], list[float | None]]] = {
    "win_rate": win_rates,
    "bradley_terry": bradley_terry,
}

ALONE = "it is the only response to its prompt: there is nothing to compare it with"


@dataclass(slots=True)
class _Table:
    """The responses to one prompt at play. `rows` are their numbers among all items; games count
    them from 0."""

    rows: list[int]
    texts: list[str]
    rng: random.Random
    schedule: Schedule | None = None
    pairs: list[Pair] = field(default_factory=list)
    """Of the round that is on."""
    games: list[Game] = field(default_factory=list)
    heard: list[tuple[tuple[int, ...], Heard]] = field(default_factory=list)
    """(numbers in the order shown, what came of it)."""
    flips: int = 0
    settled: int = 0
    """Pairs that were judged in every order asked for."""


class GroupReward:
    """Relative judgement: a response's score says how it compares with the others of its prompt,
    not how good it is."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        how: str = "pairwise"
        """pairwise, tournament or listwise."""
        aggregate: str = "win_rate"
        """win_rate (points per game, 0 .. 1) or bradley_terry (log-strengths centred at 0, larger
        where opponents were stronger)."""
        both_orders: bool = True
        """Each pair is judged in both orders. False: one order, drawn by the texts."""
        on_flip: str = "tie"
        """What a pair is worth whose two orders disagree: tie, judgebench (a win beside a tie is a
        win) or average."""
        max_pairs: int = 0
        """pairwise: pairs per prompt, at most; 0: all of them."""
        rounds: int = 0
        """tournament: rounds; 0: log2 of the number of responses, rounded up."""
        orders: int = 2
        """listwise: orders in which the responses are shown."""
        question: str = ""
        """What is asked where there is no drop-in; empty: which is better."""
        rubric: str = ""
        """What to judge by, in words, where there is no drop-in."""
        reasoning: bool = False
        """Without a drop-in: the judge writes why first. False: it can write nothing but its
        verdict."""
        ties: bool = True
        """Without a drop-in: "tie" is a verdict a pair may get."""
        no_preference: str = "tie"
        """Without a drop-in: what "both are equally good" and "neither is acceptable" count as, tie
        or none (no verdict)."""
        parser: str = ""
        """Regular expression that reads the verdict, instead of rm_postprocess: (?P<verdict>...) is
        A, B, tie or a ranking; other named groups are columns."""
        fence: bool = True
        """Responses stand between markers that they cannot contain."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate"}
    samples: ClassVar[bool] = True
    whole_groups: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._spec, self._context = spec, context
        self._options: GroupReward.Options = spec.options or self.Options()
        options = self._options
        asking = Asking(
            listwise=options.how == "listwise", question=options.question, rubric=options.rubric, reasoning=options.reasoning,
            ties=options.ties, fence=options.fence, no_preference=options.no_preference, parser=options.parser,
        )  # fmt: skip
        self._judge = GroupJudge(spec, context, asking)

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> GroupReward:
        return cls(spec, context)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """What is wrong with the entries by themselves."""
        problems = [
            f"{where}.{key}={getattr(options, key)}: give {' or '.join(known)}"
            for key, known in (
                ("how", WAYS),
                ("aggregate", tuple(AGGREGATES)),
                ("no_preference", NO_PREFERENCE),
                ("on_flip", FLIP_RULES),
            )
            if getattr(options, key) not in known
        ]
        problem = parser_problem(options.parser, "verdict")
        if problem:
            problems.append(f"{where}.parser={options.parser!r}: {problem}")
        for key, least in (("max_pairs", 0), ("rounds", 0), ("orders", 1)):
            if getattr(options, key) < least:
                problems.append(
                    f"{where}.{key}={getattr(options, key)}: give a whole number, at least {least}"
                )
        for key, way in (("max_pairs", "pairwise"), ("rounds", "tournament")):
            if getattr(options, key) > 0 and options.how != way:
                problems.append(
                    f"{where}.{key}={getattr(options, key)} belongs to how={way}, and"
                    f" how={options.how}: leave it out"
                )
        if options.on_flip != "tie" and (options.how == "listwise" or not options.both_orders):
            problems.append(
                f"{where}.on_flip={options.on_flip} is about pairs judged in both orders, and here"
                f" how={options.how} and both_orders={options.both_orders}: leave it out"
            )
        return problems

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item, from the games against the others of its group; a response that is
        alone in it is `skipped`."""
        tables = self._tables(items)
        if self._options.how == "listwise":
            await self._rank(tables, items)
        else:
            await self._play(tables, items)
        if self._orders_per_pair() > 1:
            self._context.counts.add(
                "position_flips", sum(t.flips for t in tables), sum(t.settled for t in tables)
            )
        results = [ScoreResult(value=None, status="skipped", detail=ALONE)] * len(items)
        for table in tables:
            for row, result in zip(table.rows, self._results(table), strict=True):
                results[row] = result
        left_out = [0] * len(items)
        for table in tables:
            for i, row in enumerate(table.rows):
                left_out[row] = sum(heard.left_out for shown, heard in table.heard if i in shown)
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What the judge is told, for each item the first comparison it takes part in; empty where
        there is none."""
        comparisons = [
            tuple(t.rows[i] for i in shown)
            for t in self._tables(items)
            for shown in self._first_comparisons(t)
        ]
        read = self._judge.render(items, comparisons)
        first = {row: k for k in reversed(range(len(comparisons))) for row in comparisons[k]}
        return [read[first[row]] if row in first else Rendered("", ()) for row in range(len(items))]

    # --- games

    def _tables(self, items: Sequence[ScoreItem]) -> list[_Table]:
        groups: dict[int, list[int]] = {}
        for row, item in enumerate(items):
            groups.setdefault(item.group, []).append(row)
        return [
            self._table([items[row] for row in rows], rows)
            for rows in groups.values()
            if len(rows) > 1
        ]

    def _table(self, items: Sequence[ScoreItem], rows: list[int]) -> _Table:
        texts = [item.response for item in items]
        content = "\0".join((conversation_text(items[0].rm_prompt), *texts)).encode(
            errors="surrogatepass"
        )
        table = _Table(rows, texts, random.Random(hashlib.sha256(content).digest()))
        options = self._options
        if options.how != "listwise":
            pairwise = options.how == "pairwise"
            table.schedule = (
                all_pairs(len(rows), at_most=options.max_pairs, rng=table.rng)
                if pairwise
                else swiss(len(rows), rounds=options.rounds, rng=table.rng)
            )
            table.pairs = next(table.schedule)
        return table

    def _first_comparisons(self, table: _Table) -> list[tuple[int, ...]]:
        if self._options.how == "listwise":
            return self._lists(table)
        return [shown for pair in table.pairs for shown in self._shown(table, pair)]

    def _shown(self, table: _Table, pair: Pair) -> list[Pair]:
        """The orders in which a pair is asked about; none for equal responses."""
        if table.texts[pair[0]] == table.texts[pair[1]]:
            return []
        turned = (pair[1], pair[0])
        return (
            [pair, turned]
            if self._options.both_orders
            else [pair if table.rng.random() < 0.5 else turned]
        )

    async def _play(self, tables: Sequence[_Table], items: Sequence[ScoreItem]) -> None:
        """Rounds, until every schedule has ended; one call for all tables each."""
        while any(table.pairs for table in tables):
            asked = [
                (table, pair, self._shown(table, pair)) for table in tables for pair in table.pairs
            ]
            comparisons = [
                tuple(table.rows[i] for i in shown)
                for table, _, orders in asked
                for shown in orders
            ]
            heard = iter(await self._judge.hear(items, comparisons) if comparisons else [])
            values: dict[int, list[float | None]] = {id(table): [] for table in tables}
            for table, pair, orders in asked:
                verdicts = [(shown, next(heard)) for shown in orders]
                values[id(table)].append(
                    _settled(table, pair, verdicts, rule=self._options.on_flip)
                )
            for table in tables:
                if table.pairs:
                    table.pairs = _next_round(table.schedule, values[id(table)])

    def _lists(self, table: _Table) -> list[tuple[int, ...]]:
        """Seeded orders of the whole group, the second being the first backwards so that no place
        is favoured over two of them."""
        orders: list[tuple[int, ...]] = []
        while len(orders) < self._options.orders:
            order = tuple(table.rng.sample(range(len(table.rows)), len(table.rows)))
            orders += [order, order[::-1]]
        return orders[: self._options.orders]

    async def _rank(self, tables: Sequence[_Table], items: Sequence[ScoreItem]) -> None:
        asked = [(table, shown) for table in tables for shown in self._lists(table)]
        comparisons = [tuple(table.rows[i] for i in shown) for table, shown in asked]
        heard = await self._judge.hear(items, comparisons) if comparisons else []
        for (table, shown), verdict in zip(asked, heard, strict=True):
            table.heard.append((shown, verdict))
            if verdict.scores is not None:
                table.games += ranking_games(shown, verdict.scores)
        for table in tables:
            _count_list_flips(table, self._options.orders)

    def _orders_per_pair(self) -> int:
        if self._options.how == "listwise":
            return self._options.orders
        return 2 if self._options.both_orders else 1

    # --- scores

    def _results(self, table: _Table) -> list[ScoreResult]:
        n = len(table.rows)
        values = AGGREGATES[self._options.aggregate](n, table.games)
        points, played = tally(n, table.games)
        games = [{"wins": points[i], "games": played[i]} for i in range(n)]
        return [_result(i, values[i], table, games[i] | _columns(i, table)) for i in range(n)]


def _settled(
    table: _Table, pair: Pair, heard: Sequence[tuple[Pair, Heard]], *, rule: str
) -> float | None:
    """The pair's value for its first response, noted down as a game where there is one."""
    table.heard += heard
    if not heard:  # equal texts
        table.games.append(Game(*pair, 0.5))
        return 0.5
    value, flipped = settle(
        [None if h.scores is None else h.scores[shown.index(pair[0])] for shown, h in heard], rule
    )
    if value is not None:
        table.games.append(Game(*pair, value))
        table.settled += 1
        table.flips += flipped
    return value


def _next_round(schedule: Schedule | None, values: Sequence[float | None]) -> list[Pair]:
    """[] when the schedule has ended."""
    assert schedule is not None
    try:
        return schedule.send(values)
    except StopIteration:
        return []


def _count_list_flips(table: _Table, orders: int) -> None:
    """A pair whose rankings, in every order shown, do not agree is a flip."""
    told: dict[Pair, list[float]] = {}
    for game in table.games:
        turned = game.first > game.second
        key = (game.second, game.first) if turned else (game.first, game.second)
        told.setdefault(key, []).append(1 - game.value if turned else game.value)
    whole = [values for values in told.values() if len(values) == orders]
    table.settled += len(whole)
    table.flips += sum(len(set(values)) > 1 for values in whole)


def _result(i: int, value: float | None, table: _Table, extra: Mapping[str, Any]) -> ScoreResult:
    own = [(shown, heard) for shown, heard in table.heard if i in shown]
    outputs = [
        output for shown, heard in own if shown[0] == i for output in heard.outputs
    ]  # each comparison is paid for once
    shared: dict[str, Any] = {
        "extra": extra,
        "rendered": own[0][1].rendered if own else "",
        "raw_text": "\n---\n".join(output.text for _, heard in own for output in heard.outputs),
        "tokens_in": sum(
            heard.outputs[0].tokens_in for shown, heard in own if shown[0] == i and heard.outputs
        ),
        "tokens_out": sum(output.tokens_out for output in outputs),
        "cached": bool(own) and all(output.cached for _, heard in own for output in heard.outputs),
    }
    if value is not None:
        return ScoreResult(value=value, **shared)
    status, detail = _why_none([heard for _, heard in own])
    return ScoreResult(value=None, status=status, detail=detail, **shared)


def _columns(i: int, table: _Table) -> dict[str, Any]:
    """What a parser read beside the verdicts, for each comparison that response `i` takes part
    in."""
    own = [heard.columns for shown, heard in table.heard if i in shown]
    names = {name: None for columns in own for name in columns}
    return {name: [columns.get(name) for columns in own] for name in names}


def _why_none(heard: Sequence[Heard]) -> tuple[Status, str]:
    """Why a response has no game."""
    failed = [each for each in heard if each.scores is None]
    if not failed:
        return (
            "skipped",
            (
                "max_pairs left it without a comparison; raise max_pairs to at least half the"
                " number of responses"
            ),
        )
    counts: Counter[Status] = Counter(each.status for each in failed)
    status = counts.most_common(1)[0][0]
    detail = next(each.detail for each in failed if each.status == status)
    return (
        status,
        (
            f"none of its pairs has a verdict, as {len(failed)} of its {len(heard)} comparisons"
            f" failed: {detail}"
        ),
    )
