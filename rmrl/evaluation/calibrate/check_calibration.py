"""Everything about a calibration that can be found wrong before an engine is started."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.api import CheckedScoring, RewardSpec, check_scoring, resolve, reward_digest
from rmrl.cluster.device_survey import find_devices
from rmrl.config.check_reward import reward_problems
from rmrl.config.plain_checks import confidence_problems, field_problems, folder_problems
from rmrl.config.schema import CalibrateConfig, RewardConfig, ScoreConfig
from rmrl.data.responses import answered_rows
from rmrl.errors import DataError, Problems
from rmrl.evaluation.calibrate.fit import label_problem
from rmrl.evaluation.labels import Labels, labelled_rows, response_labels
from rmrl.evaluation.scored_once import scoring_config

_log = logging.getLogger(__name__)

SCORED = "scored.jsonl"
_KIND = "calibrated"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCalibration:
    """A calibration without known problems."""

    config: CalibrateConfig
    out: Path
    specs: tuple[RewardSpec, ...]
    """The rewards to calibrate."""
    digests: Mapping[str, Mapping[str, str]]
    """Reward -> digest, see `rmrl.rewards.calibration.digest`."""
    scoring: CheckedScoring | None
    """Settings of the scoring. None where the rows hold the scores."""


def check_calibration(config: CalibrateConfig, *, shipped_functions: Path) -> CheckedCalibration:
    """Check the configuration, count the labels, and check the rewards as `rmrl score` does.

    Raises ConfigError with a round's every problem, DataError for rows that cannot be read and for
    too few labels, and what `check_scoring` does.
    """
    problems = Problems()
    problems.add(config_problems(config))
    problems.raise_any()
    assert config.out is not None
    out = Path(config.out).expanduser()
    _count_labels(config)
    if without_calibrations(config.reward):
        _log.info("the calibrations of the section reward are left out: new ones are made")
    scoring: CheckedScoring | None = None
    if config.calibrate.scored:
        specs = _resolved(config, shipped_functions)
    else:
        scored = scoring_config(config, config.reward, out / SCORED)
        scoring = check_scoring(scored, shipped_functions=shipped_functions)
        specs = scoring.specs
    components = tuple(spec for spec in specs if not spec.part_of)
    digests: dict[str, Mapping[str, str]] = {
        spec.name: reward_digest(spec, specs) for spec in components
    }
    return CheckedCalibration(
        config=config, out=out, specs=components, digests=digests, scoring=scoring
    )


def config_problems(config: CalibrateConfig) -> Iterator[str]:
    """Yield a sentence for each wrong value in the configuration, before any file is read."""
    settings = config.calibrate
    if config.data.files is None:
        yield (
            "data.files is empty: give rows with responses and people's labels, e.g."
            " data.files=labelled.jsonl calibrate.label=label"
        )
    yield from folder_problems(config.out, "the calibrations", example="runs/calibration")
    if settings.scored and config.data.sample is not None:
        yield (
            "data.sample draws rows that are scored now: leave it out with calibrate.scored, or"
            " draw the rows when they are scored"
        )
    if not settings.label:
        yield "calibrate.label is empty: name the column with people's labels"
    if settings.threshold is not None and not 0 < settings.threshold < 1:
        yield (
            f"calibrate.threshold={settings.threshold}: give a probability between 0 and 1, or"
            " leave it out"
        )
    yield from confidence_problems("calibrate.confidence", settings.confidence)
    yield from field_problems(config)


def without_calibrations(reward: RewardConfig) -> bool:
    """Take the calibrations from `reward.models`' transforms, in place, since a new one maps the
    scores as they are. An ensemble's members keep theirs, which the ensemble's score depends on.
    Return whether there was any."""
    members: list[Any] = []
    for section in reward.specs.values():
        if isinstance(section, dict) and isinstance(section.get("of"), list | tuple):
            members += section["of"]
    changed = False
    for name in reward.models:
        if name in members:
            continue
        for section, key in ((reward.specs.get(name), "transform"), (reward.transforms, name)):
            if not isinstance(section, dict) or section.get(key) is None:
                continue
            typed = section[key]
            entries: Sequence[Any] = [typed]
            if isinstance(typed, list | tuple):
                entries = typed
            kept: list[Any] = [
                entry
                for entry in entries
                if not (isinstance(entry, Mapping) and entry.get("kind") == _KIND)
            ]
            if len(kept) == len(entries):
                continue
            changed = True
            section[key] = kept
            if not kept:
                del section[key]
    return changed


def _count_labels(config: CalibrateConfig) -> None:
    """Raise DataError where the rows hold too few labels."""
    settings = config.calibrate
    labelled: list[bool] = []
    columns: dict[str, None] = {}
    unlabelled = 0
    for values, labels in _rows(config):
        columns |= dict.fromkeys(values)
        for label in labels:
            if label is None:
                unlabelled += 1
            else:
                labelled.append(label)
    problem = label_problem(np.asarray(labelled, dtype=bool))
    if problem:
        where = f"data.files, '{settings.label}'"
        if not labelled:
            problem += f", or name their column: calibrate.label=... of {', '.join(columns)}"
        raise DataError(f"{where}: {problem}")
    _log.info(f"{len(labelled)} responses with a label; {unlabelled} labels are null or absent")


def _rows(config: CalibrateConfig) -> Iterator[tuple[Mapping[str, Any], Labels]]:
    """Yield each row's columns and labels; where it is to be scored, as scoring reads it."""
    column = config.calibrate.label
    good_from = config.calibrate.good_from
    if config.calibrate.scored:
        max_rows = config.data.max_rows
        for _, values, labels in labelled_rows(
            config.data.files, column, good_from, max_rows=max_rows
        ):
            yield values, labels
        return
    for row in answered_rows(config.data):
        yield row.fields, response_labels(row, column, good_from, section="calibrate")


def _resolved(config: CalibrateConfig, shipped_functions: Path) -> tuple[RewardSpec, ...]:
    """Return scored rows' rewards. Raises ConfigError with every problem."""
    problems = Problems()
    rewards = resolve(
        config.reward,
        device=find_devices(config.trainer.device, config.ray_kwargs.ray_init).kind,
        shipped_functions=shipped_functions,
        trust_remote_code=config.trainer.trust_remote_code,
    )
    problems.add([*reward_problems(ScoreConfig(reward=config.reward)), *rewards.problems])
    problems.raise_any()
    return tuple(rewards.specs)
