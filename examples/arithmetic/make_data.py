"""Generate arithmetic questions as parquet files: the data of the learning example.

    python examples/arithmetic/make_data.py --out .data/arithmetic

Questions look like `12+34=` and `12-34=`, both numbers in 0 .. --largest. Each distinct question
belongs to the training or to the test set by a hash of its text, so the two never overlap, whatever
the sizes and the seed.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

TEST_SHARE = 0.2
LARGEST = 19
"""The default of --largest, shared with make_tiny_policy.py so that both speak of the same
questions."""


def is_test(question: str) -> bool:
    """Whether a question is held out; depends on its text alone."""
    return int(hashlib.sha256(question.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF < TEST_SHARE


def all_questions(largest: int = LARGEST) -> Iterator[tuple[str, str]]:
    """(question, answer) of every sum and difference of two numbers in 0 .. largest."""
    for a in range(largest + 1):
        for b in range(largest + 1):
            yield f"{a}+{b}=", str(a + b)
            yield f"{a}-{b}=", str(a - b)


def split(largest: int = LARGEST) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All questions as (training, test), in a fixed order."""
    pairs = list(all_questions(largest))
    return [p for p in pairs if not is_test(p[0])], [p for p in pairs if is_test(p[0])]


def write(pairs: Sequence[tuple[str, str]], path: Path, part: str) -> None:
    """Write one row per question: prompt, data_source, ability, reward_model, extra_info."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "prompt": [{"role": "user", "content": question}],
            "data_source": "arithmetic",
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": part, "index": i},
        }
        for i, (question, answer) in enumerate(pairs)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    print(f"{path}: {len(rows)} questions, e.g. {pairs[0][0]}{pairs[0][1]}")


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.parquet and test.parquet."""
    parser = argparse.ArgumentParser(description="Generate arithmetic questions as parquet files.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".data/arithmetic"),
        help="folder for train.parquet and test.parquet",
    )
    parser.add_argument(
        "--train",
        type=int,
        default=512,
        help="training questions, at most all there are (default: 512)",
    )
    parser.add_argument(
        "--test", type=int, default=128, help="test questions, at most all there are (default: 128)"
    )
    parser.add_argument(
        "--largest",
        type=int,
        default=LARGEST,
        help=f"numbers are drawn from 0 .. this (default: {LARGEST})",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="which questions are drawn (default: 0)"
    )
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    shuffler = random.Random(options.seed)
    for part, pairs, wanted in zip(
        ("train", "test"), split(options.largest), (options.train, options.test), strict=True
    ):
        if not 1 <= wanted <= len(pairs):
            parser.error(
                f"--{part} {wanted}: --largest {options.largest} gives {len(pairs)} {part}"
                " questions; ask for 1 to that many."
            )
        write(shuffler.sample(pairs, wanted), options.out / f"{part}.parquet", part)


if __name__ == "__main__":
    main()
