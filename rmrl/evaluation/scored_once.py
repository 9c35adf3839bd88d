"""Score a file in an output folder once. Whatever ends the call, the same call goes on later, and
finished rows are not scored again.

    <name>.jsonl              the rows with their scores
    <name>.identity.json      their job, and its statistics
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmrl.api import CheckedScoring, OpenScorer, Summary, identity_of, score_files, what_differs
from rmrl.config.schema import CalibrateConfig, CompareConfig, RewardConfig, ScoreConfig
from rmrl.errors import OutputDirError
from rmrl.files import write_whole

_log = logging.getLogger(__name__)

_SUMMARY = "summary"


def identity_file(scored: Path) -> Path:
    """Return the file beside `scored` that says to which job it belongs."""
    return scored.with_name(f"{scored.stem}.identity.json")


def is_finished(scored: Path) -> bool:
    """Return whether some job's scores are there, complete."""
    return scored.is_file() and identity_file(scored).is_file()


def scoring_config(
    config: CalibrateConfig | CompareConfig, reward: RewardConfig, out: Path
) -> ScoreConfig:
    """Return the configuration for `rmrl score` on another command's rows, into `out`."""
    return ScoreConfig(
        data=config.data,
        out=str(out),
        # Finished scores are compared with this job in `score_once`, not refused for being there.
        overwrite=config.overwrite or is_finished(out),
        over_budget=config.over_budget,
        reward=reward,
        trainer=config.trainer,
        ray_kwargs=config.ray_kwargs,
    )


def score_once(checked: CheckedScoring, opened: OpenScorer, *, overwrite: bool) -> Summary | None:
    """Score the rows, unless the same job has finished before (None then).

    Raises OutputDirError where the folder holds another job's scores and `overwrite` is false, and
    `score_files`' errors.
    """
    assert checked.out is not None
    file = identity_file(checked.out)
    identity = identity_of(checked)
    if is_finished(checked.out):
        try:
            different = what_differs(_record(file), identity)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            different = ["its record cannot be read"]
        if not different:
            _log.info(f"{checked.out} holds the scores of this evaluation already")
            return None
        if not overwrite:
            listed = "\n    ".join(different)
            raise OutputDirError(
                f"{checked.out} holds the scores of another evaluation:\n    {listed}\n  give"
                " another out=, or overwrite=true to replace them"
            )
        file.unlink()

    def record(summary: Summary) -> None:
        content = {**identity, _SUMMARY: summary.to_json()}
        write_whole(file, json.dumps(content, ensure_ascii=False, indent=1) + "\n")

    return score_files(checked, opened, on_written=record)


def finished_summary(scored: Path) -> Summary:
    """Return the statistics from finished scores. Raises OutputDirError where they cannot be
    read."""
    file = identity_file(scored)
    try:
        return Summary.from_json(_record(file)[_SUMMARY])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputDirError(
            f"{file} cannot be read ({type(error).__name__}: {error}); score again with"
            " overwrite=true, or give another out="
        ) from error


def _record(file: Path) -> Mapping[str, Any]:
    return json.loads(file.read_bytes())
