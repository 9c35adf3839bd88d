"""GSM8K (grade-school maths) -> train.parquet and test.parquet for rmrl.

    python data_preprocess/gsm8k.py --source openai/gsm8k --out data/gsm8k
    python data_preprocess/gsm8k.py --source my_folder --out data/gsm8k        # files named *train*.jsonl and *test*.jsonl

Local rows have the fields `question` and `answer` or `solution`; the final answer stands after "####".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rmrl.data.rows import read_rows
from rmrl.data.write import refuse_existing, write_rows
from rmrl.errors import DataError, RmrlError

INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
SPLITS = ("train", "test")


def final_answer(solution: str) -> str | None:
    """The number after the last "####", without thousands separators; None where there is none."""
    _, mark, tail = solution.rpartition("####")
    return tail.strip().replace(",", "").replace("$", "") or None if mark else None


def make_row(record: Mapping[str, Any], *, split: str, index: int, where: str) -> dict[str, Any]:
    """One row of the schema. Raises DataError naming `where`."""
    question = record.get("question")
    solution = record.get("solution") or record.get("answer")
    if not isinstance(question, str) or not isinstance(solution, str):
        saw = ", ".join(map(str, record)) or "none"
        raise DataError(f"{where}: saw the fields {saw}; need question and answer (or solution), both text; rename the fields")
    answer = final_answer(solution) or (record.get("answer") if "solution" in record else None)
    if not answer:
        raise DataError(f'{where}: the solution ends in {solution[-60:]!r}; need the final answer after "####"; mend or drop the row')
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(answer)},
        "rm_prompt": question,
        "extra_info": {"split": split, "index": index, "question": question, "answer": solution},
    }


def local_files(source: Path) -> dict[str, Path]:
    """Split -> file. A single file is the test split where its name says so, else the training split."""
    if source.is_file():
        return {"test" if "test" in source.name else "train": source}
    found = {split: sorted(source.glob(f"*{split}*.jsonl")) for split in SPLITS}
    if any(len(files) != 1 for files in found.values()):
        inside = ", ".join(sorted(p.name for p in source.iterdir())[:10]) or "nothing"
        raise DataError(f"{source} holds {inside}; need exactly one *train*.jsonl and one *test*.jsonl; name one file instead")
    return {split: files[0] for split, files in found.items()}


def local_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place for messages, record) of each line."""
    return ((f"{row.file} {row.where}", row.fields) for row in read_rows(path))


def hub_records(source: str, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place for messages, record) of each row on the hub, through the package `datasets`."""
    from datasets import load_dataset  # slow to import, and not needed for local files

    try:
        data = load_dataset(source, "main", split=split)
    except (OSError, ValueError, RuntimeError) as error:
        words = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"--source {source}: not a local file or folder, and the hub gave {type(error).__name__}: {words}; "
            "check the spelling and the connection, or give a local jsonl file"
        ) from error
    return ((f"{source} {split} row {i}", record) for i, record in enumerate(data))


def sources(source: str) -> dict[str, Iterable[tuple[str, Mapping[str, Any]]]]:
    """Split -> records."""
    path = Path(source).expanduser()
    if path.exists():
        return {split: local_records(file) for split, file in local_files(path).items()}
    if path.suffix == ".jsonl" or path.is_absolute() or source.startswith((".", "~")):
        raise DataError(f"--source {source} does not exist; need a hub id (openai/gsm8k), a jsonl file, or a folder with both splits")
    return {split: hub_records(source, split) for split in SPLITS}


def run(source: str, out: Path, *, overwrite: bool) -> dict[Path, int]:
    """Write one parquet file per split found; returns file -> rows. A training question that is also a test question is left out."""
    for split in SPLITS:
        refuse_existing(out / f"{split}.parquet", overwrite=overwrite)
    rows = {split: _rows(split, records) for split, records in sources(source).items()}
    tested = {row["rm_prompt"].strip() for row in rows.get("test", [])}
    if "train" in rows:
        clean = [row for row in rows["train"] if row["rm_prompt"].strip() not in tested]
        if len(clean) < len(rows["train"]):
            print(f"train: {len(rows['train']) - len(clean)} questions left out because the test split has them too")
        rows["train"] = clean
    paths = {split: out / f"{split}.parquet" for split in rows}
    return {paths[split]: write_rows(paths[split], part, overwrite=overwrite) for split, part in rows.items()}


def _rows(split: str, records: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    bar = tqdm(records, desc=split, unit=" rows", mininterval=0.5)
    return [make_row(record, split=split, index=i, where=where) for i, (where, record) in enumerate(bar)]


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="openai/gsm8k", help="hub id, jsonl file, or folder with *train*.jsonl and *test*.jsonl")
    parser.add_argument("--out", type=Path, default=Path("data/gsm8k"), help="folder to write to (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    args = parser.parse_args(argv)
    try:
        for path, count in run(args.source, args.out, overwrite=args.overwrite).items():
            print(f"{path}: {count} rows")
    except RmrlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
