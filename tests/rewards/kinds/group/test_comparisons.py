"""Games and what they are worth, by hand and against a published benchmark of judges."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds.group.comparisons import (
    FLIP_RULES,
    Game,
    Pair,
    Schedule,
    all_pairs,
    balanced_pairs,
    bradley_terry,
    ranking_games,
    settle,
    swiss,
    swiss_round,
    win_rates,
)

JUDGE_DATA = Path(__file__).resolve().parents[5] / "shared" / "data" / "judge"


def played(
    schedule: Schedule, strength: list[float], *, failing: frozenset[Pair] = frozenset()
) -> list[list[Pair]]:
    """All rounds, the stronger one winning each game."""
    rounds = [next(schedule)]
    while True:
        values = [
            None if pair in failing else float(strength[pair[0]] > strength[pair[1]])
            for pair in rounds[-1]
        ]
        try:
            rounds.append(schedule.send(values))
        except StopIteration:
            return rounds


def test_all_pairs_in_one_round() -> None:
    (pairs,) = played(all_pairs(4, at_most=0, rng=random.Random(0)), [1, 2, 3, 4])
    assert pairs == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("n", range(2, 10))
def test_a_part_of_the_pairs_is_balanced(n: int) -> None:
    everything = n * (n - 1) // 2
    for count in range(1, everything + 3):
        pairs = balanced_pairs(n, count, random.Random(count))
        assert len({frozenset(pair) for pair in pairs}) == len(pairs) == min(count, everything)
        games = Counter(i for pair in pairs for i in pair)
        assert max(games[i] for i in range(n)) - min(games[i] for i in range(n)) <= 2
        if count >= n - 1:
            assert connected(n, pairs)


def connected(n: int, pairs: list[Pair]) -> bool:
    reached, frontier = {0}, {0}
    while frontier:
        frontier = {b for pair in pairs for a, b in (pair, pair[::-1]) if a in frontier} - reached
        reached |= frontier
    return len(reached) == n


@pytest.mark.parametrize("n", range(2, 18))
def test_a_swiss_tournament_is_short_and_never_repeats_a_pair(n: int) -> None:
    strength = [float(i) for i in range(n)]
    rounds = played(swiss(n, rounds=0, rng=random.Random(n)), strength)
    pairs = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(pairs) == len(set(pairs)) <= math.ceil(math.log2(n)) * (n // 2)
    games = [
        Game(*pair, float(strength[pair[0]] > strength[pair[1]]))
        for pairs in rounds
        for pair in pairs
    ]
    rates = win_rates(n, games)
    assert rates[n - 1] == 1.0
    assert rates[0] == 0.0


def test_in_a_swiss_tournament_those_with_equal_points_meet() -> None:
    rounds = played(swiss(16, rounds=0, rng=random.Random(1)), [float(i) for i in range(16)])
    assert [len(pairs) for pairs in rounds] == [8, 8, 8, 8]
    points = Counter(max(pair) for pair in rounds[0])
    assert all(points[i] == points[j] for i, j in rounds[1])
    points += Counter(max(pair) for pair in rounds[1])
    assert [points[i] + points[j] for i, j in rounds[2]].count(
        4
    ) == 2  # the four unbeaten ones among themselves


def test_a_tournament_goes_on_without_a_verdict() -> None:
    rounds = played(
        swiss(4, rounds=3, rng=random.Random(0)),
        [1, 2, 3, 4],
        failing=frozenset(next(swiss(4, rounds=3, rng=random.Random(0)))),
    )
    assert len(rounds) == 3


def test_three_rounds_of_two_end_after_the_only_pair() -> None:
    assert len(played(swiss(2, rounds=3, rng=random.Random(0)), [1, 2])) == 1


@pytest.mark.parametrize(
    ("values", "settled"),
    [
        ([1.0, 1.0], (1.0, False)),
        ([0.0, 0.0], (0.0, False)),
        ([1.0, 0.0], (0.5, True)),
        ([1.0, 0.5], (0.5, True)),
        ([0.5, 0.5], (0.5, False)),
        ([0.75, 1.0], (0.875, False)),  # both prefer the first
        ([1.0, None], (None, False)),
        ([None, None], (None, False)),
        ([1.0], (1.0, False)),
    ],
)
def test_values_of_two_orders(
    values: list[float | None], settled: tuple[float | None, bool]
) -> None:
    assert settle(values) == settled


@pytest.mark.parametrize(
    ("values", "rule", "value"),
    [
        ([1.0, 0.5], "judgebench", 1.0),  # a win beside a tie is a win
        ([0.5, 0.0], "judgebench", 0.0),
        (
            [0.5, 0.75],
            "judgebench",
            0.75,
        ),  # the tie takes no side, so the other verdict is the pair's
        ([1.0, 0.0], "judgebench", 0.5),
        ([1.0, 0.5], "average", 0.75),
        ([0.5, 0.0], "average", 0.25),
        ([1.0, 0.0], "average", 0.5),
    ],
)
def test_the_value_of_a_flip_is_a_choice_and_it_stays_a_flip(
    values: list[float | None], rule: str, value: float
) -> None:
    assert settle(values, rule) == (value, True)


@pytest.mark.parametrize("rule", FLIP_RULES)
def test_no_rule_changes_what_both_orders_agree_on_or_what_is_missing(rule: str) -> None:
    assert settle([1.0, 1.0], rule) == (1.0, False)
    assert settle([0.5, 0.5], rule) == (0.5, False)
    assert settle([1.0, None], rule) == (None, False)


def test_a_ranking_is_a_game_for_each_pair() -> None:
    # Shown in the order 2, 0, 1 and scored 5, 1, 5: 2 ties with 1, and both beat 0.
    assert ranking_games([2, 0, 1], [5.0, 1.0, 5.0]) == [
        Game(2, 0, 1.0),
        Game(2, 1, 0.5),
        Game(0, 1, 0.0),
    ]


def test_win_rates() -> None:
    # 0 beats 1, ties 2; 3 has no game.
    assert win_rates(4, [Game(0, 1, 1.0), Game(2, 0, 0.5)]) == [0.75, 0.0, 0.5, None]


def games(*results: tuple[int, int, int, int]) -> list[Game]:
    """(i, j, games won by i, games won by j)."""
    return [
        game
        for i, j, won, lost in results
        for game in [Game(i, j, 1.0)] * won + [Game(j, i, 1.0)] * lost
    ]


def test_bradley_terry_finds_the_strengths_that_made_the_games() -> None:
    # Strengths 4 : 2 : 1, each pair playing exactly as expected: 4/(4+2) = 2/3, 2/(2+1) = 2/3,
    # 4/(4+1) = 4/5.
    logs = bradley_terry(3, games((0, 1, 2, 1), (1, 2, 2, 1), (0, 2, 4, 1)), prior=0.0)
    assert logs == pytest.approx([math.log(2), 0.0, -math.log(2)], abs=1e-6)


def test_with_a_prior_the_unbeaten_stay_finite() -> None:
    # A beats B and C, B beats C, prior of one game. By symmetry s_B = 1 and s_C = 1 / s_A. Points
    # of A with half the prior, 2.5, are
    # those expected of it: 2 s/(s+1) [B and the prior] + s/(s + 1/s) [C]  <=>  s^3 - 3 s^2 - s - 5
    # = 0  <=>  s = 3.64936
    logs = bradley_terry(3, games((0, 1, 1, 0), (1, 2, 1, 0), (0, 2, 1, 0)), prior=1.0)
    s = math.exp(logs[0] or 0.0)
    assert s**3 - 3 * s**2 - s - 5 == pytest.approx(0.0, abs=1e-4)
    assert logs == pytest.approx([math.log(3.64936), 0.0, -math.log(3.64936)], abs=1e-4)


def slow_strengths(n: int, games: list[Game], prior: float) -> list[float]:
    """The same model by minorization-maximization: s_i <- points_i / sum over games of 1 / (s_i +
    s_j)."""
    points, strength = [prior / 2] * n, [1.0] * n
    for game in games:
        points[game.first] += game.value
        points[game.second] += 1 - game.value
    for _ in range(3000):
        expected = [prior / (s + 1) for s in strength]
        for game in games:
            share = 1 / (strength[game.first] + strength[game.second])
            expected[game.first] += share
            expected[game.second] += share
        strength = [point / each for point, each in zip(points, expected, strict=True)]
    mean = sum(map(math.log, strength)) / n
    return [math.log(s) - mean for s in strength]


@pytest.mark.parametrize("seed", range(6))
def test_two_ways_to_the_maximum_agree(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), *(tuple(rng.sample(range(5), 2)) for _ in range(8))]
    games = [Game(i, j, rng.choice([0.0, 0.5, 1.0, float(i < j)])) for i, j in pairs]
    assert bradley_terry(5, games) == pytest.approx(slow_strengths(5, games, 0.5), abs=1e-5)


@pytest.mark.parametrize("n", [2, 8, 32])
def test_a_perfect_order_is_found_in_order(n: int) -> None:
    logs = bradley_terry(n, games(*((i, j, 1, 0) for i in range(n) for j in range(i + 1, n))))
    assert all(a > b for a, b in itertools.pairwise(logs))  # type: ignore[operator]
    assert logs == pytest.approx([-x for x in reversed(logs) if x is not None], abs=1e-6)


def test_beating_the_strong_counts_for_more() -> None:
    # 0 and 3 both won one of one; 0 won against 1, who beat 2, and 3 won against 2.
    logs = bradley_terry(4, games((0, 1, 1, 0), (1, 2, 1, 0), (3, 2, 1, 0)))
    assert logs[0] is not None
    assert logs[3] is not None
    assert logs[0] > logs[3]


def test_who_did_not_play_has_no_strength() -> None:
    assert bradley_terry(3, games((0, 2, 1, 1))) == [pytest.approx(0.0), None, pytest.approx(0.0)]
    assert bradley_terry(2, []) == [None, None]


def records(name: str) -> list[dict[str, Any]]:
    path = JUDGE_DATA / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: the published verdicts are not part of the project")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_flips_are_what_was_published_as_disagreement_of_the_orders() -> None:
    """Real judges' verdicts in both orders -> agreement, and accuracy averaged over the orders, for
    every judge and subset."""
    verdicts: dict[tuple[str, ...], list[tuple[float | None, bool]]] = defaultdict(list)
    share = {"1": 1.0, "2": 0.0, None: 0.5}  # None: the judge had no preference
    for record in records("llmbar_judge_outputs.jsonl"):
        key = (record["evaluator"], record["mode"], record["subset"])
        verdicts[key].append(settle([share[record["winner"]], share[record["winner_swapped"]]]))
    published = records("llmbar_published_stats.jsonl")
    for row in published:
        settled = verdicts[row["evaluator"], row["mode"], row["subset"]]
        agreeing, pairs = (int(number) for number in row["equal"].split("=")[0].split("/"))
        assert len(settled) == pairs
        assert len(settled) - sum(flipped for _, flipped in settled) == agreeing, row
    assert len(published) == len(verdicts) == 70


def test_a_round_pairs_neighbours_that_have_not_met():
    met = {(0, 1)}
    byes: set[int] = set()
    assert swiss_round([0, 1, 2, 3], met, byes) == [(0, 2), (1, 3)]
    assert met == {(0, 1), (0, 2), (1, 3)}
    assert byes == set()


def test_the_last_response_without_a_bye_gets_it():
    byes = {2}
    assert swiss_round([0, 1, 2], set(), byes) == [(0, 2)]
    assert byes == {1, 2}
