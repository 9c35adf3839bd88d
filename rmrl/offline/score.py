"""`rmrl score`: adds `rmrl.offline.score_columns`' columns to rows with responses.

claim the job -> batches -> scorer -> durable parts -> assemble -> out -> budgets of the file
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from rmrl.cluster.watch import keep_in_mind, unless_lost
from rmrl.data.json_text import json_text
from rmrl.data.problems import BadRow
from rmrl.data.responses import AnsweredRow, batches
from rmrl.data.row_index import bad_rows, rows_to_score
from rmrl.errors import DataError, Interrupted, MissingVerdictsError
from rmrl.files import write_whole
from rmrl.garbage import rare_collections
from rmrl.offline.assemble import assemble
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.offline.job import Job, cannot_write, claim, discard
from rmrl.offline.manifest import quarantine_file, summary_file
from rmrl.offline.missing_table import broken_budgets, missing_table
from rmrl.offline.open_scorer import OpenScorer, token_counter
from rmrl.offline.progress import counting
from rmrl.offline.response_rows import response_rows
from rmrl.offline.summary import Summary
from rmrl.offline.training_files import export
from rmrl.rewards.session.scorer import Scorer
from rmrl.signals import stop_signals
from rmrl.telemetry.progress import watching
from rmrl.types import RewardBatch

_log = logging.getLogger(__name__)

_LEAST_EQUAL = 20
"""Responses that are remarked on where all have one score; fewer may be equal by chance."""
_FIRST_BATCHES = (16, 32, 64, 128)
"""Responses of the first batches, where no score depends on the batch: the first results of a slow
judge are kept early."""

_BATCHES_OF_RULES = 3
"""Batches in the workers' queues at a time, where all rewards are rules."""


def score_files(
    checked: CheckedScoring,
    opened: OpenScorer,
    *,
    on_written: Callable[[Summary], None] | None = None,
) -> Summary:
    """Score the rows in `data.files` that are not scored yet, and write `out`. `opened` is called
    if there are any; `on_written` as soon as `out` is there, while the job can still be resumed.

    Memory does not grow with the rows, except for 16 bytes per row and 170 per group where
    responses are compared. After any end, the same call resumes after the last part. Raises
    Interrupted on SIGINT, SIGTERM and SIGHUP, what `Scorer.score` and `claim` raise, and DataError
    where files cannot be read or written.
    """
    with rare_collections(), claim(checked) as job:
        _quarantine(job)
        try:
            if job.rows_left and checked.config.score.engine == "ray_data":
                from rmrl.offline.on_cluster import score_on_cluster  # here: it imports Ray

                score_on_cluster(job)
            elif job.rows_left:
                asyncio.run(_score_left(job, opened))
            if not job.in_place:
                assemble(job)
            export(job)
            if on_written is not None:
                on_written(job.summary)
        except BaseException:
            _log.info(job.standing())
            raise
        discard(job)
    _log.info(f"wrote {job.out}: {job.survey.rows} rows, {job.summary.rows} responses")
    return job.summary


def _quarantine(job: Job) -> None:
    """Write the bad rows beside the output; without any, remove an older file with them."""
    settings = job.checked.config.data
    if settings.on_bad_row != "quarantine":
        return
    file = quarantine_file(job.out)
    if not job.survey.bad_rows:
        file.unlink(missing_ok=True)
        return
    records = map(_record, bad_rows(settings, job.survey))
    count = job.write_lines(file, records)
    _log.warning(f"{count} rows cannot be read; they are in {file} with the reasons")


def _record(row: BadRow) -> dict[str, Any]:
    """Return a bad row's line. Its `fields` are null where they are nested too deep for JSON."""
    record = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    try:
        json_text(record)
    except RecursionError:
        record["fields"] = None
    return record


