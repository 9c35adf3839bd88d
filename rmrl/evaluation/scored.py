"""Rewards' judgements on a benchmark's items: rows for `rmrl score`, their scoring, and the scores
as judgements.

Responses to one prompt are one group, as when `rmrl score` reads the same rows.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rmrl.api import CheckedScoring
from rmrl.config.schema import EvalConfig, ScoreConfig, ScoreDataConfig
from rmrl.data.rows import read_rows
from rmrl.data.surrogates import escaped
from rmrl.errors import DataError
from rmrl.evaluation.formats.processbench import SEPARATOR
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement
from rmrl.evaluation.report import COMBINED
from rmrl.evaluation.scored_once import is_finished
from rmrl.files import write_whole

ROWS = "rows.jsonl"
SCORED = "scored.jsonl"


def write_rows(items: Sequence[Item], out: Path) -> None:
    """Write the items as rows to score into the folder `out`. Raises DataError where the folder
    cannot be written."""
    lines: list[str] = []
    for item in items:
        row = {
            "prompt": item.prompt,
            "responses": item.conversations or item.responses,
            "data_source": item.data_source,
            "ground_truth": item.ground_truth,
            "extra_info": {"id": item.id, "subset": item.subset, **item.extra_info},
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / ROWS, escaped("\n".join(lines)) + "\n")
    except OSError as error:
        raise cannot_write(out, error) from error


@contextmanager
def rows_written(items: Sequence[Item], out: Path) -> Iterator[None]:
    """Write the rows as `write_rows` does. An error inside the block removes the files that were
    not there before."""
    was_there = out.exists()
    had_rows = (out / ROWS).exists()
    write_rows(items, out)
    try:
        yield
    except BaseException:
        if not had_rows:
            (out / ROWS).unlink(missing_ok=True)
        if not was_there:
            with suppress(OSError):
                out.rmdir()
        raise


def scoring_config(config: EvalConfig, items: Sequence[Item], out: Path) -> ScoreConfig:
    """Return an `rmrl score` configuration for the rows in `out`, with the same rewards, engines
    and budgets."""
    further: list[str] = []
    if any(item.first_wrong is not None for item in items):
        further.append("steps")
    return ScoreConfig(
        data=ScoreDataConfig(
            files=str(out / ROWS),
            batch_size=config.data.batch_size,
            tokenizer=config.data.tokenizer,
        ),
        out=str(out / SCORED),
        # Finished scores are compared with this job in `score_once`, not refused for being there.
        overwrite=config.overwrite or is_finished(out / SCORED),
        columns=further,
        over_budget=config.over_budget,
        reward=config.reward,
        reward_model=config.reward_model,
        custom_reward_function=config.custom_reward_function,
        trainer=config.trainer,
        ray_kwargs=config.ray_kwargs,
    )


def read_judgements(
    checked: CheckedScoring, items: Sequence[Item], *, step_threshold: float
) -> dict[str, list[Judgement]]:
    """Return component -> its judgements, one per item. With several components, include the
    combined reward."""
    assert checked.out is not None
    rows = list(read_rows(checked.out))
    if len(rows) != len(items):
        raise DataError(
            f"{checked.out} holds {len(rows)} rows for {len(items)} items; remove it and evaluate"
            " again"
        )
    names = [spec.name for spec in checked.specs if not spec.part_of]
    columns = {name: f"score_{name}" for name in names}
    if len(names) > 1:
        columns[COMBINED] = "reward"
    judges: dict[str, list[Judgement]] = {name: [] for name in columns}
    for scored, item in zip(rows, items, strict=True):
        row = scored.fields
        for name, column in columns.items():
            judgement = Judgement(scores=tuple(row[column]))
            if item.first_wrong is not None:
                parts = json.loads(row.get(f"steps_{name}", ["[]"])[0])
                if parts:
                    step = first_wrong_step(parts, item.steps, step_threshold)
                else:
                    step = step_number(row[column][0], len(item.steps))
                judgement = Judgement(first_wrong=step)
            judges[name].append(judgement)
    return judges


def cannot_write(place: Path, error: OSError) -> DataError:
    """Return the error for a folder that cannot be written."""
    return DataError(
        f"out={place} cannot be written ({error}); make room, mend the permissions or give another"
        " folder"
    )


def first_wrong_step(
    parts: Sequence[tuple[int, float]], steps: Sequence[str], threshold: float
) -> int:
    """Return the step number in which the first part with a score below `threshold` ends. -1 where
    there is none. `parts`: [end in the joined response, score]."""
    ends: list[int] = []
    end = 0
    for step in steps:
        end += len(step) + len(SEPARATOR)
        ends.append(end)
    for part_end, score in parts:
        if score < threshold:
            return min(bisect.bisect_left(ends, part_end), len(steps) - 1)
    return -1


def step_number(score: float | None, count: int) -> int | None:
    """Return a score that names a step among `count` (or -1: none is wrong) as a whole number. None
    for every other score."""
    if score is None or score != int(score) or not -1 <= score < count:
        return None
    return int(score)
