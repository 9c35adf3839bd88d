"""Turn a benchmark's files into items."""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from rmrl.data.column_names import DEFAULT_NAMES, ColumnNames
from rmrl.data.csv_cells import values_of
from rmrl.data.rows import file_labels, file_list, read_rows
from rmrl.data.schema import plain
from rmrl.errors import ConfigError, DataError
from rmrl.evaluation.formats import FORMATS, Fields, Format
from rmrl.evaluation.formats.arena import as_battle
from rmrl.evaluation.items import Item
from rmrl.registry import did_you_mean

_log = logging.getLogger(__name__)


def raw_rows(
    files: object, key: str, names: ColumnNames = DEFAULT_NAMES, *, max_rows: int = -1
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place for messages, values) for each row in the files that are typed at `key`, at most
    `max_rows` (-1: all). `names`: the files' columns, for csv.

    Raises ConfigError for a value that names no files, DataError for files that cannot be read.
    """

    def every_row() -> Iterator[tuple[str, Mapping[str, Any]]]:
        paths = file_list(files, key)
        for path, label in zip(paths, file_labels(paths), strict=True):
            for row in read_rows(path, label=label):
                values = row.fields
                if row.text_cells:
                    values = values_of(row.fields, names)
                yield f"{label} {row.where}", as_battle(plain(values))

    yield from islice(every_row(), max_rows if max_rows >= 0 else None)


def read_items(
    files: object,
    form: Format,
    columns: Mapping[str, Any],
    *,
    typed: Mapping[str, str] | None = None,
    max_rows: int = -1,
    needs_texts: bool = True,
) -> list[Item]:
    """Return all items, at most `max_rows` (-1: all). `typed`: name in `columns` -> key under which
    the name was typed, where that is not data.columns.<name>.

    Without `needs_texts`, rows with one id are one item, as in files with a row per judge. Else a
    repeated id is numbered. Raises DataError naming file, row and column, also where two rows with
    one id have different labels, there is no row, or no row has a column in `columns`. Raises
    ConfigError for a name in `columns` that the format does not look up.
    """
    given = {name: str(path) for name, path in columns.items()}
    names = ColumnNames({**form.paths, **given})
    items: dict[str, Item] = {}
    used: set[str] = set()
    unlabelled = 0
    rows = raw_rows(files, "data.files", names, max_rows=max_rows)
    for number, (place, values) in enumerate(rows):
        names.see(values)
        row = Fields(
            place=place,
            number=number,
            values=values,
            names=names,
            needs_texts=needs_texts,
            used=used,
        )
        item = form.item(row)
        if not item.responses:
            unlabelled += 1
            continue
        earlier = items.get(item.id)
        if earlier is None:
            items[item.id] = item
        elif needs_texts:
            name = free_name(item.id, items)
            items[name] = dataclasses.replace(item, id=name)
        elif _label(earlier) != _label(item):
            raise DataError(
                f"{place}: saw id {item.id} with another label than in an earlier row; need one"
                " label per id; mend the file"
            )
    if unlabelled:
        missing = f"{unlabelled} rows have no label, '{names.at('value')}'"
        if not items:
            raise DataError(f"{missing}; name another column: data.columns.value=...")
        _log.warning(f"{missing}, and are left out")
    if not items:
        raise DataError(
            f"data.max_rows={max_rows} leaves no row to evaluate; give 1 or more, or -1 for all"
        )
    _refuse_unused(columns, used, typed or {})
    names.refuse_unseen(columns, typed=typed)
    return list(items.values())


def formats_of(files: object, columns: Mapping[str, Any]) -> list[str]:
    """Return the formats that read the first row of some files, [] for no files. `columns`: as in
    `read_items`."""
    names: list[str] = []
    for name in FORMATS:
        with suppress(ConfigError, DataError):
            read_items(files, FORMATS[name](), columns, max_rows=1)
            names.append(name)
    return names


def _refuse_unused(
    columns: Collection[str], used: Collection[str], typed: Mapping[str, str]
) -> None:
    """Raise ConfigError for names in `columns` that the format has not looked up."""
    problems: list[str] = []
    for name in columns:
        if name not in used:
            key = typed.get(name, f"data.columns.{name}")
            typed_name = key.rpartition(".")[2]
            suggestion = did_you_mean(typed_name, list(used))
            problems.append(f"{key}: the format looks up no '{typed_name}'{suggestion}")
    if problems:
        raise ConfigError(problems)


def sampled(items: Sequence[Item], count: int, *, seed: int) -> list[Item]:
    """Return `count` items drawn at random, in their order. Return all where there are fewer."""
    numbers = random.Random(seed).sample(range(len(items)), min(count, len(items)))
    return [items[number] for number in sorted(numbers)]


def _label(item: Item) -> tuple[Any, ...]:
    return item.comparisons, item.values, item.first_wrong


def free_name(name: str, names: Container[str]) -> str:
    """Return the first among "NAME#2", "NAME#3" ... that is not among `names`."""
    count = 2
    while f"{name}#{count}" in names:
        count += 1
    return f"{name}#{count}"
