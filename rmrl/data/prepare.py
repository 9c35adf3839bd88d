"""Shared by the scripts in data_preprocess/: options, a held-out share, one parquet file per split,
and the report at the end."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from rmrl.data.sources import SPLITS, HubNames, Record, records_by_split
from rmrl.data.write import refuse_existing, write_rows
from rmrl.errors import ConfigError, DataError

Rows = dict[str, list[dict[str, Any]]]
"""Split -> rows of the schema."""


class MakeRow(Protocol):
    """Convert a raw record to a row in the schema. Raises DataError naming `where`."""

    def __call__(
        self, record: Mapping[str, Any], /, *, split: str, index: int, where: str
    ) -> dict[str, Any]: ...


def script_parser(doc: str | None, *, out: str) -> argparse.ArgumentParser:
    """Return a parser with --out and --overwrite; `doc` is the script's docstring, printed
    unchanged."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path(out), help="folder to write to (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    return parser


def add_source_options(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Add --source, --test-source and --test-share, which `source_records` and `build_rows`
    read."""
    kinds = "hub id, jsonl or parquet file, or folder with one file *train* and one *test*"
    parser.add_argument("--source", default=default, help=f"{kinds} (default: %(default)s)")
    parser.add_argument(
        "--test-source",
        help="source of the test rows, if not --source; the same choices",
    )
    parser.add_argument(
        "--test-share",
        type=float,
        default=0.0,
        help="share of --source held out as test rows (default: none)",
    )


def source_records(
    args: argparse.Namespace, *, hub: HubNames | None = None
) -> dict[str, Iterable[Record]]:
    """Return split -> records from --source, and from --test-source if it is set. Raises
    ConfigError for options that contradict each other."""
    if not 0 <= args.test_share < 1:
        raise ConfigError(f"--test-share {args.test_share:g}: give a share from 0 to below 1")
    records: dict[str, Iterable[Record]] = {**records_by_split(args.source, hub=hub)}
    if args.test_source is None:
        if args.test_share and "test" in records:
            raise ConfigError(
                f"--test-share {args.test_share:g}: --source {args.source} already has a test"
                " split; leave the share out"
            )
        return records
    if args.test_share:
        raise ConfigError("--test-share and --test-source are both given; use one of them")
    other = records_by_split(args.test_source, hub=hub)
    return {
        "train": records.get("train", records.get("test", ())),
        "test": other.get("test", other.get("train", ())),
    }


def build_rows(
    records: Mapping[str, Iterable[Record]],
    make_row: MakeRow,
    *,
    test_share: float = 0.0,
    key: Callable[[Mapping[str, Any]], str] = str,
) -> Rows:
    """Build every split's rows. Training records whose `key` falls into `test_share` become
    test rows; records with equal keys stay together."""
    rows: Rows = {}
    for split, part in records.items():
        for where, fields in tqdm(part, desc=split, unit=" rows", mininterval=0.5):
            target = split
            if test_share and split == "train" and is_held_out(key(fields), test_share):
                target = "test"
            target_rows = rows.setdefault(target, [])
            row = make_row(fields, split=target, index=len(target_rows), where=where)
            target_rows.append(row)
    for split in SPLITS:
        if test_share and not rows.get(split):
            count = sum(map(len, rows.values()))
            raise DataError(
                f"--test-share {test_share:g} leaves no {split} row of {count}; give another share"
                " or more rows"
            )
    return rows


def convert_questions(
    args: argparse.Namespace,
    make_row: MakeRow,
    *,
    key: Callable[[Mapping[str, Any]], str],
    hub: HubNames | None = None,
    trains_on: Callable[[Mapping[str, Any]], bool] | None = None,
) -> dict[Path, int]:
    """Write one parquet file per split in --source. Return file -> rows.

    A training question that is also a test question is left out, and so are the training records
    on which `trains_on` is false. `key` determines whether a record is held out.
    """
    refuse_existing_splits(args.out, overwrite=args.overwrite)
    records = source_records(args, hub=hub)
    if trains_on is not None and "train" in records:
        records["train"] = (record for record in records["train"] if trains_on(record[1]))
    rows = build_rows(records, make_row, test_share=args.test_share, key=key)
    return write_splits(args.out, without_test_questions(rows), overwrite=args.overwrite)


def is_held_out(text: str, share: float) -> bool:
    """Return whether a text belongs to the held-out share. It depends on the text alone."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return int(digest[:8], 16) < share * 0x1_0000_0000


def without_test_questions(rows: Rows) -> Rows:
    """Drop the training rows whose `rm_prompt` a test row has too; print their number."""
    tested = {row["rm_prompt"].strip() for row in rows.get("test", [])}
    train = rows.get("train", [])
    clean = [row for row in train if row["rm_prompt"].strip() not in tested]
    if len(clean) == len(train):
        return rows
    dropped = len(train) - len(clean)
    print(f"train: {dropped} questions left out because they are also in the test split")
    return {**rows, "train": clean}


def refuse_existing_splits(out: Path, *, overwrite: bool) -> None:
    """Raise DataError where a file in `out` exists and `overwrite` is off. Call it before slow
    work."""
    for split in SPLITS:
        refuse_existing(out / f"{split}.parquet", overwrite=overwrite)


def write_splits(out: Path, rows: Rows, *, overwrite: bool) -> dict[Path, int]:
    """Write one parquet file per split to `out`. Return file -> row count. Raises what
    `rmrl.data.write.write_rows` raises."""
    counts: dict[Path, int] = {}
    for split in SPLITS:
        if split in rows:
            path = out / f"{split}.parquet"
            counts[path] = write_rows(path, rows[split], overwrite=overwrite)
    return counts


def report(written: Mapping[Path, int]) -> None:
    """Print one line per file."""
    for path, count in written.items():
        print(f"{path}: {count} rows")
