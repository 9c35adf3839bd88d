"""`python -m rmrl.main_score`: rows with responses -> the same rows, with these columns more.

    reward            the combined reward; null where the row has none (see reward.on_missing)
    score_<name>      component <name>'s verdict before transform and weight; null where there is none
    status_<name>     "ok", or why there is no verdict
    detail_<name>     the same in words
    extra_<name>      further columns the reward returned, as JSON text; null where it returned none

In rows that hold a list of responses each of them is a list. The columns are the same whatever the scores are, so that parquet's fixed
schema never breaks off a job; a column of the input that has one of these names is replaced.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rmrl.data.responses import AnsweredRow, CountTokens, Survey, answered_rows, batches
from rmrl.data.source_table import SourceTables
from rmrl.data.table_writer import TableWriter, score_types
from rmrl.offline.check import CheckedScoring
from rmrl.offline.progress import counting
from rmrl.offline.summary import Summary
from rmrl.rewards.items import ResponseRow
from rmrl.rewards.scorer import Scorer
from rmrl.scoring.build import standalone_scorer
from rmrl.types import RewardBatch, ScoreResult

Notice = Callable[[str], None]


async def score_files(checked: CheckedScoring, scorer: Scorer, *, notice: Notice) -> Summary:
    """Score every row of `data.files` and write `out`. What was written before an error stays in `<out>.partial`.

    Memory does not grow with the number of rows. Raises what `Scorer.score` does, DataError where files cannot be read or written.
    """
    assert checked.survey is not None
    writer, summary, data = _writer(checked, checked.survey, scorer), Summary(), checked.config.data
    rows = answered_rows(data, count_tokens=token_counter(checked))
    try:
        with counting(checked.survey.responses, notice=notice) as update:
            async for batch, rewards in scored(scorer, batches(rows, data.batch_size, whole_groups=checked.whole_groups)):
                writer.write([row.fields for row in batch], score_columns(batch, rewards))
                summary.add(rewards)
                update(len(rewards.rewards_B))
    except BaseException:
        left = writer.abandon()
        notice(f"the {writer.rows} rows scored so far are in {left}" if left else "nothing was written")
        raise
    notice(f"wrote {writer.finish()}: {writer.rows} rows, {summary.rows} responses")
    return summary


@asynccontextmanager
async def open_scorer(checked: CheckedScoring, *, notice: Notice) -> AsyncIterator[Scorer]:
    """A scorer with processes of its own, ended with the block."""
    async with standalone_scorer(
        checked.specs,
        checked.config.reward,
        engines=checked.engines,
        budget=checked.budget,
        device=checked.device,
        trainer=checked.config.trainer,
        ray_init=checked.config.ray_kwargs.ray_init,
        notice=notice,
    ) as scorer:
        yield scorer


async def scored(scorer: Scorer, parts: Iterator[list[AnsweredRow]]) -> AsyncIterator[tuple[list[AnsweredRow], RewardBatch]]:
    """Batch after batch, in order."""
    for batch in parts:
        yield batch, await scorer.score(response_rows(batch))


def response_rows(batch: Sequence[AnsweredRow]) -> list[ResponseRow]:
    """One row per response."""
    return [
        ResponseRow(prompt=row.prompt, text=text, finish_reason=reason, tokens=tokens, group=row.group)
        for row in batch
        for text, reason, tokens in zip(row.texts, row.finish_reasons, row.tokens, strict=True)
    ]


def score_columns(batch: Sequence[AnsweredRow], rewards: RewardBatch) -> dict[str, list[Any]]:
    """The added columns, one value per row of the batch: a list where the row holds one."""
    flat: dict[str, list[Any]] = {"reward": [None if reward != reward else float(reward) for reward in rewards.rewards_B]}
    for name, results in zip(rewards.scores.names, rewards.scores.results, strict=True):
        flat[f"score_{name}"] = [r.value for r in results]
        flat[f"status_{name}"] = [r.status for r in results]
        flat[f"detail_{name}"] = [r.detail for r in results]
        flat[f"extra_{name}"] = [_extra(r) for r in results]
    return {name: _by_row(batch, values) for name, values in flat.items()}


def token_counter(checked: CheckedScoring) -> CountTokens | None:
    """Counts a response's tokens with the policy's tokenizer, where one is named."""
    path = checked.config.data.tokenizer
    if path is None:
        return None
    from rmrl.tokenizer import load_tokenizer  # here: transformers takes seconds to import, and rules need none of it

    tokenizer = load_tokenizer(path, trust_remote_code=checked.config.trainer.trust_remote_code)
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _writer(checked: CheckedScoring, found: Survey, scorer: Scorer) -> TableWriter:
    assert checked.out is not None
    sources = None if found.schema is None else SourceTables(checked.files, found.schema)
    return TableWriter(checked.out, types=score_types([spec.name for spec in scorer.specs], several=found.several), sources=sources)


def _by_row(batch: Sequence[AnsweredRow], values: Sequence[Any]) -> list[Any]:
    rest = iter(values)
    return [[next(rest) for _ in row.texts] if row.several else next(rest) for row in batch]


def _extra(result: ScoreResult) -> str | None:
    return json.dumps(dict(result.extra), ensure_ascii=False, default=str) if result.extra else None
