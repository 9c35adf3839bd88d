"""`rmrl compare`: two reward sections on the same rows -> a report.

out/comparison.json           every number, and the responses on which the two disagree most
out/comparison.png            the two rewards of each response
out/comparison.html, .md      the tables, the picture and those responses
out/a.jsonl, out/b.jsonl      the rows with the scores of each section
out/verdicts.sqlite           answers of the models, so that what both ask is asked once
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.api import OpenScorer, Summary, judge_missing, open_scorer
from rmrl.data.surrogates import escaped
from rmrl.evaluation.compare.agreement import overall, within_prompts
from rmrl.evaluation.compare.check_comparison import NAMES, CheckedComparison
from rmrl.evaluation.compare.comparison_tables import page_of
from rmrl.evaluation.compare.difference import FIGURES, difference, labelled_groups
from rmrl.evaluation.compare.flips import with_texts
from rmrl.evaluation.compare.mcnemar import mcnemar
from rmrl.evaluation.compare.plot import draw
from rmrl.evaluation.compare.responses import Responses, read_responses
from rmrl.evaluation.page import write_page
from rmrl.evaluation.report import finite
from rmrl.evaluation.scored import cannot_write
from rmrl.evaluation.scored_once import finished_summary, score_once
from rmrl.files import write_whole

_log = logging.getLogger(__name__)

REPORT = "comparison.json"
PICTURE = "comparison.png"


def run_compare(
    checked: CheckedComparison, *, opened: Sequence[OpenScorer] | None = None
) -> dict[str, Any]:
    """Score what is left to score, one section after the other, compare, and write the report.
    `opened`: what scores, per section. None: this machine's engines.

    Whatever ends it, the same call goes on. Raises what `score_once` and `judge_missing` do,
    DataError where files cannot be written.
    """
    summaries: list[Summary] = []
    scored: list[Path] = []
    components: list[list[str]] = []
    for position, scoring in enumerate(checked.scorings):
        assert scoring.out is not None
        opener: OpenScorer = partial(open_scorer, scoring)
        if opened is not None:
            opener = opened[position]
        score_once(scoring, opener, overwrite=checked.config.overwrite)
        summaries.append(finished_summary(scoring.out))
        scored.append(scoring.out)
        components.append([spec.name for spec in scoring.specs if not spec.part_of])
    responses = read_responses(checked.config, scored)
    report = numbers(checked, responses, summaries)
    both = responses.with_rewards()
    report["flips"] = with_texts(
        both,
        checked.config.compare.rows,
        data=checked.config.data,
        scored=scored,
        components=components,
        characters=checked.config.compare.characters,
    )
    report = finite(report)
    try:
        text = json.dumps(report, ensure_ascii=False, indent=1)
        write_whole(checked.out / REPORT, escaped(text) + "\n")
        draw(both, checked.out / PICTURE)
        write_page(page_of(report, checked.out / PICTURE), checked.out / REPORT)
    except OSError as error:
        raise cannot_write(checked.out, error) from error
    _log.info(f"wrote {checked.out / REPORT}")
    for scoring, summary in zip(checked.scorings, summaries, strict=True):
        judge_missing(scoring, summary)
    return report


def numbers(
    checked: CheckedComparison, responses: Responses, summaries: Sequence[Summary]
) -> dict[str, Any]:
    """Return every number in the report."""
    settings = checked.config.compare
    both = responses.with_rewards()
    figure = settings.figure
    if figure == "auto":
        figure = chosen_figure(both)
    terms = FIGURES[figure](both, settings.threshold)
    tested = difference(
        terms,
        resamples=settings.resamples,
        confidence=settings.confidence,
        seed=settings.seed,
    )
    sections: dict[str, Any] = {}
    for name, path, summary in zip(NAMES, checked.sections, summaries, strict=True):
        sections[name] = {
            "file": str(path),
            "responses": summary.rows,
            "rewards": summary.kept,
            "mean": summary.reward.mean,
            "seconds": summary.seconds,
            "costs": {each: dataclasses.asdict(cost) for each, cost in summary.costs.items()},
        }
    return {
        "sections": sections,
        "responses": len(responses),
        "compared": len(both),
        "prompts": len(np.unique(both.prompt_N)),
        "agreement": overall(both),
        "within_prompts": within_prompts(both),
        "figure": figure,
        "confidence": settings.confidence,
        "difference": tested,
        "verdicts": mcnemar(terms),
    }


def chosen_figure(responses: Responses) -> str:
    """Return pairs where the prompts with a good and a bad response have at least half the labelled
    responses, accuracy with other labels, mean without labels."""
    labelled = int((~np.isnan(responses.good_N)).sum())
    if not labelled:
        return "mean"
    in_pairs = sum(len(good_n) for _, good_n in labelled_groups(responses))
    if 2 * in_pairs >= labelled:
        return "pairs"
    return "accuracy"
