"""Comparisons of the responses to one prompt: who meets whom, what a verdict in two orders says,
and scores out of games.

Responses are numbered 0 .. n-1. A schedule is a generator: it yields rounds of pairs and is sent,
for each pair, the first one's share of the point (1 won, 0 lost, 0.5 a tie, None without a
verdict).
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

Pair = tuple[int, int]
Schedule = Generator[list[Pair], Sequence[float | None], None]

PRIOR_GAMES = 0.5
"""Games each response plays against an imaginary one of average strength, half of them won: keeps
unbeaten ones finite."""


@dataclass(frozen=True, slots=True)
class Game:
    """One comparison that has a verdict."""

    first: int
    second: int
    value: float
    """Share of the point that `first` got: 1, 0, or 0.5 for a tie."""


# --- who meets whom


def all_pairs(n: int, *, at_most: int, rng: random.Random) -> Schedule:
    """Every pair once, in one round; with `at_most` > 0 that many of them, such that no one plays
    much more than others."""
    yield (
        balanced_pairs(n, at_most, rng)
        if at_most
        else [(i, j) for i in range(n) for j in range(i + 1, n)]
    )


def balanced_pairs(n: int, count: int, rng: random.Random) -> list[Pair]:
    """`count` different pairs, or all where there are not so many.

    Responses stand in a shuffled circle; neighbours meet first, then those two apart, and so on.
    From `count` = n - 1 on everyone is connected with everyone through games, and numbers of games
    differ by at most 2.
    """
    order = rng.sample(range(n), n)
    pairs: list[Pair] = []
    for apart in range(1, n // 2 + 1):
        starts = range(n // 2) if 2 * apart == n else [*range(0, n, 2), *range(1, n, 2)]
        pairs += [(order[i], order[(i + apart) % n]) for i in starts]
    return pairs[:count]


def swiss(n: int, *, rounds: int, rng: random.Random) -> Schedule:
    """A Swiss tournament: each round those with equal points meet, nobody the same opponent twice;
    nobody is out.

    `rounds` = 0: ceil(log2 n), so that about n/2 * log2 n pairs are compared instead of n * (n-1) /
    2. With an odd number one response pauses in each round, never the same one again; that is no
    game and no point.
    """
    order = rng.sample(range(n), n)
    points, met, paused = [0.0] * n, set[Pair](), set[int]()
    for _ in range(rounds or max(1, math.ceil(math.log2(n)))):
        pairs = _neighbours(sorted(order, key=lambda i: -points[i]), met, paused)
        if not pairs:
            return
        values = yield pairs
        for (i, j), value in zip(pairs, values, strict=True):
            if value is not None:
                points[i] += value
                points[j] += 1 - value


def _neighbours(standing: list[int], met: set[Pair], paused: set[int]) -> list[Pair]:
    """Pairs of the next round, best first; `met` and `paused` are kept up to date. Who finds nobody
    new pauses."""
    waiting = list(standing)
    if len(waiting) % 2:
        pause = next((i for i in reversed(waiting) if i not in paused), waiting[-1])
        waiting.remove(pause)
        paused.add(pause)
    pairs: list[Pair] = []
    while len(waiting) > 1:
        one = waiting.pop(0)
        other = next((i for i in waiting if (min(one, i), max(one, i)) not in met), None)
        if other is not None:
            waiting.remove(other)
            met.add((min(one, other), max(one, other)))
            pairs.append((one, other))
    return pairs


# --- what verdicts say


FLIP_RULES = ("tie", "judgebench", "average")


def settle(values: Sequence[float | None], rule: str = "tie") -> tuple[float | None, bool]:
    """(the pair's value, whether its order of presentation decided) of one pair's verdicts, each
    the share of the same response.

    Verdicts that agree on who is better (or that it is a tie) are averaged. Others are a flip: they
    prefer different responses, or one is a tie and the other is not. 1 - flips / pairs is the
    agreement between the orders, whatever the rule. What a flip is worth:

        rule         win and tie   win and loss
        tie              0.5           0.5
        judgebench       1             0.5        the side with more verdicts wins, a tie taking
          neither (arXiv:2410.12784, section 4)
        average          0.75          0.5        the mean

    A pair of which one order has no verdict has none: what is left is what the place favours. There
    JudgeBench's own code differs, which lets the other order decide alone.
    """
    verdicts = [value for value in values if value is not None]
    if not verdicts or len(verdicts) < len(values):
        return None, False
    sides = [(value > 0.5) - (value < 0.5) for value in verdicts]
    flipped = len(set(sides)) > 1
    if not flipped or rule == "average":
        return math.fsum(verdicts) / len(verdicts), flipped
    if rule == "tie" or sum(sides) == 0:
        return 0.5, True
    winning = 1 if sum(sides) > 0 else -1
    chosen = [value for value, side in zip(verdicts, sides, strict=True) if side == winning]
    return math.fsum(chosen) / len(chosen), True


def ranking_games(shown: Sequence[int], scores: Sequence[float]) -> list[Game]:
    """A game for each pair of a list: `scores` of the responses `shown`, higher is better, equal is
    a tie."""
    pairs = [(a, b) for a in range(len(shown)) for b in range(a + 1, len(shown))]
    return [
        Game(shown[a], shown[b], 0.5 if scores[a] == scores[b] else float(scores[a] > scores[b]))
        for a, b in pairs
    ]


# --- scores out of games


def tally(n: int, games: Sequence[Game]) -> tuple[list[float], list[int]]:
    """(points, number of games) of each response."""
    points, played = [0.0] * n, [0] * n
    for game in games:
        points[game.first] += game.value
        points[game.second] += 1 - game.value
        played[game.first] += 1
        played[game.second] += 1
    return points, played


def win_rates(n: int, games: Sequence[Game]) -> list[float | None]:
    """Points per game, 0 .. 1; None for a response without a game."""
    points, played = tally(n, games)
    return [point / count if count else None for point, count in zip(points, played, strict=True)]


def bradley_terry(
    n: int, games: Sequence[Game], *, prior: float = PRIOR_GAMES
) -> list[float | None]:
    """Log-strengths of the Bradley-Terry model, P(i beats j) = s_i / (s_i + s_j), centred at 0;
    None for a response without a game.

    The strengths of highest likelihood (Bradley and Terry 1952; Hunter 2004,
    doi:10.1214/aos/1079120141), a tie being half a win for both. Our departure: each response also
    plays `prior` games against an imaginary one of strength 1 and wins half of them, so that
    strengths exist, and only once, whoever beat whom. `prior` = 0 is plain maximum likelihood,
    which may not exist.
    """
    points, played = tally(n, games)
    there = [i for i in range(n) if played[i]]
    if not there:
        return [None] * n
    place = {i: k for k, i in enumerate(there)}
    met_NN = np.zeros((len(there), len(there)))
    for game in games:
        met_NN[place[game.first], place[game.second]] += 1
        met_NN[place[game.second], place[game.first]] += 1
    logs = _log_strengths(np.asarray([points[i] for i in there]), met_NN, prior)
    return [float(logs[place[i]]) if i in place else None for i in range(n)]


def _log_strengths(points_N: np.ndarray, met_NN: np.ndarray, prior: float) -> np.ndarray:
    """Newton's method: the log-likelihood is concave in the log-strengths. A handful of steps where
    minorization takes thousands."""
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
"""In log-strength: further away the parabola through a point says little."""
