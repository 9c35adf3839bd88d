"""Comparisons of the responses to one prompt: pairings, the value of verdicts in two orders, and
scores out of games.

Responses are numbered 0 .. n-1. A schedule is a generator: it yields rounds of pairs, and `send`
takes, for each pair, the first one's share of the point (1 won, 0 lost, 0.5 a tie, None without a
verdict).
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import combinations, compress

import numpy as np

Pair = tuple[int, int]
Schedule = Generator[list[Pair], Sequence[float | None], None]

PRIOR_GAMES = 0.5
"""Games of each response against an imaginary one of average strength, half of them won: keeps the
strength of unbeaten ones finite."""


@dataclass(frozen=True, slots=True)
class Game:
    """One comparison that has a verdict."""

    first: int
    second: int
    value: float
    """Share of the point that `first` got: 1, 0, or 0.5 for a tie."""


# --- pairings


def all_pairs(n: int, *, at_most: int, rng: random.Random) -> Schedule:
    """Every pair once, in one round. With `at_most` > 0 that many pairs, such that all responses
    play about as often."""
    if at_most:
        yield balanced_pairs(n, at_most, rng)
    else:
        yield list(combinations(range(n), 2))


def balanced_pairs(n: int, count: int, rng: random.Random) -> list[Pair]:
    """`count` different pairs, or all where there are not so many.

    Responses form a shuffled circle; neighbours meet first, then those at distance two, and so on.
    From `count` = n - 1 on, games connect all responses with each other, and their numbers of games
    differ by at most 2.
    """
    order = rng.sample(range(n), n)
    pairs: list[Pair] = []
    for distance in range(1, n // 2 + 1):
        starts = [*range(0, n, 2), *range(1, n, 2)]
        if 2 * distance == n:
            starts = list(range(n // 2))
        for i in starts:
            pairs.append((order[i], order[(i + distance) % n]))
    return pairs[:count]


def swiss(n: int, *, rounds: int, rng: random.Random) -> Schedule:
    """A Swiss tournament: in each round responses of equal points meet, no two of them twice; none
    is eliminated.

    `rounds` = 0: ceil(log2 n), so that about n/2 * log2 n pairs are compared instead of n * (n-1) /
    2. With an odd number one response has a bye in each round, never the same one again; that is no
    game and no point.
    """
    order = rng.sample(range(n), n)
    points = [0.0] * n
    met: set[Pair] = set()
    byes: set[int] = set()
    for _ in range(rounds or max(1, math.ceil(math.log2(n)))):
        pairs = swiss_round(sorted(order, key=lambda i: -points[i]), met, byes)
        if not pairs:
            return
        values = yield pairs
        for (i, j), value in zip(pairs, values, strict=True):
            if value is not None:
                points[i] += value
                points[j] += 1 - value


def swiss_round(standing: list[int], met: set[Pair], byes: set[int]) -> list[Pair]:
    """Pairs of the next round, best first; adds to `met` and `byes`.

    A response without an unplayed opponent gets a bye.
    """
    waiting = list(standing)
    if len(waiting) % 2:
        bye = next((i for i in reversed(waiting) if i not in byes), waiting[-1])
        waiting.remove(bye)
        byes.add(bye)
    pairs: list[Pair] = []
    while len(waiting) > 1:
        one = waiting.pop(0)
        for other in waiting:
            key = (min(one, other), max(one, other))
            if key not in met:
                waiting.remove(other)
                met.add(key)
                pairs.append((one, other))
                break
    return pairs


# --- verdicts


FLIP_RULES = ("tie", "judgebench", "average")


def settle(values: Sequence[float | None], rule: str = "tie") -> tuple[float | None, bool]:
    """(value, flip) of one pair, from its verdicts in several orders: the share of the same
    response in each.

    Verdicts that agree on the better response (or on a tie) are averaged. Others are a flip: they
    prefer different responses, or only some of them are ties. 1 - flips / pairs is the agreement
    between the orders, whatever the rule. A flip's value:

        rule         win and tie   win and loss
        tie              0.5           0.5
        judgebench       1             0.5        the side with more verdicts wins; a tie counts for
                                                  neither (arXiv:2410.12784, section 4)
        average          0.75          0.5        the mean

    A pair without a verdict in one of its orders has no value: the remaining verdicts favour a
    place. JudgeBench's own code differs there and lets the other order decide alone.
    """
    verdicts: list[float] = []
    sides: list[int] = []
    for value in values:
        if value is None:
            return None, False
        verdicts.append(value)
        sides.append((value > 0.5) - (value < 0.5))
    if not verdicts:
        return None, False
    flipped = len(set(sides)) > 1
    if not flipped or rule == "average":
        return math.fsum(verdicts) / len(verdicts), flipped
    if rule == "tie" or sum(sides) == 0:
        return 0.5, True
    winner = 1 if sum(sides) > 0 else -1
    winning = list(compress(verdicts, [side == winner for side in sides]))
    return math.fsum(winning) / len(winning), True


def ranking_games(displayed: Sequence[int], scores: Sequence[float]) -> list[Game]:
    """A game for each pair of a list: `scores` of the responses `displayed`, higher is better,
    equal is a tie."""
    games: list[Game] = []
    for (first, score), (second, other) in combinations(zip(displayed, scores, strict=True), 2):
        value = 0.5 if score == other else float(score > other)
        games.append(Game(first, second, value))
    return games


# --- scores out of games


def tally(n: int, games: Sequence[Game]) -> tuple[list[float], list[int]]:
    """(points, number of games) of each response."""
    points = [0.0] * n
    played = [0] * n
    for game in games:
        points[game.first] += game.value
        points[game.second] += 1 - game.value
        played[game.first] += 1
        played[game.second] += 1
    return points, played


def win_rates(n: int, games: Sequence[Game]) -> list[float | None]:
    """Points per game, 0 .. 1, None for a response without a game."""
    return [
        points / played if played else None for points, played in zip(*tally(n, games), strict=True)
    ]


def bradley_terry(
    n: int, games: Sequence[Game], *, prior: float = PRIOR_GAMES
) -> list[float | None]:
    """Log-strengths of the Bradley-Terry model, P(i beats j) = s_i / (s_i + s_j), centred at 0;
    None for a response without a game.

    The strengths of highest likelihood (Bradley and Terry 1952; Hunter 2004,
    doi:10.1214/aos/1079120141), a tie being half a win for both. A departure: each response also
    plays `prior` games against an imaginary one of strength 1 and wins half of them, so that the
    strengths exist and are unique whatever the results. `prior` = 0 is plain maximum likelihood,
    which may not exist.
    """
    points, played = tally(n, games)
    strengths: list[float | None] = [None] * n
    players = np.flatnonzero(played)
    if not len(players):
        return strengths
    met_NN = np.zeros((n, n))
    for game in games:
        met_NN[game.first, game.second] += 1
        met_NN[game.second, game.first] += 1
    met_NN = met_NN[np.ix_(players, players)]
    logs = _log_strengths(np.asarray(points)[players], met_NN, prior)
    for i, log in zip(players.tolist(), logs.tolist(), strict=True):
        strengths[i] = log
    return strengths


def _log_strengths(points_N: np.ndarray, met_NN: np.ndarray, prior: float) -> np.ndarray:
    """Newton's method: the log-likelihood is concave in the log-strengths.

    It takes a handful of steps where minorization takes thousands.
    """
    logs_N = np.zeros(len(points_N))
    for _ in range(_MOST_STEPS):
        wins_NN = _sigmoid(logs_N[:, None] - logs_N[None, :])
        over_N = _sigmoid(logs_N)
        slope_N = points_N + prior / 2 - (met_NN * wins_NN).sum(axis=1) - prior * over_N
        bend_NN = met_NN * wins_NN * (1 - wins_NN)
        curve_NN = np.diag(bend_NN.sum(axis=1) + prior * over_N * (1 - over_N)) - bend_NN
        step_N = np.linalg.lstsq(curve_NN, slope_N, rcond=None)[0]
        step_N *= min(1.0, _LONGEST_STEP / max(float(np.abs(step_N).max()), 1e-300))
        logs_N += step_N
        if np.abs(step_N).max() < 1e-9:
            break
    return logs_N - logs_N.mean()


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(x / 2))


_MOST_STEPS = 100
"""Reached only where the model has no maximum."""
_LONGEST_STEP = 2.0
"""Maximum change of a log-strength in one step: the parabola is a poor approximation further
away."""
