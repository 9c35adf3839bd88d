"""`python -m rmrl.main_score`: rows with responses -> the same rows with one column per component, its status, and the reward."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tqdm import tqdm

from rmrl.data.responses import AnsweredRow, answered_rows, batches
from rmrl.data.table_writer import TableWriter, column_types, score_types
from rmrl.data.tokenizer import load_tokenizer
from rmrl.offline.check import CheckedScoring
from rmrl.offline.summary import Summary
from rmrl.rewards.items import ResponseRow
from rmrl.rewards.scorer import Scorer
from rmrl.scoring.build import standalone_scorer
from rmrl.types import RewardBatch

Notice = Callable[[str], None]


async def score_files(checked: CheckedScoring, *, notice: Notice) -> Summary:
    """Score every row of `data.files` and write `out`. What was written before an error stays in `<out>.partial`."""
    assert checked.out is not None
    rows = answered_rows(checked.config.data, count_tokens=token_counter(checked))
    first = next(rows)
    names = [spec.name for spec in checked.specs if not spec.part_of]
    types = column_types(checked.files) | score_types(names, several=first.several)
    writer = TableWriter(checked.out, overwrite=checked.config.overwrite, types=types)
    summary = Summary()
    try:
        async with open_scorer(checked, notice=notice) as scorer:
            with tqdm(desc="score", unit="response", mininterval=0.5) as bar:
                async for batch, rewards in scored(scorer, itertools.chain([first], rows), size=checked.config.data.batch_size):
                    writer.write(scored_rows(batch, rewards))
                    summary.add(rewards)
                    bar.update(len(rewards.rewards_B))
    except BaseException:
        left = writer.abandon()
        if left is not None:
            notice(f"what was scored so far is in {left}")
        raise
    notice(f"{writer.finish()}: {summary.rows} responses")
    return summary


@asynccontextmanager
async def open_scorer(checked: CheckedScoring, *, notice: Notice) -> AsyncIterator[Scorer]:
    """A scorer with processes of its own, ended with the block."""
    trainer = checked.config.trainer
    async with standalone_scorer(
        checked.specs,
        checked.config.reward,
        engines=checked.engines,
        budget=checked.budget,
        device=checked.device,
        trainer=trainer,
        ray_init=checked.config.ray_kwargs.ray_init,
        notice=notice,
    ) as scorer:
        yield scorer


async def scored(scorer: Scorer, rows: Iterator[AnsweredRow], *, size: int) -> AsyncIterator[tuple[list[AnsweredRow], RewardBatch]]:
    """Batch after batch, in order."""
    for batch in batches(rows, size):
        yield batch, await scorer.score(response_rows(batch))


def response_rows(batch: Sequence[AnsweredRow]) -> list[ResponseRow]:
    """One row per response."""
    return [
        ResponseRow(prompt=row.prompt, text=text, finish_reason=reason, tokens=tokens, group=row.group)
        for row in batch
        for text, reason, tokens in zip(row.texts, row.finish_reasons, row.tokens, strict=True)
    ]


def scored_rows(batch: Sequence[AnsweredRow], rewards: RewardBatch) -> list[Mapping[str, Any]]:
    """The rows with their scores: a number, or null where there is no verdict; lists where the row has several responses."""
    out: list[Mapping[str, Any]] = []
    start = 0
    for row in batch:
        end = start + len(row.texts)
        columns: dict[str, list[Any]] = {"reward": [_number(rewards.rewards_B[b]) for b in range(start, end)]}
        for name, results in zip(rewards.scores.names, rewards.scores.results, strict=True):
            columns[f"score_{name}"] = [r.value for r in results[start:end]]
            columns[f"status_{name}"] = [r.status for r in results[start:end]]
            columns[f"detail_{name}"] = [r.detail for r in results[start:end]]
        out.append({**row.fields, **(columns if row.several else {key: values[0] for key, values in columns.items()})})
        start = end
    return out


def token_counter(checked: CheckedScoring) -> Callable[[str], int] | None:
    """Counts a response's tokens with the policy's tokenizer, where one is named."""
    path = checked.config.data.tokenizer
    if path is None:
        return None
    tokenizer = load_tokenizer(path, trust_remote_code=checked.config.trainer.trust_remote_code)
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _number(value: float) -> float | None:
    return None if value != value else float(value)
