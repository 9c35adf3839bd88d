"""Metric names, in one place, and the metrics that follow from a step's scores.

    reward/{mean,std,min,max,kept}                 the combined number, over responses that have one
    score/<name>/{mean,std,min,max}                one component's verdicts
    score/<name>/{missing,skipped,missing_<why>}   shares of responses, 0..1
    score/<name>/{latency_s,tokens_in,tokens_out,cached}
    score/<name>/extra_<column>                    mean of a numeric extra column, e.g. one that a
      rule returned beside its score
    score/<name>/{corr_<other>,corr_length}        Pearson's r, -1..1
    score/<name>/<share>                           shares counted by the component's kind, e.g.
      position_flips, truncated, 0..1
    score/<name>/{duplicates,cache_hits}           shares of its requests that were not sent, 0..1
    perf/streamed/<name>                           share of responses it had scored when the last
      one was finished, 0..1
    time/score/<name>                              seconds of a step in which it was at work or
      waited for its engine's turn; rewards work side by side, so the sum may exceed time/score_s
    engine/<label>/{load,wake,sleep,unload}_s      seconds of a step in which a reward's engine did
      these; <label>: the rewards that share it, joined by "+" (more: residency.take_metrics)
    monitor/hints                                  hints of the monitor that hold
    response/{length_mean,length_max,truncated}
    perf/{generate,update}/tokens_per_s_per_device, perf/update/mfu
      rmrl/trainer/throughput.py
    perf/rollout/{sleep,wake,load_weights}_s, perf/train/{onload,offload}_s, perf/publish/export_s
      seconds of a step within its stages
    perf/publish/{file,ipc,nccl,nccl_m2n}_s        seconds in which new weights travelled by that
      transport. A run that wanted another one says so here in every step
    memory/<phase>/{peak_bytes,reserved_bytes,resident_bytes}
      of the training process with most in `logprobs`, `update` or `publish`; the last on CPU
    policy/..., val/..., best/..., time/<stage>_s  written by their owners (evaluate.py and
      best.py in rmrl/trainer)

A number that is not defined (the mean of nothing, the correlation of a constant) is left out: it is
never 0 and never NaN. Standard deviations are those of the population (divided by n).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rmrl.types import Metrics, RewardBatch, ScoreResult, Scores

REWARD_MEAN = "reward/mean"
REWARD_STD = "reward/std"
REWARD_KEPT = "reward/kept"
LENGTH_MEAN = "response/length_mean"
LENGTH_MAX = "response/length_max"
TRUNCATED = "response/truncated"
KL = "policy/kl"
"""KL between the policy before and after the step's updates."""
REF_KL = "policy/ref_kl"
"""KL to the reference policy, where there is one."""
STEP_TIME = "time/step_s"
OTHER_TIME = "time/other_s"
TOKENS_PER_S = "perf/tokens_per_s"
REWARD_TRAINING = {
    "train/loss": "loss {:.4f}",
    "train/accuracy": "right {:.2f}",
    "train/margin": "margin {:.3f}",
    "train/squared_error": "squared error {:.3f}",
}
"""What the console shows when a reward model trains."""
VALIDATION = "val/"
BEST = "best/"
"""Before the metric by which a run's best checkpoint is chosen, and before `step`."""
REWARD_TIME = "time/score/"
MONITOR_HINTS = "monitor/hints"

_BELOW = re.compile(r"/(mean|std|best|worst|maj)@\d+(/\w+)?$|/missing$")

_ENGINE_TIME = re.compile(r"engine/(?P<label>.+)/(?P<what>(?:load|wake|sleep|unload)_s)")

_NAME = re.compile(r"[\w.-]{1,64}")
"""Extra columns whose names make a metric's name."""

MIN_PAIRS = 3
"""Minimum of pairs for a correlation: through two points there is always a straight line."""


def stage_time(stage: str) -> str:
    """`generate` -> `time/generate_s`."""
    return f"time/{stage}_s"


