"""The games among the responses to one prompt, and the results that follow from them."""

from __future__ import annotations

import random

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.kinds.group.comparison_table import Table, why_no_game
from rmrl.rewards.kinds.group.comparisons import Game, all_pairs
from rmrl.rewards.kinds.group.votes import Outcome


def table(count: int = 3) -> Table:
    return Table(list(range(count)), ["a", "b", "c"][:count], random.Random(0))


def outcome(*scores: float, **entries: object) -> Outcome:
    output = TextOutput("A", "stop", 10, 2)
    return Outcome(scores or None, "input", (output,), **entries)  # type: ignore[arg-type]


def test_a_pair_that_wins_in_both_orders_is_one_game():
    games = table()
    value = games.add_pair(
        (0, 1), [((0, 1), outcome(1.0, 0.0)), ((1, 0), outcome(0.0, 1.0))], rule="tie"
    )
    assert value == 1.0
    assert games.games == [Game(0, 1, 1.0)]
    assert (games.settled, games.flips) == (1, 0)


def test_a_flip_is_a_tie_under_the_rule_tie():
    games = table()
    value = games.add_pair(
        (0, 1), [((0, 1), outcome(1.0, 0.0)), ((1, 0), outcome(1.0, 0.0))], rule="tie"
    )
    assert value == 0.5
    assert (games.settled, games.flips) == (1, 1)


def test_a_pair_without_a_verdict_is_no_game_and_equal_texts_tie():
    games = table()
    failed = outcome(status="unparseable", detail="no verdict")
    assert games.add_pair((0, 1), [((0, 1), failed)], rule="tie") is None
    assert games.add_pair((1, 2), [], rule="tie") == 0.5
    assert games.games == [Game(1, 2, 0.5)]


def test_rankings_that_disagree_on_a_pair_are_a_flip():
    games = table()
    games.add_ranking((0, 1, 2), outcome(2.0, 1.0, 0.0))
    games.add_ranking((2, 1, 0), outcome(0.0, 2.0, 1.0))
    games.count_list_flips(2)
    # 0 before 1 in the first ranking and behind it in the second; 2 is last in both.
    assert (games.settled, games.flips) == (3, 1)


def test_the_schedule_ends_with_its_last_round():
    games = table()
    games.schedule = all_pairs(3, at_most=0, rng=games.rng)
    games.pairs = next(games.schedule)
    assert games.pairs == [(0, 1), (0, 2), (1, 2)]
    games.advance([1.0, 1.0, 0.0])
    assert games.pairs == []


def test_columns_are_points_games_and_those_of_a_parser():
    games = table(2)
    games.add_pair((0, 1), [((0, 1), outcome(1.0, 0.0, columns={"why": "short"}))], rule="tie")
    games.add_pair((0, 1), [((1, 0), outcome(0.5, 0.5))], rule="tie")
    assert games.columns() == [
        {"wins": 1.5, "games": 2, "why": ["short", None]},
        {"wins": 0.5, "games": 2, "why": ["short", None]},
    ]


def test_tokens_of_a_comparison_count_for_its_first_response():
    games = table(2)
    games.add_pair((0, 1), [((0, 1), outcome(1.0, 0.0))], rule="tie")
    first = games.result(0, 1.0, {})
    second = games.result(1, 0.0, {})
    assert (first.tokens_in, first.tokens_out, first.raw_text) == (10, 2, "A")
    assert (second.tokens_in, second.tokens_out, second.raw_text) == (0, 0, "A")


def test_the_most_frequent_failure_is_the_status():
    late = outcome(status="timeout", detail="late")
    vague = outcome(status="unparseable", detail="vague")
    status, detail = why_no_game([late, vague, vague])
    assert status == "unparseable"
    assert detail.endswith("3 of its 3 comparisons failed: vague")
    assert why_no_game([])[0] == "skipped"
