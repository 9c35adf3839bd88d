"""Find everything wrong with an evaluation that shows before an engine is started."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.api import CheckedScoring, check_scoring, parser_problem
from rmrl.config.plain_checks import confidence_problems, field_problems, folder_problems
from rmrl.config.schema import EvalConfig
from rmrl.errors import ConfigError, Problems
from rmrl.evaluation.formats import FORMATS, Format
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement, TieRule
from rmrl.evaluation.read_items import formats_of, read_items, sampled
from rmrl.evaluation.recorded import NAMES, read_recorded
from rmrl.evaluation.scored import rows_written, scoring_config
from rmrl.registry import did_you_mean

_REFERENCE = "ground_truth"
"""A format's name for the column that other commands call the reference."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEval:
    """An evaluation without known problems. Either `recorded` or `scoring` is given."""

    config: EvalConfig
    form: Format
    ties: TieRule
    items: tuple[Item, ...]
    out: Path
    recorded: dict[str, list[Judgement]] | None = None
    scoring: CheckedScoring | None = None


def check_eval(config: EvalConfig, *, shipped_functions: Path) -> CheckedEval:
    """Read the benchmark and the recorded judgements, or check the rewards as `rmrl score` does.

    Raises ConfigError with every problem in a round, DataError for rows that cannot be read, and
    `check_scoring`'s errors.
    """
    problems = Problems()
    name_format(config)
    problems.add(eval_problems(config))
    problems.raise_any()
    settings = config.eval
    assert settings.format is not None
    assert config.out is not None
    form: Format = FORMATS[settings.format]()
    ties = form.ties
    if settings.ties == "share":
        ties = "share"
    elif settings.ties == "wrong":
        ties = "wrong"
    is_recorded = settings.recorded is not None
    out = Path(config.out).expanduser()
    items = checked_items(config, form, out, shipped_functions=shipped_functions)
    if config.data.sample is not None:
        items = sampled(items, config.data.sample, seed=settings.seed)
    _log.info(f"{len(items)} items of {settings.format}")
    judgements = None
    scoring = None
    if is_recorded:
        judgements = read_recorded(settings, form, items)
    else:
        with rows_written(items, out):
            scoring = check_scoring(
                scoring_config(config, items, out),
                shipped_functions=shipped_functions,
            )
    judges = list(judgements or config.reward.models)
    if settings.gold is not None and settings.gold not in judges:
        hint = did_you_mean(settings.gold, judges)
        raise ConfigError(f"eval.gold={settings.gold}: no judge of that name{hint}")
    return CheckedEval(
        config=config,
        form=form,
        ties=ties,
        items=tuple(items),
        out=out,
        recorded=judgements,
        scoring=scoring,
    )


def name_format(config: EvalConfig) -> None:
    """Name the format of the files, in place, where none is named and their first row fits one
    alone."""
    if config.eval.format is not None:
        return
    columns, _ = _columns(config)
    fitting = formats_of(config.data.files, columns)
    if len(fitting) == 1:
        config.eval.format = fitting[0]
        _log.info(f"eval.format={fitting[0]}: the first row of data.files fits no other")


def checked_items(
    config: EvalConfig, form: Format, out: Path, *, shipped_functions: Path
) -> list[Item]:
    """Read the items. Raises `check_eval`'s errors: unreadable rows hide no problem in the
    rewards."""
    problems = Problems()
    columns, typed = _columns(config)
    is_recorded = config.eval.recorded is not None
    items: list[Item] = []
    with problems.collecting():
        items = read_items(
            config.data.files or config.eval.recorded,
            form,
            columns,
            typed=typed,
            max_rows=config.data.max_rows,
            needs_texts=not is_recorded,
        )
    if problems and not is_recorded:
        without_rows = scoring_config(config, (), out)
        without_rows.data.files = None
        with problems.collecting():
            check_scoring(
                without_rows,
                shipped_functions=shipped_functions,
                needs_out=False,
                needs_files=False,
            )
    problems.raise_any()
    return items


def _columns(config: EvalConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a format's names -> columns, as the configuration gives them, and these names -> typed
    keys."""
    columns: dict[str, Any] = {}
    typed: dict[str, str] = {}
    for key, names in (
        ("eval.columns", config.eval.columns),
        ("data.columns", config.data.columns),
    ):
        for name, column in names.items():
            own_name = _REFERENCE if name == "reference" else name
            columns[own_name] = column
            typed[own_name] = f"{key}.{name}"
    return columns, typed


def eval_problems(config: EvalConfig) -> Iterator[str]:
    """Yield a sentence for each wrong value in the configuration, before all rows are read."""
    settings = config.eval
    if settings.format is None:
        columns, _ = _columns(config)
        fitting = " or ".join(formats_of(config.data.files, columns))
        advice = f"the first row fits eval.format={fitting}; give" if fitting else "give"
        yield f"eval.format is empty: {advice} the layout of the files, one of {', '.join(FORMATS)}"
    else:
        yield from FORMATS.problems(settings.format, "eval.format")
    if config.data.files is None and settings.recorded is None:
        yield (
            "data.files is empty: give the files of the benchmark, e.g. data.files=filtered.parquet"
        )
    has_rewards = config.reward.models or config.reward_model or config.custom_reward_function
    if settings.recorded is None and not has_rewards:
        yield (
            "there is nothing to evaluate: name rewards (reward.models=[...]), or a file of"
            " recorded scores or verdicts (eval.recorded=...)"
        )
    if settings.recorded is not None and config.reward.models:
        yield (
            "eval.recorded and reward.models are both given, and recorded judgements take no"
            " reward: leave one of them out"
        )
    yield from folder_problems(config.out, "the report", example="runs/eval")
    yield from _reading_problems(config)
    yield from field_problems(config)


def _reading_problems(config: EvalConfig) -> Iterator[str]:
    settings = config.eval
    for name in settings.recorded_columns:
        if name not in NAMES:
            yield f"eval.recorded_columns.{name}: nothing of that name{did_you_mean(name, NAMES)}"
    if len(settings.choices) not in (2, 3) or len(set(settings.choices)) < len(settings.choices):
        yield (
            f"eval.choices={settings.choices}: give the names of the first response, of the second"
            " and, where judges may say so, of a tie, e.g. eval.choices=[A,B,tie]"
        )
    if settings.scale and not (len(settings.scale) == 2 and settings.scale[0] < settings.scale[1]):
        yield f"eval.scale={settings.scale}: give its ends, e.g. eval.scale=[1,5]"
    problem = parser_problem(settings.parser, "verdict")
    if problem:
        yield f"eval.parser={settings.parser!r}: {problem}"
    yield from confidence_problems("eval.confidence", settings.confidence)