def engine_seconds(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the engines' seconds among metrics: label -> `load_s`, `wake_s`, `sleep_s` and
    `unload_s`, as far as there are any."""
    engines: dict[str, dict[str, float]] = {}
    for key, seconds in metrics.items():
        match = _ENGINE_TIME.fullmatch(key)
        if match:
            engines.setdefault(match["label"], {})[match["what"]] = float(seconds)
    return engines


def score_key(component: str, what: str) -> str:
    """`helpful`, `mean` -> `score/helpful/mean`."""
    return f"score/{component}/{what}"


def validation_names(metrics: Iterable[str]) -> list[str]:
    """Return the validation metrics in order: `val/reward`, `val/<source>/<component>`, ...,
    without those below them (`@k`, `/missing`)."""
    keys = [key for key in metrics if key.startswith(VALIDATION)]
    return list(dict.fromkeys(_BELOW.sub("", key) for key in keys))


def best_of_all(metrics: Iterable[str], name: str) -> str | None:
    """Return the key of best@n's mean below a validation metric, n being the largest; None where
    one response was sampled."""
    pattern = re.compile(re.escape(name) + r"/best@(\d+)/mean")
    matches = list(filter(None, map(pattern.fullmatch, metrics)))
    if not matches:
        return None
    return max(matches, key=lambda match: int(match[1]))[0]


def component_names(metrics: Mapping[str, object]) -> list[str]:
    """Return the names of the components that appear in `metrics`, in order. A name may itself
    contain a slash."""
    components: list[str] = [
        key.removeprefix("score/").removesuffix("/missing")
        for key in metrics
        if key.startswith("score/") and key.endswith("/missing")
    ]
    return components


def score_metrics(
    scores: Scores,
    rewards: RewardBatch,
    response_lengths: Sequence[int] | np.ndarray,
    *,
    truncated: Sequence[bool] | None = None,
) -> Metrics:
    """Return all metrics of a step's scores as finite numbers. See the module's text for the names.

    `response_lengths`: tokens, shape [B]. `truncated`: True where the response was cut at the token
    limit, shape [B]. `rewards.metrics` is included. Correlations stand once per pair, under the
    component that comes first.
    """
    lengths_B = np.asarray(response_lengths, dtype=np.float64).reshape(-1)
    out: Metrics = dict(rewards.metrics)
    with np.errstate(all="ignore"):
        out |= _spread("reward/", rewards.rewards_B[np.asarray(rewards.keep_B, dtype=bool)])
        out |= _mean(REWARD_KEPT, np.asarray(rewards.keep_B, dtype=np.float64))
        out |= _mean(LENGTH_MEAN, lengths_B) | {LENGTH_MAX: lengths_B.max(initial=-math.inf)}
        if truncated is not None:
            out |= _mean(TRUNCATED, np.asarray(truncated, dtype=np.float64))
        for name, column in zip(scores.names, scores.results, strict=True):
            out |= _component(name, column)
        columns = scores.values_BC.T
        for i, name in enumerate(scores.names):
            pairs: list[tuple[str, np.ndarray]] = [
                (f"corr_{scores.names[j]}", columns[j]) for j in range(i + 1, len(scores.names))
            ]
            pairs.append(("corr_length", lengths_B))
            for what, values in pairs:
                r = correlation(columns[i], values)
                if r is not None:
                    out[score_key(name, what)] = r
    return {key: float(value) for key, value in out.items() if math.isfinite(value)}


def correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """Pearson's r over the positions where both are finite; None with fewer than MIN_PAIRS of them
    or a constant side."""
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < MIN_PAIRS:
        return None
    a = _unit(first[both])
    b = _unit(second[both])
    if a is None or b is None:
        return None
    return float(np.clip(a @ b, -1.0, 1.0))


def _unit(values: np.ndarray) -> np.ndarray | None:
    """Centred and scaled to length 1, None where `values` is constant up to rounding."""
    largest = np.abs(values).max()
    if largest == 0:
        return None
    centred = values / largest - (values / largest).mean()
    norm = float(np.sqrt(centred @ centred))
    if norm < 1e-9 * math.sqrt(len(values)):
        return None
    return centred / norm


def _component(name: str, column: Sequence[ScoreResult]) -> Metrics:
    """One component's own metrics. A skipped response was never scored, so it is not a missing
    verdict."""
    verdicts = np.asarray([r.value for r in column if r.value is not None], dtype=np.float64)
    counts = Counter(r.status for r in column)
    missing = len(column) - counts["ok"] - counts["skipped"]
    share = 1.0 / len(column) if column else math.nan
    computed = [r for r in column if r.status != "skipped" and not r.cached]
    out = _spread(f"score/{name}/", verdicts)
    out[score_key(name, "missing")] = missing * share
    out[score_key(name, "skipped")] = counts["skipped"] * share
    for why, n in counts.items():
        if why not in ("ok", "skipped"):
            out[score_key(name, f"missing_{why}")] = n * share
    out |= _mean(score_key(name, "latency_s"), np.asarray([r.latency_s for r in computed]))
    out[score_key(name, "tokens_in")] = sum(r.tokens_in for r in column)
    out[score_key(name, "tokens_out")] = sum(r.tokens_out for r in column)
    extras: dict[str, list[float]] = {}
    for result in column:
        for extra, value in result.extra.items():
            if isinstance(value, int | float) and _NAME.fullmatch(extra):
                extras.setdefault(extra, []).append(float(value))
    for extra, numbers in extras.items():
        out |= _mean(score_key(name, f"extra_{extra}"), np.asarray(numbers))
    return out | _mean(score_key(name, "cached"), np.asarray([float(r.cached) for r in column]))


def _spread(prefix: str, values: np.ndarray) -> Metrics:
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return {}
    return {
        f"{prefix}mean": finite.mean(),
        f"{prefix}std": finite.std(),
        f"{prefix}min": finite.min(),
        f"{prefix}max": finite.max(),
    }


def _mean(key: str, values: np.ndarray) -> Metrics:
    finite = values[np.isfinite(values)]
    return {key: finite.mean()} if len(finite) else {}
