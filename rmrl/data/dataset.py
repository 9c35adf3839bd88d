"""Files loaded into a sequence of tokenized prompts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, overload

import numpy as np
from tqdm import tqdm

from rmrl.config.schema.data import DataConfig
from rmrl.data.column_names import PROMPT_NAMES, column_names
from rmrl.data.rows import file_labels, file_list, read_rows
from rmrl.data.schema import PromptRow, check_rows
from rmrl.data.tokenize import LengthReport, check_length_settings, encode_rows, fit_lengths
from rmrl.errors import ConfigError, DataError
from rmrl.thinking import opens_thinking
from rmrl.types import Prompt, Ragged

_log = logging.getLogger(__name__)

Split = Literal["train", "val"]
_BAR_AFTER_S = 3.0
"""Time from which a progress bar is displayed."""
_END_TOKENS = 16
"""Tokens of a prompt's end in which the mark of a thinking block is looked for."""


class PromptTable(Sequence[Prompt]):
    """Prompts, as a sequence, whose tokens lie in one flat int32 array; indexing builds the
    `Prompt`. A slice is a prompt list."""

    def __init__(
        self,
        rows: Sequence[PromptRow],
        token_ids: Sequence[Sequence[int]],
        *,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        """`decode`: tokens to text, special tokens included. Without it no prompt is known to open
        a thinking block."""
        assert len(rows) == len(token_ids)
        self._rows = list(rows)
        self._decode = decode
        self._tokens = Ragged.of(token_ids, np.int32)
        self._offsets = self._tokens.offsets

    @property
    def lengths(self) -> np.ndarray:
        """Each prompt's tokens, int64, shape [P]."""
        return self._tokens.lengths

    def data_sources(self) -> list[str]:
        """Return each prompt's data source."""
        return [row.data_source for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...
    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = self._rows[index]
        start = int(self._offsets[index])
        ids = self._tokens.values[start : start + int(self._tokens.lengths[index])].tolist()
        prompt = make_prompt(row, ids)
        if self._decode is None:
            return prompt
        return replace(prompt, opens_thinking=opens_thinking(self._decode(ids[-_END_TOKENS:])))


def make_prompt(row: PromptRow, token_ids: Sequence[int]) -> Prompt:
    """Build a `Prompt` from a checked row and its tokens."""
    return Prompt(
        id=row.id,
        messages=row.messages,
        token_ids=tuple(token_ids),
        rm_prompts=row.rm_prompts,
        ground_truth=row.ground_truth,
        data_source=row.data_source,
        ability=row.ability,
        extra_info=row.extra_info,
        plain_text=row.plain_text,
    )


def load_prompts(config: DataConfig, tokenizer: Any, *, split: Split) -> PromptTable:
    """Read, check and tokenize one split's files.

    The first data.<split>_max_samples rows in file order are taken, then
    data.filter_overlong_prompts applies. One line is logged on what was loaded, dropped and
    cut. Ids are "<file name>:<row>", with parent folders where two files share a name. Raises
    ConfigError for settings, DataError for files and rows.
    """
    check_length_settings(config)
    key = f"data.{split}_files"
    checked = iterate_rows(config, split=split)
    rows = list(tqdm(checked, desc=f"read {key}", unit=" rows", delay=_BAR_AFTER_S, leave=False))
    _refuse_equal_ids(rows)
    tokens = encode_rows(rows, tokenizer, template_kwargs=config.apply_chat_template_kwargs)
    report = fit_lengths(rows, tokens, config)
    if not report.kept:
        shortest = min(map(len, tokens))
        raise DataError(
            f"{key}: all {len(rows)} prompts are longer than"
            f" data.max_prompt_length={config.max_prompt_length} tokens (the shortest has"
            f" {shortest}) and were dropped; need at least one; raise data.max_prompt_length"
        )
    table = PromptTable([rows[i] for i in report.kept], report.token_ids, decode=tokenizer.decode)
    _log.info(_summary(key, table, report, config.max_prompt_length))
    return table


def _refuse_equal_ids(rows: Sequence[PromptRow]) -> None:
    place_of: dict[str, str] = {}
    for row in rows:
        earlier = place_of.setdefault(row.id, row.where)
        if earlier != row.where:
            raise DataError(
                f"{row.where}: saw the id {row.id!r}, which {earlier} has too; need one of its own"
                " per prompt; name another column, data.columns.id=..., or leave it out"
            )


def iterate_rows(config: DataConfig, *, split: Split) -> Iterator[PromptRow]:
    """Stream one split's checked rows, before tokenization."""
    files = config.train_files
    limit = config.train_max_samples
    if split == "val":
        files = config.val_files
        limit = config.val_max_samples
    if limit == 0:
        raise ConfigError(
            f"data.{split}_max_samples=0 keeps no row; need a positive number, or -1 for all rows"
        )
    paths = file_list(files, f"data.{split}_files")
    names = column_names(config)

    def every_row() -> Iterator[PromptRow]:
        for path, label in zip(paths, file_labels(paths), strict=True):
            for row in check_rows(read_rows(path, label=label), names):
                yield row.prompt

    def checked_rows() -> Iterator[PromptRow]:
        yield from islice(every_row(), limit if limit > 0 else None)
        names.refuse_unseen(PROMPT_NAMES)

    return checked_rows()


def _summary(key: str, table: PromptTable, report: LengthReport, limit: int) -> str:
    text = (
        f"{key}: {len(table)} prompts, {table.lengths.mean():.0f} tokens on average,"
        f" {table.lengths.max()} at most"
    )
    if report.dropped:
        text += f"; {report.dropped} longer than data.max_prompt_length={limit} were dropped"
    if report.cut:
        text += f"; {report.cut} longer than data.max_prompt_length={limit} were cut"
    return text
