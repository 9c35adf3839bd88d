"""The gate: the saved model scores held-out texts the same in transformers and in rmrl's engines,
and as it did when it was trained.

A head that was lost, another template or another position would otherwise show only as a policy
that learns nothing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmrl.errors import ConfigError, EngineLoadError, RewardError
from rmrl.models.checkpoint_inspect import tensor_headers
from rmrl.offline.rewards import AsyncRewards
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item
from rmrl.reward_training.results import reward_spec
from rmrl.reward_training.reward_engine import PlainScores
from rmrl.reward_training.tokens import Tokenized
from rmrl.reward_training.training import BEST, State

_log = logging.getLogger(__name__)

TRAINING = "training engine"
_EXACT = 1e-5
_HALF = 0.02
"""Largest difference in half precision, as a share: 8 bits, and sums in another order."""
_NAME = "trained"
_PACKAGES = {"hf": "transformers", "vllm": "vllm", "sglang": "sglang"}


class GateError(RewardError):
    """The saved model scores otherwise in some engine than where it was trained."""


def gate_items(checked: CheckedRewardTraining) -> list[Item]:
    """Return items with as many texts as the gate compares."""
    chosen: list[Item] = []
    count = 0
    rows = _rows(checked)
    for item in rows.items:
        # Other engines cut elsewhere.
        if item.number not in rows.cut and count < checked.config.gate.texts:
            chosen.append(item)
            count += len(item.tokens)
    return chosen


def _rows(checked: CheckedRewardTraining) -> Tokenized:
    """The held-out rows, or those to train on where none are held out."""
    return checked.held_out if checked.held_out.items else checked.train


async def compare_engines(
    checked: CheckedRewardTraining,
    state: State,
    plain: PlainScores,
    report: dict[str, Any],
) -> None:
    """Score the texts from `gate_items` with the saved model in each engine, and put the largest
    differences into the report. `plain`: what transformers makes of these texts.

    Raises GateError, which names the tensors to look at, where one is too large.
    """
    items = gate_items(checked)
    if not items:
        _log.warning("every text was cut: the engines were not compared")
        return
    source = checked.split.held_out if checked.held_out.items else checked.split.train
    examples = [source[item.number] for item in items]
    scores: dict[str, list[float]] = {}
    if state.best:
        places = {item.number: place for place, item in enumerate(checked.held_out.items)}
        outputs = [state.best[places[item.number]] for item in items]
        scores[TRAINING] = [_score(checked, each) for each in _flat(outputs)]
    skipped: dict[str, str] = {}
    for engine in checked.config.gate.engines:
        if importlib.util.find_spec(_PACKAGES.get(engine, engine)) is None:
            skipped[engine] = "not installed"
            continue
        scores[engine] = await _engine_scores(checked, examples, engine)
    base = np.asarray([_score(checked, logits) for logits in plain.logits])
    tolerance = _tolerance(checked, base)
    differences: dict[str, float] = {
        name: float(np.abs(np.asarray(each) - base).max()) for name, each in scores.items()
    }
    report["gate"] = {
        "texts": len(base),
        "tolerance": tolerance,
        "largest_difference_from_transformers": differences,
        "skipped": skipped,
    }
    for name, difference in differences.items():
        _log.info(
            f"gate: {name} differs from transformers by at most {difference:.2g}, {len(base)} texts"
        )
    wrong = {name: each for name, each in differences.items() if not each <= tolerance}
    if wrong:
        raise GateError(mismatch(checked, wrong, tolerance, lost=plain.lost))


def mismatch(
    checked: CheckedRewardTraining, wrong: dict[str, float], tolerance: float, *, lost: list[str]
) -> str:
    """Return the error's sentence. It names the tensors that transformers misses, or the head's."""
    folder = checked.out / BEST
    heads = [
        f"{header.name} {list(header.shape)}"
        for header in tensor_headers(folder)
        if header.name.split(".")[0] in ("score", "classifier", "v_head", "value_head")
    ]
    layer = f"the layer to look at is the head (in the files: {', '.join(heads) or 'none'})"
    if lost:
        layer = f"its files and transformers' class do not agree on {', '.join(lost)}"
    listed = ", ".join(f"{name} by {each:.3g}" for name, each in wrong.items())
    return (
        f"the model in {folder} scores otherwise than in transformers in {listed}, where"
        f" {tolerance:.2g} is allowed; {layer}. Everything is kept: gate.tolerance=... allows more"
    )


def _score(checked: CheckedRewardTraining, outputs: Sequence[float]) -> float:
    """A response's score from the head's outputs."""
    weights = checked.objective.score_weights
    if not weights:
        return outputs[0]
    names = checked.objective.outputs
    return sum(weight * outputs[names.index(name)] for name, weight in weights.items())


def _flat(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [value for row in rows for value in row]


def _tolerance(checked: CheckedRewardTraining, base: np.ndarray) -> float:
    given_tolerance = checked.config.gate.tolerance
    if given_tolerance is not None:
        return given_tolerance
    fsdp = checked.config.fsdp_config
    if (fsdp.param_dtype or fsdp.model_dtype) in ("float32", "fp32"):
        return _EXACT * max(1.0, float(np.abs(base).max()))
    return _HALF * max(1.0, float(base.std()), float(np.abs(base).max()))


async def _engine_scores(
    checked: CheckedRewardTraining, examples: Sequence[Example], engine: str
) -> list[float]:
    """Scores from rmrl's own kind, from texts, as `rmrl score` makes them."""
    fsdp = checked.config.fsdp_config
    dtype = fsdp.param_dtype or fsdp.model_dtype
    spec = {**reward_spec(checked), "engine": {"name": engine, "dtype": dtype}}
    config = {
        "reward": {"models": [_NAME], "specs": {_NAME: spec}},
        "trainer": {"device": checked.device},
    }
    rewards = await asyncio.to_thread(AsyncRewards, config)
    async with rewards:
        prompts = [
            example.prompt if isinstance(example.prompt, str) else list(map(dict, example.prompt))
            for example in examples
        ]
        responses = [list(example.responses) for example in examples]
        try:
            table = await rewards.score(prompts, responses)
        except (EngineLoadError, ConfigError) as error:
            raise GateError(
                f"the engine {engine} cannot load the trained model: {error}"
            ) from error
    # A missing verdict is None, which numpy makes NaN of.
    return np.asarray(_flat(table[f"score_{_NAME}"]), np.float64).tolist()
