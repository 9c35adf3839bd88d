"""Everything about a comparison that can be found wrong before an engine is started."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmrl.api import CheckedScoring, check_scoring
from rmrl.config.plain_checks import confidence_problems, field_problems, folder_problems
from rmrl.config.schema import CompareConfig, RewardConfig, ScoreConfig
from rmrl.config.section import SECTION, read_section
from rmrl.config.typed import config_of
from rmrl.data.responses import answered_rows
from rmrl.errors import ConfigError, DataError, Problems
from rmrl.evaluation.labels import response_labels
from rmrl.evaluation.scored_once import scoring_config

_log = logging.getLogger(__name__)

NAMES = ("a", "b")
"""The two sections in reports and names of files."""
CACHE = "verdicts.sqlite"
_NEEDS_LABELS = ("accuracy", "pairs", "best")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedComparison:
    """A comparison without known problems."""

    config: CompareConfig
    out: Path
    sections: tuple[Path, Path]
    scorings: tuple[CheckedScoring, CheckedScoring]
    """One for each section, into out/a.jsonl and out/b.jsonl."""


def check_comparison(
    config: CompareConfig, sections: Sequence[Path], *, shipped_functions: Path
) -> CheckedComparison:
    """Check the configuration, the labels, and both sections as `rmrl score` does.

    Raises ConfigError with a round's every problem, DataError for rows and labels that cannot be
    read, and what `check_scoring` does.
    """
    problems = Problems()
    problems.add(config_problems(config))
    rewards: list[RewardConfig] = []
    for path in sections:
        with problems.collecting():
            rewards.append(config_of({SECTION: read_section(path)}, ScoreConfig).reward)
    problems.raise_any()
    assert config.out is not None
    out = Path(config.out).expanduser()
    _check_labels(config)
    share_cache(rewards, out)
    scorings: list[CheckedScoring] = []
    for name, path, reward in zip(NAMES, sections, rewards, strict=True):
        _log.info(f"{name} is {path}")
        scoring = scoring_config(config, reward, out / f"{name}.jsonl")
        with problems.collecting():
            try:
                scorings.append(check_scoring(scoring, shipped_functions=shipped_functions))
            except ConfigError as error:
                raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from error
    problems.raise_any()
    first, second = scorings
    return CheckedComparison(
        config=config, out=out, sections=(sections[0], sections[1]), scorings=(first, second)
    )


def config_problems(config: CompareConfig) -> Iterator[str]:
    """Yield a sentence for each wrong value in the configuration, before any file is read."""
    settings = config.compare
    if config.data.files is None:
        yield "data.files is empty: give rows with responses, e.g. data.files=responses.jsonl"
    yield from folder_problems(config.out, "the report", example="runs/compare")
    if settings.figure in _NEEDS_LABELS and settings.label is None:
        yield (
            f"compare.figure={settings.figure} needs people's labels: name their column,"
            " compare.label=..., or take compare.figure=mean"
        )
    yield from confidence_problems("compare.confidence", settings.confidence)
    yield from field_problems(config)


def share_cache(rewards: Sequence[RewardConfig], out: Path) -> None:
    """Give both sections one cache, in place, so that what they share is computed once. Two
    different ones are left as they are."""
    paths: set[str] = {reward.cache.path for reward in rewards if reward.cache.path is not None}
    if len(paths) > 1:
        _log.warning(
            "the sections have different caches, so a judge that both have is asked twice; give"
            " them one reward.cache.path, or none"
        )
        return
    path = str(out / CACHE)
    if paths:
        (path,) = paths
    for reward in rewards:
        reward.cache.path = path


def _check_labels(config: CompareConfig) -> None:
    """Raise DataError for a label that cannot be read, and where no row has any."""
    settings = config.compare
    if settings.label is None:
        return
    has_label = False
    columns: dict[str, None] = {}
    for row in answered_rows(config.data):
        columns |= dict.fromkeys(row.fields)
        labels = response_labels(row, settings.label, settings.good_from, section="compare")
        has_label |= set(labels) != {None}
    if not has_label:
        raise DataError(
            f"data.files, '{settings.label}': saw no label; name their column: compare.label=... of"
            f" {', '.join(columns)}"
        )
