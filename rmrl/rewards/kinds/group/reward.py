"""Kind `group`: a judge compares the responses of one prompt with each other; games become scores.

    pairwise     every pair (or a balanced part of them), each in both orders
    tournament   Swiss rounds of about n/2 pairs: n * log2(n) / 2 pairs instead of n * (n-1) / 2
    listwise     all responses at once, in several seeded orders; a ranking is a game for each pair
                 in it

All prompts' comparisons of one round are sent together. Orders and pairings depend on the texts
alone, so a score is reproducible. Two equal responses tie without a comparison.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rmrl.config.schema.fields import at_least, choice
from rmrl.inference.reward_engine_base import Runner
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.judging.parser import parser_problem
from rmrl.rewards.kinds.group.comparison_table import Table
from rmrl.rewards.kinds.group.comparisons import (
    FLIP_RULES,
    Game,
    Pair,
    all_pairs,
    bradley_terry,
    swiss,
    win_rates,
)
from rmrl.rewards.kinds.group.judge import GroupJudge, JudgeSettings
from rmrl.rewards.kinds.group.own_turns import with_own_turns
from rmrl.rewards.kinds.group.votes import Outcome
from rmrl.rewards.kinds.judge.asked import asking_problem
from rmrl.rewards.kinds.judge.asking import conversation_text
from rmrl.rewards.kinds.judge.meta_votes import (
    MetaEntries,
    Responses,
    keep_problem,
    meta_problems,
)
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.dropin_calls import take
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.truncation import with_cuts
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

WAYS = ("pairwise", "tournament", "listwise")
NO_PREFERENCE = ("tie", "none")
AGGREGATES: Mapping[str, Callable[[int, Sequence[Game]], list[float | None]]] = {
    "win_rate": win_rates,
    "bradley_terry": bradley_terry,
}

ALONE = "it is the only response to its prompt: there is nothing to compare it with"


class GroupReward(Kind):
    """Relative judgement: a response's score compares it with the others of its prompt and is no
    measure of quality by itself."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        how: str = choice("pairwise", among=WAYS)
        """Way in which the responses to a prompt are compared."""
        aggregate: str = choice("win_rate", among=tuple(AGGREGATES))
        """win_rate (points per game, 0 .. 1) or bradley_terry (log-strengths centred at 0, larger
        where opponents were stronger)."""
        both_orders: bool = True
        """Each pair is judged in both orders. False: one order, drawn by the texts."""
        on_flip: str = choice("tie", among=FLIP_RULES)
        """Value of a pair whose two orders disagree: tie, judgebench (a win beside a tie is a win)
        or average."""
        max_pairs: int = at_least(0, least=0)
        """pairwise: pairs per prompt, at most. 0: all of them."""
        rounds: int = at_least(0, least=0)
        """tournament: rounds. 0: log2 of the response count, rounded up."""
        orders: int = at_least(2, least=1)
        """listwise: orders in which the responses are displayed."""
        question: str = ""
        """The question without a drop-in. empty: which is better."""
        rubric: str = ""
        """Criteria of the verdict, in words, without a drop-in."""
        reasoning: bool = False
        """Without a drop-in: the judge writes its reasons first. False: it can write nothing but
        its verdict."""
        ties: bool = True
        """Without a drop-in: "tie" is a verdict a pair may get."""
        no_preference: str = choice("tie", among=NO_PREFERENCE)
        """Without a drop-in: verdict of "both are equally good" and "neither is acceptable", tie or
        none (no verdict)."""
        verdict: str = choice("parse", among=("parse", "ask"))
        """With `reasoning`, of pairs: parse reads the verdict from the judge's text, ask asks for
        it behind the text."""
        parser: str = ""
        """Regular expression that reads the verdict, instead of rm_postprocess: (?P<verdict>...) is
        A, B, tie or a ranking; other named groups are columns."""
        fence: bool = True
        """Responses stand between markers that they cannot contain."""
        meta: dict[str, Any] = field(default_factory=dict)
        """{path, keep}: a scalar model that reads the sampling.n votes' texts on a
        comparison. Only the `keep` votes that it scores highest count. As of kind generative."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate", "meta": "pooling"}
    further: ClassVar[Mapping[str, type]] = {"meta": MetaEntries}
    labels_of: ClassVar[str] = "meta"
    samples: ClassVar[bool] = True
    whole_groups: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        super().__init__(spec, context)
        self._options: GroupReward.Options = spec.options
        options = self._options
        settings = JudgeSettings(
            listwise=options.how == "listwise",
            question=options.question,
            rubric=options.rubric,
            reasoning=options.reasoning,
            ties=options.ties,
            fence=options.fence,
            no_preference=options.no_preference,
            parser=options.parser,
            keep=options.meta.get("keep", 0),
            asks=options.verdict == "ask",
        )
        self._judge = GroupJudge(spec, context, settings)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Entries that do not go together, one sentence each."""
        problems: list[str] = []
        if options.verdict == "ask" and (options.how == "listwise" or not options.reasoning):
            problems.append(
                f"{where}.verdict=ask asks for the verdict on a pair behind the judge's reasons,"
                f" and here how={options.how} and reasoning={options.reasoning}: give"
                f" how=pairwise and reasoning=true, or leave verdict=parse"
            )
        problems += meta_problems(options.meta, f"{where}.meta")
        problem = parser_problem(options.parser, "verdict")
        if problem:
            problems.append(f"{where}.parser={options.parser!r}: {problem}")
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

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Options, sampling: Sampling) -> str:
        """Say why the judge cannot be asked, or why a second model has no votes to choose from. The
        answer ends a sentence, "" without a problem."""
        problem = asking_problem(
            options.verdict,
            sampling,
            reads=dropin is not None and dropin.postprocess is not None,
            entries=["parser"] * bool(options.parser),
        )
        if problem:
            return problem
        return keep_problem(options.meta, sampling.n, "sampling.n")

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item, from the games against the others of its group. A response that is
        alone in it is `skipped`."""
        items = with_own_turns(items)
        tables = self._tables(items)
        if self._options.how == "listwise":
            await self._rank(tables, items)
        else:
            await self._play(tables, items)
        options = self._options
        several_orders = options.both_orders
        if options.how == "listwise":
            several_orders = options.orders > 1
        if several_orders:
            # Also without a table, so that the share is logged in every step.
            self._context.counts.add("position_flips", 0, 0)
        results = [ScoreResult(value=None, status="skipped", detail=ALONE)] * len(items)
        left_out = [0] * len(items)
        for table in tables:
            if several_orders:
                self._context.counts.add("position_flips", table.flips, table.settled)
            values = AGGREGATES[options.aggregate](len(table.rows), table.games)
            columns = table.columns()
            for i, row in enumerate(table.rows):
                results[row] = table.result(i, values[i], columns[i])
                for outcome in table.of(i):
                    left_out[row] += outcome.left_out
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The judge's input of the first comparison of each item, empty for an item without one."""
        items = with_own_turns(items)
        comparisons: list[tuple[int, ...]] = []
        for table in self._tables(items):
            orders: list[tuple[int, ...]] = []
            if self._options.how == "listwise":
                orders = self._lists(table)
            for pair in table.pairs:
                orders += self._orders(table, pair)
            for order in orders:
                comparisons.append(tuple(take(table.rows, order)))
        rendered = [Rendered("", ())] * len(items)
        cases = self._judge.cases([tuple(take(items, rows)) for rows in comparisons])
        # Backwards, so that the first comparison of an item remains.
        for rows, case in reversed(list(zip(comparisons, cases, strict=True))):
            for row in rows:
                rendered[row] = case.read
        return rendered

    # --- games

    def _tables(self, items: Sequence[ScoreItem]) -> list[Table]:
        groups: dict[int, list[int]] = {}
        for row, item in enumerate(items):
            groups.setdefault(item.group, []).append(row)
        options = self._options
        tables: list[Table] = []
        for rows in groups.values():
            if len(rows) == 1:
                continue
            texts = [items[row].response for row in rows]
            content = "\0".join((conversation_text(items[rows[0]].rm_prompt), *texts))
            seed = hashlib.sha256(content.encode(errors="surrogatepass")).digest()
            table = Table(rows, texts, random.Random(seed))
            if options.how == "pairwise":
                table.schedule = all_pairs(len(rows), at_most=options.max_pairs, rng=table.rng)
            elif options.how == "tournament":
                table.schedule = swiss(len(rows), rounds=options.rounds, rng=table.rng)
            if table.schedule is not None:
                table.pairs = next(table.schedule)
            tables.append(table)
        return tables

    def _orders(self, table: Table, pair: Pair) -> list[Pair]:
        """The orders in which a pair is displayed; none for equal responses."""
        if table.texts[pair[0]] == table.texts[pair[1]]:
            return []
        turned = (pair[1], pair[0])
        if self._options.both_orders:
            return [pair, turned]
        return [pair if table.rng.random() < 0.5 else turned]

    async def _play(self, tables: Sequence[Table], items: Sequence[ScoreItem]) -> None:
        """Play rounds until every schedule has ended, with one call for all tables per round."""
        while any(table.pairs for table in tables):
            rounds: list[tuple[Table, Pair, list[Pair]]] = []
            comparisons: list[Responses] = []
            for table in tables:
                for pair in table.pairs:
                    orders = self._orders(table, pair)
                    rounds.append((table, pair, orders))
                    for order in orders:
                        comparisons.append(tuple(take(items, take(table.rows, order))))
            outcomes: list[Outcome] = []
            if comparisons:
                outcomes = await self._judge.compare(comparisons)
            remaining = iter(outcomes)
            values: defaultdict[int, list[float | None]] = defaultdict(list)
            for table, pair, orders in rounds:
                verdicts = [(order, next(remaining)) for order in orders]
                value = table.add_pair(pair, verdicts, rule=self._options.on_flip)
                values[id(table)].append(value)
            for table in tables:
                if table.pairs:
                    table.advance(values[id(table)])

    def _lists(self, table: Table) -> list[tuple[int, ...]]:
        """Seeded orders of the whole group, the second being the first backwards so that no place
        is favoured over two of them."""
        orders: list[tuple[int, ...]] = []
        while len(orders) < self._options.orders:
            order = tuple(table.rng.sample(range(len(table.rows)), len(table.rows)))
            orders += [order, order[::-1]]
        return orders[: self._options.orders]

    async def _rank(self, tables: Sequence[Table], items: Sequence[ScoreItem]) -> None:
        orders: list[tuple[Table, tuple[int, ...]]] = []
        comparisons: list[Responses] = []
        for table in tables:
            for order in self._lists(table):
                orders.append((table, order))
                comparisons.append(tuple(take(items, take(table.rows, order))))
        outcomes: list[Outcome] = []
        if comparisons:
            outcomes = await self._judge.compare(comparisons)
        for (table, order), outcome in zip(orders, outcomes, strict=True):
            table.add_ranking(order, outcome)
        for table in tables:
            table.count_list_flips(self._options.orders)