def write_summary(out: Path, summary: Summary) -> None:
    """Write a whole file's statistics beside it. Raises DataError where they cannot be written."""
    file = summary_file(out)
    try:
        write_whole(file, json.dumps(summary.to_json(), ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise cannot_write(file, error) from error


def judge_missing(
    checked: CheckedScoring, summary: Summary, *, over_budget: str | None = None
) -> None:
    """Log which verdicts are missing in the whole file or table, and rewards that tell no two
    responses apart.

    Raises MissingVerdictsError where a budget for missing verdicts is exceeded, unless
    `over_budget` is "warn". None: the configuration's, with which a reward without any verdict is
    an error all the same.
    """
    functions: list[str] = [spec.name for spec in checked.specs if spec.kind == "rule"]
    table = missing_table(summary.verdicts, functions=functions)
    if table:
        _log.info(table)
    for name, scores in summary.components.items():
        if scores.count >= _LEAST_EQUAL and scores.squares == 0:
            _log.warning(
                f"reward '{name}' is {scores.mean:g} for all of {scores.count} responses, so it"
                " tells none from another; are its columns the right ones (prompt and response"
                " not swapped, a reference in each row)?"
            )
    broken = broken_budgets(summary.in_reward, checked.config.reward)
    if not broken:
        return
    silent: list[str] = [
        name
        for name, counts in summary.in_reward.items()
        if counts.asked and counts.missing() == counts.asked
    ]
    listed = "\n".join(map("  {}".format, broken))
    place = f"all rows are in {checked.out} with their statuses"
    if checked.out is None:
        place = "the statuses of the rows name them"
    text = f"more verdicts are missing than allowed; {place}:\n{listed}"
    if over_budget == "warn" or (checked.config.over_budget == "warn" and not silent):
        _log.warning(text)
        return
    if silent:
        raise MissingVerdictsError(
            f"{text}\n  no response has a verdict of {', '.join(silent)}: correct the reward, or"
            " leave it out, and score again"
        )
    raise MissingVerdictsError(
        f"{text}\n  correct the reward and score again, raise the budget, or leave"
        " over_budget=fail out for exit code 0"
    )


async def _score_left(job: Job, opened: OpenScorer) -> None:
    """Score the remaining batches. A signal abandons the current one."""
    with stop_signals() as signals:
        try:
            async with opened() as scorer:
                signals.arm()
                keep_in_mind("rows scored until then stay on disk, run the same command again")
                await unless_lost(_batches(job, scorer))
        except asyncio.CancelledError as error:
            if signals.received is None:
                raise
            raise Interrupted(f"interrupted by {signals.received.name}") from error


async def _batches(job: Job, scorer: Scorer) -> None:
    """Score batch after batch. The next ones are read and sent to the workers while one is scored,
    where no score depends on the order, so that the workers always have calls."""
    checked = job.checked
    scorer.load_state_dict(job.state)
    rows = rows_to_score(
        checked.config.data,
        job.survey,
        done=job.rows_done,
        by_group=checked.whole_groups,
        with_groups=checked.whole_groups,
        count_tokens=token_counter(checked),
    )
    sizes = batch_sizes(checked, done=job.batches_done)
    stream = batches(rows, sizes, whole_groups=checked.whole_groups)
    at_once = _BATCHES_OF_RULES
    if checked.by_batch or any(spec.needs_model for spec in checked.specs):
        at_once = 1
    current: deque[_Scoring] = deque()

    def done_so_far() -> int:
        at_work = sum(scoring.responses for scoring in current)
        return job.responses_done + int(at_work * scorer.share_done())

    try:
        with counting(job.survey.responses, done=job.responses_done) as update:
            since = time.monotonic()
            async with watching(done_so_far, update):
                while True:
                    for batch in islice(stream, at_once - len(current)):
                        current.append(_Scoring.start(batch, scorer))
                    if not current:
                        break
                    rewards = await current[0].rewards
                    now = time.monotonic()
                    job.summary.seconds += now - since
                    since = now
                    batch = current.popleft().batch
                    state = scorer.state_dict()
                    job.add(batch, rewards, state, busy_s=scorer.take_seconds())
                    update(job.responses_done)
    except BaseException:
        for scoring in current:
            scoring.rewards.cancel()
        await asyncio.gather(*[each.rewards for each in current], return_exceptions=True)
        # If the disk is the cause of the end, the first error is reported.
        with suppress(DataError):
            job.close_part()
        raise
    job.close_part()


@dataclass(frozen=True, slots=True)
class _Scoring:
    """A batch that is being scored."""

    batch: list[AnsweredRow]
    responses: int
    rewards: asyncio.Task[RewardBatch]

    @classmethod
    def start(cls, batch: list[AnsweredRow], scorer: Scorer) -> _Scoring:
        """Begin to score the batch."""
        rows_B = response_rows(batch)
        task = asyncio.create_task(scorer.score(rows_B, within_budget=False))
        return cls(batch, len(rows_B), task)


def batch_sizes(checked: CheckedScoring, *, done: int) -> Iterator[int]:
    """Return each batch's responses after the first `done`. They depend on the job alone, so
    that a resumed job has the same batches."""
    size = checked.config.data.batch_size
    first: list[int] = []
    if not checked.by_batch and len(checked.engines) <= 1:
        first = [each for each in _FIRST_BATCHES if each < size]
    return islice(chain(first, repeat(size)), done, None)
