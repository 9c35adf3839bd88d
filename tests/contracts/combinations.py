"""Combinations of algorithm settings and kinds of data, and the way of a batch through the real
functions to its gradient.

    scored responses -> dynamic sampling -> keep_informative -> correct_rollout -> add_advantages ->
      redraw -> loss -> gradient

`cases` is a covering array: every pair of values of any two factors occurs in at least one case,
unless the pair is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from rmrl.algorithms import ADVANTAGES, LOSSES, estimator_named
from rmrl.algorithms.aggregate import AGGREGATION_MODES, PROMPT_MEAN
from rmrl.algorithms.kl import KLController
from rmrl.backends.base import TrainSettings
from rmrl.backends.objective import divisor, weight_and_tokens, weighted_loss, weighted_value_loss
from rmrl.config.schema import (
    ActorConfig,
    AlgorithmConfig,
    CriticConfig,
    KLControlConfig,
    ModelConfig,
    PFPPOConfig,
    PolicyLossConfig,
    RolloutCorrectionConfig,
)
from rmrl.trainer.batches import (
    ScoredBatch,
    add_advantages,
    correct_rollout,
    keep_informative,
    redraw,
)
from rmrl.trainer.loss_weights import unit_tokens
from rmrl.trainer.scored_rollouts import ScoredRollouts, contrast
from rmrl.types import (
    Metrics,
    Prompt,
    Ragged,
    Response,
    RewardBatch,
    Rollouts,
    ScoreResult,
    Scores,
    Step,
    TrainBatch,
)

ROWS = 12
LONGEST = 6
NAN = math.nan
STREAMS = ("new", "old", "ref", "rollout", "entropy", "values", "old_values", "energies")

FACTORS: Mapping[str, Sequence[Any]] = {
    "estimator": tuple(ADVANTAGES),
    "loss": tuple(LOSSES),
    "aggregation": AGGREGATION_MODES,
    "kl_in_reward": (None, "kl", "abs", "mse", "low_var_kl"),
    "kl_in_loss": (None, "kl", "abs", "mse", "low_var_kl", "kl+", "abs+", "mse+", "low_var_kl+"),
    "entropy": (0.0, 0.01),
    "filtered": (False, True),
    "redrawn": (None, "pow", "max_min", "max_random"),
    "weights": (None, "token", "sequence"),
    "normalised": (False, True),
    "rejection": (None, "token", "sequence", "geometric"),
    "scores": ("sequence", "steps", "both"),
    "rewards": ("distinct", "ties", "equal", "rounding", "large"),
    "missing": ("none", "rows", "most", "components"),
    "lengths": ("ragged", "empty", "one"),
    "apart": ("near", "same", "mixed", "far", "extreme"),
    "group_size": (4, 2, 1),
    "holes": (False, True),
}
"""The values of each field of `Case`; the first one is the ordinary one."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One value of each factor."""

    number: int
    estimator: str
    loss: str
    aggregation: str
    kl_in_reward: str | None
    kl_in_loss: str | None
    entropy: float
    filtered: bool
    redrawn: str | None
    weights: str | None
    """Importance weights of rollout correction."""
    normalised: bool
    rejection: str | None
    scores: str
    """Where the reward stands: for the whole response, on its steps, or both."""
    rewards: str
    missing: str
    """What has no verdict."""
    lengths: str
    apart: str
    """How far the policy before the update, the one that sampled, the new one and the reference are
    from one another."""
    group_size: int
    holes: bool
    """Some tokens of the response do not count."""

    def __str__(self) -> str:
        return f"{self.number}-{self.estimator}-{self.loss}"


@cache
def cases() -> tuple[Case, ...]:
    """Greedy and seeded: each new case is the best of some that hold a pair which no case holds
    yet."""
    draw = np.random.default_rng(0)
    lacking = {pair for pair in _all_pairs() if _allowed(dict(pair))}
    chosen: list[Case] = []
    while lacking:
        seed = min(lacking, key=str)
        candidates = [_completed(dict(seed), draw) for _ in range(30)]
        best = max(candidates, key=lambda values: len(lacking.intersection(_pairs(values))))
        lacking -= set(_pairs(best))
        chosen.append(Case(number=len(chosen), **best))
    return tuple(chosen)


