"""The gate: the saved model scores held-out texts the same in transformers and in rmrl's engines,
and as it did when it was trained.

A head that was lost, another template or another position would otherwise show only as a policy
that learns nothing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rmrl.errors import ConfigError, EngineLoadError, RewardError
from rmrl.models.checkpoint_inspect import tensor_headers
from rmrl.offline.rewards import AsyncRewards
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item
from rmrl.reward_training.plain_scores import PlainScores
from rmrl.reward_training.results import adapter_spec, gate_spec
from rmrl.reward_training.tokens import Tokenized
from rmrl.reward_training.training import BEST, State

_log = logging.getLogger(__name__)

TRAINING = "training engine"
ROUNDED = "transformers, half precision"
_NAME = "trained"
_ROUNDINGS = 3.0
"""How many times its own rounding an engine may differ, which rounds other sums."""
_PACKAGES = {"hf": "transformers", "vllm": "vllm", "sglang": "sglang"}


class GateError(RewardError):
    """The saved model scores otherwise in some engine than where it was trained."""


def gate_items(checked: CheckedRewardTraining) -> list[Item]:
    """Return items with as many responses as the gate compares."""
    chosen: list[Item] = []
    count = 0
    rows = _rows(checked)
    # Other engines cut elsewhere.
    cut = set(rows.cut)
    for item in rows.items:
        if count >= checked.config.gate.texts:
            break
        if item.number not in cut:
            chosen.append(item)
            (example,) = _examples(checked, [item])
            count += len(example.responses)
    return chosen


def _examples(checked: CheckedRewardTraining, items: Sequence[Item]) -> list[Example]:
    source = checked.split.held_out if checked.held_out.items else checked.split.train
    return [source[item.number] for item in items]


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
    examples = _examples(checked, items)
    reading = checked.objective.reading
    scores: dict[str, list[float]] = {}
    if state.best:
        places = {item.number: place for place, item in enumerate(checked.held_out.items)}
        outputs = [state.best[places[item.number]] for item in items]
        scores[TRAINING] = _flat(map(reading.scores, outputs))
    skipped: dict[str, str] = {}
    for engine in checked.config.gate.engines:
        if importlib.util.find_spec(_PACKAGES.get(engine, engine)) is None:
            skipped[engine] = "not installed"
            continue
        scores[engine] = await engine_scores(checked, examples, engine, gate_spec(checked))
        if checked.config.model.lora_rank and engine in reading.merged_only:
            skipped[f"{engine}, not merged"] = "the engine loads no such adapter"
        elif checked.config.model.lora_rank:
            beside = adapter_spec(checked, gate_spec(checked))
            scores[f"{engine}, not merged"] = await engine_scores(checked, examples, engine, beside)
    base = np.asarray(_flat(map(reading.scores, plain.outputs)))
    if plain.rounded is not None:
        scores[ROUNDED] = _flat(map(reading.scores, plain.rounded))
    differences: dict[str, float] = {
        name: float(np.abs(np.asarray(each) - base).max()) for name, each in scores.items()
    }
    rounding = differences.get(ROUNDED, 0.0)
    tolerance = _tolerance(checked, base, rounding)
    report["gate"] = {
        "texts": len(base),
        "tolerance": tolerance,
        "largest_difference_from_transformers": differences,
        "rounding": rounding,
        "skipped": skipped,
        "scores": base.tolist(),
    }
    for name, difference in differences.items():
        _log.info(
            f"gate: {name} differs from transformers by at most {difference:.2g}, {len(base)} texts"
        )
    wrong = {name: each for name, each in differences.items() if not each <= tolerance}
    if wrong:
        raise GateError(mismatch(checked, wrong, tolerance, lost=plain.lost))


async def compare_ensemble(
    checked: CheckedRewardTraining,
    section: dict[str, Any],
    members: Sequence[Mapping[str, Any]],
    report: dict[str, Any],
) -> None:
    """Score the texts with all adapters on one engine, as the section `reward` says, and put the
    largest difference from the mean over `members` into the report: each seed's comparison, which
    has what transformers makes of its model. Raises GateError where it is too large."""
    (name,) = section["models"]
    specs = dict(section["specs"])
    ensemble = specs.pop(name)
    offsets = [each["transform"]["offset"] for each in specs.values()]
    scores_MN = np.asarray([each["scores"] for each in members])
    base = (scores_MN + np.asarray(offsets)[:, None]).mean(axis=0)
    tolerance = _tolerance(checked, scores_MN, max(each.get("rounding", 0.0) for each in members))
    examples = _examples(checked, gate_items(checked))
    differences: dict[str, float] = {}
    for engine in checked.config.gate.engines:
        if importlib.util.find_spec(_PACKAGES.get(engine, engine)) is not None:
            found = await engine_scores(checked, examples, engine, ensemble, **specs)
            differences[f"{engine}, one load"] = float(np.abs(np.asarray(found) - base).max())
    report["gate"] = {
        "texts": len(base),
        "tolerance": tolerance,
        "largest_difference_from_transformers": differences,
        "skipped": {},
    }
    wrong = {engine: each for engine, each in differences.items() if not each <= tolerance}
    if wrong:
        listed = ", ".join(f"{engine} by {each:.3g}" for engine, each in wrong.items())
        raise GateError(
            f"the ensemble scores otherwise than its members in transformers in {listed}, where"
            f" {tolerance:.2g} is allowed: the adapters beside {checked.base} are not those that"
            " were trained. Everything is kept: gate.tolerance=... allows more"
        )


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


def _flat(rows: Iterable[Sequence[Any]]) -> list[Any]:
    return [value for row in rows for value in row]


def _tolerance(checked: CheckedRewardTraining, base: np.ndarray, rounding: float) -> float:
    """`rounding`: the largest difference that half precision makes in transformers itself. It grows
    with the head's weights and the layers, and an engine sums in another order."""
    given_tolerance = checked.config.gate.tolerance
    if given_tolerance is not None:
        return given_tolerance
    fsdp = checked.config.fsdp_config
    reading = checked.objective.reading
    if (fsdp.param_dtype or fsdp.model_dtype) in ("float32", "fp32"):
        return reading.exact * max(1.0, float(np.abs(base).max()))
    stated = reading.half * max(1.0, float(base.std()), float(np.abs(base).max()))
    return max(stated, _ROUNDINGS * rounding)


async def engine_scores(
    checked: CheckedRewardTraining,
    examples: Sequence[Example],
    engine: str,
    spec: dict[str, Any],
    **others: dict[str, Any],
) -> list[float]:
    """Return scores from rmrl's own kinds, from texts, as `rmrl score` makes them. `others`: the
    members, where `spec` is an ensemble."""
    fsdp = checked.config.fsdp_config
    dtype = fsdp.param_dtype or fsdp.model_dtype
    config = {
        "reward": {
            "models": [_NAME],
            "specs": {_NAME: spec, **others},
            "engine": {"name": engine, "dtype": dtype},
        },
        "trainer": {"device": checked.device},
    }
    rewards = await asyncio.to_thread(AsyncRewards, config)
    async with rewards:
        prompts = [example.plain_prompt for example in examples]
        responses = [example.plain_responses for example in examples]
        columns = checked.objective.reading.columns(examples)
        try:
            table = await rewards.score(prompts, responses, **columns)
        except (EngineLoadError, ConfigError) as error:
            raise GateError(
                f"the engine {engine} cannot load the trained model: {error}"
            ) from error
    # A missing verdict is None, which numpy makes NaN of.
    return np.asarray(_flat(table[f"score_{_NAME}"]), np.float64).tolist()
