"""`rmrl calibrate`: labelled rows, scored now or before -> a map per reward.

out/<reward>.json         the map, for `transform: {kind: calibrated, file: ...}`, with its figures
out/reliability.png       share of good responses over P(good), before and after
out/scored.jsonl          the rows with their scores, where they were scored now
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rmrl.api import OpenScorer, ProbabilityMap, corrected_scores, judge_missing, open_scorer
from rmrl.data.column_names import ColumnNames, column_names, names_in, value_at
from rmrl.data.groups import group_columns, group_of
from rmrl.data.problems import FieldError
from rmrl.errors import DataError
from rmrl.evaluation.calibrate.check_calibration import SCORED, CheckedCalibration
from rmrl.evaluation.calibrate.fit import (
    FEW_LABELS,
    FITS,
    curve_problem,
    figures,
    fold_curves,
    label_problem,
    unseen,
    verdicts_of,
)
from rmrl.evaluation.labels import labelled_rows, scored_labels
from rmrl.evaluation.plot import draw_reliability
from rmrl.evaluation.read_items import free_name
from rmrl.evaluation.scored import cannot_write
from rmrl.evaluation.scored_once import score_once
from rmrl.files import write_whole

_log = logging.getLogger(__name__)

PICTURE = "reliability.png"


@dataclass(slots=True, kw_only=True)
class Column:
    """One reward's scores: of labelled responses with the labels, and of the others, each with the
    number of its prompt."""

    scores: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    unlabelled: list[float] = field(default_factory=list)
    unlabelled_prompts: list[int] = field(default_factory=list)
    missing: int = 0
    """Labelled responses without a score."""

    def add(self, score: float | None, label: bool | None, prompt: int) -> None:
        """Add a response."""
        if label is None:
            if score is not None:
                self.unlabelled.append(score)
                self.unlabelled_prompts.append(prompt)
        elif score is None:
            self.missing += 1
        else:
            self.scores.append(score)
            self.good.append(label)
            self.prompts.append(prompt)


def run_calibrate(
    checked: CheckedCalibration, *, opened: OpenScorer | None = None
) -> dict[str, ProbabilityMap]:
    """Score where that is left to do, fit and write the maps. `opened`: what scores. None: this
    machine's engines.

    Raises DataError where a reward cannot be calibrated (the others' maps are written) and where
    files cannot be written, and what `score_once` and `judge_missing` do.
    """
    summary = None
    if checked.scoring is not None:
        opened = opened or partial(open_scorer, checked.scoring)
        summary = score_once(checked.scoring, opened, overwrite=checked.config.overwrite)
    maps: dict[str, ProbabilityMap] = {}
    problems: list[str] = []
    for name, column in read_columns(checked).items():
        try:
            maps[name] = probability_map(checked, name, column)
        except DataError as error:
            problems.append(f"reward '{name}' cannot be calibrated: {error}")
    if maps:
        write_maps(checked, maps)
    if checked.scoring is not None and summary is not None:
        judge_missing(checked.scoring, summary)
    if problems:
        raise DataError("\n".join(problems))
    return maps


def read_columns(checked: CheckedCalibration) -> dict[str, Column]:
    """Return reward -> its scores and labels. Raises DataError for rows that lack them."""
    settings = checked.config.calibrate
    files = checked.config.data.files
    max_rows = checked.config.data.max_rows
    if checked.scoring is not None:
        files = str(checked.out / SCORED)
        max_rows = -1
    columns = {spec.name: Column() for spec in checked.specs}
    names = column_names(checked.config.data)
    group = group_columns(checked.config.data.group_key)
    prompts: dict[bytes, int] = {}
    rows = labelled_rows(files, settings.label, settings.good_from, max_rows=max_rows)
    for place, values, labels in rows:
        text = value_at(values, _prompt_column(values, names, place))
        if text is None:
            text = place  # a row without any prompt is one by itself
        try:
            key = group_of(values, [{"role": "user", "content": text}], group)
        except FieldError as error:
            raise DataError(f"{place}, {error}") from error
        prompt = prompts.setdefault(key, len(prompts))
        for name, column in columns.items():
            for score, label in scored_labels(values, name, labels, place=place):
                column.add(score, label, prompt)
    return columns


def _prompt_column(values: Mapping[str, Any], names: ColumnNames, place: str) -> str:
    """Return which column holds a scored row's prompt. Raises DataError."""
    try:
        return names_in(values).with_others(names).at("prompt")
    except FieldError as error:
        raise DataError(f"{place}, {error}") from error


def probability_map(checked: CheckedCalibration, name: str, column: Column) -> ProbabilityMap:
    """Return one reward's map with its figures. Raises DataError where it has none."""
    settings = checked.config.calibrate
    scores_N = np.asarray(column.scores, dtype=np.float64)
    prompts_N = np.asarray(column.prompts, dtype=np.int64)
    good_N = np.asarray(column.good, dtype=bool)
    problem = label_problem(good_N)
    if problem:
        raise DataError(f"{problem} ({column.missing} labelled responses have no score)")
    fitted = FITS[settings.method](scores_N, good_N)
    problem = curve_problem(fitted, scores_N, good_N)
    if problem:
        raise DataError(problem)
    threshold = settings.threshold
    if threshold is None:
        threshold = float(good_N.mean())
    curves, fold_N = fold_curves(settings.method, scores_N, good_N, prompts_N, seed=settings.seed)
    probabilities_N = unseen(curves, fold_N, scores_N)
    measured = figures(
        scores_N,
        probabilities_N,
        good_N,
        prompts_N,
        threshold=threshold,
        bins=settings.bins,
        confidence=settings.confidence,
    )
    measured["missing"] = column.missing
    fewest = min(measured[rate]["independent"] for rate in ("sensitivity", "specificity"))
    if fewest < FEW_LABELS:
        _log.warning(
            f"reward '{name}': sensitivity or specificity rests on labels that tell as much as"
            f" {fewest:.0f} independent ones, so that corrected shares are uncertain; label"
            f" responses to more prompts ({FEW_LABELS} of each label make the interval of a rate"
            " about +-0.08)"
        )
    (kind,) = (spec.kind for spec in checked.specs if spec.name == name)
    result = ProbabilityMap(
        curve=fitted,
        reward=name,
        kind=kind,
        digest=checked.digests[name],
        threshold=threshold,
        folds=tuple(curves),
        verdicts=verdicts_of(probabilities_N >= threshold, good_N, measured),
        figures=measured,
    )
    if column.unlabelled:
        estimate = corrected_scores(
            result,
            np.asarray(column.unlabelled),
            np.asarray(column.unlabelled_prompts),
            confidence=settings.confidence,
        )
        measured["without_label"] = asdict(estimate)
    return result


def write_maps(checked: CheckedCalibration, maps: Mapping[str, ProbabilityMap]) -> None:
    """Write a file per map and the picture. Raises DataError where they cannot be written."""
    curves: dict[str, Any] = {}
    try:
        checked.out.mkdir(parents=True, exist_ok=True)
        for name, file in map_files(maps).items():
            content = json.dumps(maps[name].to_json(), ensure_ascii=False, indent=1)
            write_whole(checked.out / file, content + "\n")
            _log.info(f"wrote {checked.out / file}")
            measured = maps[name].figures
            curves[f"{name}, as it is"] = {"calibration": measured["before"]}
            curves[f"{name}, calibrated"] = {"calibration": measured["after"]}
        draw_reliability({"judges": curves}, checked.out / PICTURE)
    except OSError as error:
        raise cannot_write(checked.out, error) from error


def map_files(names: Iterable[str]) -> dict[str, str]:
    """Return reward -> its file's name: a reward may be named like a path."""
    files: dict[str, str] = {}
    stems: set[str] = set()
    for name in names:
        stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "reward"
        if stem in stems:
            stem = free_name(stem, stems)
        stems.add(stem)
        files[name] = f"{stem}.json"
    return files
