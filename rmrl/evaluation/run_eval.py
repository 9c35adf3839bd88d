"""`rmrl eval`: judgements, recorded or from scored rewards, -> a report.

out/report.json       every number
out/report.html, out/report.md      the tables
out/outcomes.jsonl    a row per judge and comparison: its choices and their worth
out/reliability.png   where scores are confidences
out/rows.jsonl, out/scored.jsonl    where rewards were scored: the rows, and their scores
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rmrl.api import OpenScorer, ProbabilityMap, judge_missing, maps_of, open_scorer
from rmrl.data.surrogates import escaped
from rmrl.evaluation.check_eval import CheckedEval
from rmrl.evaluation.eval_tables import heading, tables
from rmrl.evaluation.formats import Judged
from rmrl.evaluation.items import Item
from rmrl.evaluation.page import Page, write_page
from rmrl.evaluation.plot import draw_reliability
from rmrl.evaluation.report import Evaluation, evaluate, finite
from rmrl.evaluation.scored import cannot_write, read_judgements
from rmrl.evaluation.scored_once import score_once
from rmrl.files import write_whole

_log = logging.getLogger(__name__)

REPORT = "report.json"
OUTCOMES = "outcomes.jsonl"
PICTURE = "reliability.png"


def run_eval(checked: CheckedEval, *, opened: OpenScorer | None = None) -> Evaluation:
    """Evaluate, and write the report. `opened`: the scorer to use. None: engines on this machine.

    Raises what `score_once` and `judge_missing` raise, DataError where files cannot be written.
    """
    summary = None
    judges = checked.recorded
    calibrations: dict[str, ProbabilityMap] = {}
    if judges is None:
        assert checked.scoring is not None
        opened = opened or partial(open_scorer, checked.scoring)
        overwrite = checked.config.overwrite
        summary = score_once(checked.scoring, opened, overwrite=overwrite)
        threshold = checked.config.eval.step_threshold
        calibrations = maps_of(checked.scoring.specs)
        judges = read_judgements(checked.scoring, checked.items, step_threshold=threshold)
    evaluation = evaluate(
        checked.items,
        judges,
        form=checked.form,
        ties=checked.ties,
        settings=checked.config.eval,
        calibrations=calibrations,
    )
    write_report(checked, evaluation)
    _log.info(f"wrote {checked.out / REPORT}")
    if checked.scoring is not None and summary is not None:
        judge_missing(checked.scoring, summary)
    return evaluation


def write_report(checked: CheckedEval, evaluation: Evaluation) -> None:
    """Write the report's files into `checked.out`. Raises DataError where they cannot be
    written."""
    lines: list[str] = []
    for name, judge in [*evaluation.judges.items(), *evaluation.controls.items()]:
        for row in _outcome_rows(checked.items, judge):
            fields = finite({"judge": name, "control": name in evaluation.controls, **row})
            lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    report = json.dumps(evaluation.numbers, ensure_ascii=False, indent=1)
    try:
        checked.out.mkdir(parents=True, exist_ok=True)
        write_whole(checked.out / REPORT, escaped(report) + "\n")
        write_whole(checked.out / OUTCOMES, escaped("".join(lines)))
        picture = None
        if draw_reliability(evaluation.numbers, checked.out / PICTURE):
            picture = checked.out / PICTURE
        title = heading(evaluation.numbers)
        page = Page(title=title, tables=tables(evaluation.numbers), picture=picture)
        write_page(page, checked.out / REPORT)
    except OSError as error:
        raise cannot_write(checked.out, error) from error


def _outcome_rows(items: Sequence[Item], judge: Judged) -> Iterator[dict[str, Any]]:
    """Yield a row per comparison, or one row for an item without comparisons."""
    for outcome in judge.outcomes:
        comparison = outcome.comparison
        choices: list[list[int] | None] = []
        for choice in outcome.choices:
            if choice is None:
                choices.append(None)
            else:
                choices.append(sorted(choice))
        yield {
            "id": items[outcome.item].id,
            "subset": comparison.subset,
            "candidates": list(comparison.candidates),
            "good": sorted(comparison.good),
            "choices": choices,
            "scores": list(outcome.scores),
            "credit": outcome.credit,
        }
    for item, judgement in zip(items, judge.judgements, strict=True):
        if item.first_wrong is not None:
            steps = {"first_wrong": judgement.first_wrong, "label": item.first_wrong}
            yield {"id": item.id, "subset": item.subset, **steps}
        elif item.values:
            values = {"scores": list(judgement.scores), "values": list(item.values)}
            yield {"id": item.id, "subset": item.subset, **values}