def _all_pairs() -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    for first, second in itertools.combinations(FACTORS, 2):
        for one, other in itertools.product(FACTORS[first], FACTORS[second]):
            yield (first, one), (second, other)


def _pairs(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    for first, second in itertools.combinations(FACTORS, 2):
        yield (first, values[first]), (second, values[second])


def _allowed(values: Mapping[str, Any]) -> bool:
    """Not refused, and not without meaning."""
    name = values.get("estimator")
    if name is not None and not estimator_named(name).token_rewards:
        return values.get("kl_in_reward") is None and values.get("scores", "sequence") == "sequence"
    return not (values.get("filtered") and values.get("group_size") == 1)


def _completed(values: dict[str, Any], draw: np.random.Generator) -> dict[str, Any]:
    """Random values for the other factors; the ordinary ones twice as often, so that most cases
    have something to train on."""
    order = [name for name in FACTORS if name not in values]
    draw.shuffle(order)
    for name in order:
        options = [
            option
            for option in (FACTORS[name][0], *FACTORS[name])
            if _allowed({**values, name: option})
        ]
        values[name] = options[int(draw.integers(len(options)))]
    return values


# --- data


@dataclass(frozen=True, kw_only=True)
class Data:
    """Responses with their rewards, and per-token numbers of each row by name."""

    sampled: ScoredRollouts
    streams: Mapping[str, Sequence[np.ndarray]]


def make_data(case: Case, *, other_missing: bool = False) -> Data:
    """The same numbers in every call; with `other_missing` the rows that have no reward are other
    responses."""
    draw = np.random.default_rng(case.number)
    lengths_B = _lengths(case, draw)
    rewards_B = _rewards(case, draw)
    keep_B = _keep(case, draw)
    streams = {name: [_stream(name, case, row, draw) for row in range(ROWS)] for name in STREAMS}
    texts = [f"{row}" for row in range(ROWS)]
    if other_missing:
        for row in np.flatnonzero(~keep_B):
            lengths_B[row] = 1 + (lengths_B[row] + 2) % LONGEST
            rewards_B[row] = 100.0 + row
            texts[row] = "another"
            for name in STREAMS:
                streams[name][row] = streams[name][row][::-1] - 0.7
    cut = {name: _cut(rows, lengths_B) for name, rows in streams.items()}
    responses = tuple(
        _response(row, case, rollout=cut["rollout"][row], text=texts[row]) for row in range(ROWS)
    )
    rollouts = Rollouts(responses=responses, group_size=case.group_size)
    batch = _reward_batch(case, rewards_B, keep_B, lengths_B)
    chosen_B = contrast(rollouts, batch, None) if case.filtered else np.ones(ROWS, dtype=bool)
    baselines_B = np.where(np.arange(ROWS) % 5 == 3, NAN, 0.1 * np.arange(ROWS))
    sampled = ScoredRollouts(
        step=0, rollouts=rollouts, rewards=batch, chosen_B=chosen_B, baselines_B=baselines_B
    )
    return Data(sampled=sampled, streams=cut)


def _cut(rows: Sequence[np.ndarray], lengths_B: np.ndarray) -> list[np.ndarray]:
    return [values[:length] for values, length in zip(rows, lengths_B, strict=True)]


def _lengths(case: Case, draw: np.random.Generator) -> np.ndarray:
    if case.lengths == "one":
        return np.ones(ROWS, dtype=np.int64)
    lengths_B = draw.integers(1, LONGEST + 1, ROWS)
    return (
        np.where(np.arange(ROWS) % 4 == 1, 0, lengths_B) if case.lengths == "empty" else lengths_B
    )


def _rewards(case: Case, draw: np.random.Generator) -> np.ndarray:
    if case.rewards == "distinct":
        return draw.normal(size=ROWS)
    if case.rewards == "ties":
        return draw.integers(0, 2, ROWS).astype(np.float64)
    if case.rewards == "equal":
        return np.full(ROWS, 0.3)
    if case.rewards == "rounding":
        one_float32 = 2.0**-25  # from 0.3 to the next
        return 0.3 + one_float32 * draw.integers(0, 3, ROWS)
    return 1e4 * (1 + 0.1 * draw.integers(0, 3, ROWS))


def _keep(case: Case, draw: np.random.Generator) -> np.ndarray:
    keep_B = np.ones(ROWS, dtype=bool)
    if case.missing == "rows":
        keep_B = draw.random(ROWS) < 0.7
    if case.missing == "most":
        keep_B = np.arange(ROWS) == 7
    return keep_B


def _stream(name: str, case: Case, row: int, draw: np.random.Generator) -> np.ndarray:
    """LONGEST numbers. The seeds are the row's, so that streams named old, new, rollout lie `apart`
    from one another."""
    base = np.random.default_rng([case.number, row]).normal(-1.5, 0.5, LONGEST)
    noise = draw.normal(size=LONGEST)
    if name == "rollout":
        mixed = np.where(noise > 0.3, 3.0, 0.1 * noise)
        far = {
            "same": 0.0 * noise,
            "near": 0.2 * noise,
            "mixed": mixed,
            "far": 5.0 + noise,
            "extreme": 90.0 * noise,
        }
        return base + far[case.apart]
    moved = {"same": 0.0, "extreme": 40.0}.get(case.apart, 0.3)
    scale = {"old": 0.0, "new": moved, "ref": max(moved, 1.0)}
    if name in scale:
        return base + scale[name] * noise
    return np.abs(noise) if name in ("entropy", "energies") else noise


def _response(row: int, case: Case, *, rollout: np.ndarray, text: str) -> Response:
    return Response(
        prompt=Prompt(id=f"p:{row // case.group_size}", messages=[], token_ids=(1, 2)),
        text=text,
        token_ids=tuple(range(100 * row, 100 * row + len(rollout))),
        logprobs=tuple(rollout.tolist()),
        finish_reason="stop",
        policy_version=0,
    )


def _reward_batch(
    case: Case, totals_B: np.ndarray, keep_B: np.ndarray, lengths_B: np.ndarray
) -> RewardBatch:
    """Two components with weights 1 and 0.5; the total reward stands in the sequence, in the steps,
    or in both."""
    scores_BC = np.stack([totals_B, 0.2 * (np.arange(ROWS) % 3)], axis=1)
    scores_BC[~keep_B] = NAN
    if case.missing == "components":
        scores_BC[::4, 1] = NAN
        scores_BC[1::4, 0] = NAN
    in_steps = {"sequence": 0.0, "steps": 1.0, "both": 0.4}[case.scores]
    sequence_B = np.where(keep_B, (1 - in_steps) * totals_B, NAN)
    steps = [
        _steps(in_steps * total, int(length))
        for total, length in zip(totals_B, lengths_B, strict=True)
    ]
    columns = tuple(tuple(_result(float(value)) for value in column) for column in scores_BC.T)
    return RewardBatch(
        scores=Scores(names=("main", "aside"), results=columns),
        weights_C=np.asarray([1.0, 0.5]),
        rewards_B=sequence_B,
        keep_B=keep_B,
        steps=(
            tuple(row if keep else () for row, keep in zip(steps, keep_B, strict=True))
            if in_steps
            else ()
        ),
    )


def _result(value: float) -> ScoreResult:
    return (
        ScoreResult(value=None, status="timeout") if math.isnan(value) else ScoreResult(value=value)
    )


def _steps(total: float, length: int) -> tuple[Step, ...]:
    """A third of the total in the middle and the rest at the end: sums that round."""
    first = total / 3
    return (Step(max(length // 2, 1), first), Step(max(length, 1), total - first))


# --- the way of a batch


def letters(tokens: Sequence[int]) -> str:
    """One character for each token, none of them in any text: places are counted from the start."""
    return "t" * len(tokens)


def algorithm(case: Case) -> AlgorithmConfig:
    return AlgorithmConfig(
        adv_estimator=case.estimator,
        gamma=0.9,
        lam=0.8,
        norm_adv_by_std_in_grpo=case.number % 2 == 0,
        use_kl_in_reward=case.kl_in_reward is not None,
        kl_penalty=case.kl_in_reward or "kl",
        kl_ctrl=KLControlConfig(type="adaptive", kl_coef=0.1, horizon=20),
        use_pf_ppo=case.redrawn is not None,
        pf_ppo=PFPPOConfig(reweight_method=case.redrawn or "pow"),
        rollout_correction=RolloutCorrectionConfig(
            rollout_is=case.weights,
            rollout_is_batch_normalize=case.normalised,
            rollout_rs=case.rejection,
        ),
    )


def training(case: Case) -> TrainSettings:
    shares = {"clip_cov_ratio": 0.3, "clip_cov_lb": -9.0, "clip_cov_ub": 9.0, "kl_cov_ratio": 0.3}
    loss = PolicyLossConfig(loss_mode=case.loss, **shares)
    terms: dict[str, Any] = {"use_kl_loss": case.kl_in_loss is not None, "kl_loss_coef": 0.1}
    terms["kl_loss_type"] = case.kl_in_loss or "mse"
    actor = ActorConfig(
        policy_loss=loss, entropy_coeff=case.entropy, loss_agg_mode=case.aggregation, **terms
    )
    critic = CriticConfig(loss_agg_mode=case.aggregation)
    return TrainSettings(
        model=ModelConfig(path="toy"), actor=actor, critic=critic, max_response_length=LONGEST
    )


def informative(case: Case, data: Data) -> ScoredBatch:
    """The rows that train, with their streams."""
    batch = keep_informative(data.sampled)

    def stream(name: str) -> Ragged:
        return Ragged.of([data.streams[name][int(row)] for row in batch.rows], np.float32)

    extra: dict[str, Any] = {"old_logprobs": stream("old"), "ref_logprobs": stream("ref")}
    if estimator_named(case.estimator).values:
        extra["values"] = stream("old_values")
    if estimator_named(case.estimator).energies:
        extra["energies"] = stream("energies")
    if case.holes:
        masks = [
            np.asarray(np.arange(n) % 4 != 1, dtype=np.float32)
            for n in batch.train.response_mask.lengths
        ]
        extra["response_mask"] = Ragged.of(masks, np.float32)
    return dataclasses.replace(batch, train=dataclasses.replace(batch.train, **extra))


def spoilt_outside(batch: ScoredBatch) -> ScoredBatch:
    """NaN for all that models say of tokens outside the response mask, and 50 more for the steps
    that end there."""
    train = batch.train
    outside = train.response_mask.values == 0
    streams = {
        name: getattr(train, name)
        for name in ("old_logprobs", "ref_logprobs", "rollout_logprobs", "values", "energies")
    }
    spoilt = {
        name: Ragged(np.where(outside, np.float32(NAN), stream.values), stream.lengths)
        for name, stream in streams.items()
        if stream is not None
    }
    masks = train.response_mask.rows()
    steps = tuple(
        tuple(Step(step.end, step.value + 50.0 * (mask[step.end - 1] == 0)) for step in row)
        for row, mask in zip(batch.steps, masks, strict=False)
    )
    return dataclasses.replace(batch, train=dataclasses.replace(train, **spoilt), steps=steps)


def estimate(case: Case, batch: ScoredBatch) -> tuple[ScoredBatch, Metrics]:
    """Corrected and with advantages; the coefficient of the KL in reward is among the metrics."""
    wanted = algorithm(case)
    controller = KLController(wanted.kl_ctrl)
    corrected, metrics = correct_rollout(batch, wanted)
    done, estimated = add_advantages(corrected, wanted, controller, decode=letters)
    return done, {**metrics, **estimated, "next_kl_coef": controller.coefficient}


def redrawn(case: Case, batch: ScoredBatch) -> ScoredBatch:
    return redraw(batch, algorithm(case), rng=np.random.default_rng(case.number))[0]


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """Of a mini-batch's loss, with what it was summed from."""

    loss: float
    weight: float
    tokens: float
    sums: Mapping[str, float]
    by_token: Mapping[str, Ragged]
    """Input of the loss (`new`: log-probabilities, `entropy`, `values`) -> gradient, rows as in the
    batch."""


def gradient(
    case: Case,
    batch: ScoredBatch,
    data: Data,
    *,
    parts: Sequence[np.ndarray] | None = None,
    critic: bool = False,
    garbage: float = 0.0,
) -> Gradient:
    """Through the objective of the training engines, as they do it.

    `parts`: row numbers of each micro-batch; None: one of all rows. `garbage` stands at the tokens
    that do not count, 0: what was there.
    """
    wanted = dataclasses.replace(training(case), role="critic" if critic else "actor")
    train = batch.train
    if case.aggregation == PROMPT_MEAN:
        tokens_of_prompts = unit_tokens(train.loss_mask, batch.group_ids_B)
        train = dataclasses.replace(train, unit_tokens=tokens_of_prompts)
    names = ("values",) if critic else ("new", "entropy")
    leaves = {name: _leaf(name, batch, data, garbage) for name in names}
    total = torch.zeros(())
    sums: dict[str, float] = {}
    weight = tokens = 0.0
    for rows in parts or [np.arange(len(train))]:
        if not len(rows):
            continue
        part = train.select(rows)
        loss, part_sums = _objective(
            part, [_flat(leaf, rows, train) for leaf in leaves.values()], wanted
        )
        total = total + loss
        sums = {name: sums.get(name, 0.0) + float(value) for name, value in part_sums.items()}
        part_weight, part_tokens = weight_and_tokens(part, wanted)
        weight += part_weight
        tokens += part_tokens
    scaled = total / divisor(weight, wanted) if weight else total
    slopes = {
        name: Ragged(slope, train.response_mask.lengths)
        for name, slope in _slopes(scaled, leaves).items()
    }
    return Gradient(
        loss=float(scaled.detach()), weight=weight, tokens=tokens, sums=sums, by_token=slopes
    )


def _slopes(loss: torch.Tensor, leaves: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """d loss / d leaf; 0 where the loss does not depend on it."""
    if not loss.requires_grad:
        return {name: np.zeros(len(leaf), np.float32) for name, leaf in leaves.items()}
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {
        name: np.zeros(len(leaf), np.float32) if slope is None else slope.numpy()
        for (name, leaf), slope in zip(leaves.items(), gradients, strict=True)
    }


def _objective(
    part: TrainBatch, given: Sequence[torch.Tensor], wanted: TrainSettings
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    if wanted.role == "critic":
        return weighted_value_loss(part, given[0], settings=wanted)
    return weighted_loss(part, given[0], given[1], settings=wanted)


def _leaf(name: str, batch: ScoredBatch, data: Data, garbage: float) -> torch.Tensor:
    rows = [data.streams[name][int(row)] for row in batch.rows]
    values = Ragged.of(rows, np.float32).values
    if garbage:
        values = np.where(batch.train.loss_mask.values > 0, values, np.float32(garbage))
    return torch.tensor(values, requires_grad=True)


def _flat(leaf: torch.Tensor, rows: np.ndarray, train: TrainBatch) -> torch.Tensor:
    places = Ragged(np.arange(len(leaf)), train.response_mask.lengths).select(rows).values
    return leaf[torch.from_numpy(places)]


def by_source(batch: ScoredBatch, tokens: Ragged) -> np.ndarray:
    """[ROWS, LONGEST]: per-token numbers added up over the copies of each response."""
    out = np.zeros((ROWS, LONGEST))
    for row, values in zip(batch.rows, tokens.rows(), strict=True):
        out[int(row), : len(values)] += values
    return out
