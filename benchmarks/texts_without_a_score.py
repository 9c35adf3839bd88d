"""How often a number is read as a score from mathematics that gives none.

    python -m benchmarks.texts_without_a_score --data ../shared/data

The texts are published solutions, solutions of models, their last steps, and sentences below that
a judge may write while it explains the mathematics; each is read by four scales. Any number that is
read is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rmrl.rewards.judging.reader import read_number

SCALES = {"1 to 5": (1, 5), "1 to 10": (1, 10), "0 to 100": (0, 100), "0 to 1": (0, 1)}
SENTENCES = (
    "The answer is {n}, which is wrong.",
    "The response computes {n} in its last step.",
    "It gets {n}, but the reference has another number.",
    "The student got {n} instead of the expected value.",
    "Adding the two gives {n}.",
    "The final result equals {n}, so the claim holds.",
    "So the total is {n}.",
    "Hence x = {n} solves the equation.",
    "Therefore, {n} is the correct answer.",
    "The correct answer is \\boxed{{{n}}}.",
    "The value is\n\\[\n\\boxed{{{n}}}\n\\]",
    "Tom scored {n} in the second game.",
    "The mean score of the class is {n}.",
    "Tom's score is {n}.",
    "I get {n} when I do it again.",
    "We obtain {n}, as the response does.",
    "The final answer: {n}",
    "The answer is\n\n{n}",
    "The work is sound.\n#### {n}",
    "Checking: 0 + {n} = {n}. That matches.",
    "The quality of the argument is fine and the number is {n}.",
    "The judgement rests on whether {n} is right.",
    "A score of {n} would need a full proof.",
    "The proof fails, so it does not reach a score of {n}.",
    "I would give it a {n} if the proof were complete.",
    "The score is low because it found {n}.",
    "It costs ${n} in all.",
    "The response ends with {n}. That is what the reference has.",
    "The fraction is {n}/3, which the response simplifies.",
    "Verdict: {n} is wrong.",
)
"""What a judge may write beside its verdict, had it given one."""


def texts(data: Path) -> dict[str, list[str]]:
    """The texts by where they are from."""
    train = rows_of(data / "math/gsm8k_train.jsonl")[:1500]
    solutions = [re.sub(r"<<.*?>>", "", row["solution"]) for row in train]
    steps = rows_of(data / "rollouts/processbench_gsm8k.jsonl")
    steps += rows_of(data / "rollouts/processbench_math.jsonl")
    samples: list[str] = []
    for row in rows_of(data / "rollouts/qwen_math_rm8.jsonl"):
        samples += row["responses"]
    return {
        "GSM8K, solutions": solutions,
        "GSM8K, without their last line": [text.rsplit("\n", 1)[0] for text in solutions],
        "GSM8K, samples of GPT-3": column(
            rows_of(data / "rollouts/gsm8k_openai_solutions.jsonl")[:1500], "response"
        ),
        "MATH, solutions": column(rows_of(data / "math/math500.jsonl"), "solution"),
        "MATH, samples of Qwen2.5": samples,
        "ProcessBench, whole": ["\n\n".join(row["steps"]) for row in steps],
        "ProcessBench, last steps": [row["steps"][-1] for row in steps],
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a jsonl file, whose strings may hold other line separators."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def column(rows: Iterable[dict[str, Any]], name: str) -> list[str]:
    """One field of all rows."""
    return [row[name] for row in rows]


def sentences(low: float, high: float) -> list[str]:
    """Each sentence alone and between two of others, with numbers of the scale."""
    rng = random.Random(0)
    written: list[str] = []
    for sentence in SENTENCES:
        for _ in range(10):
            number = rng.randint(int(low), int(high))
            text = sentence.format(n=number)
            written += [text, f"The response is long. {text}\n\nIts style is clear."]
    return written


def share(several: Iterable[str], scale: tuple[float, float]) -> float:
    """The share of texts from which a number is read."""
    read = [read_number(text, *scale).verdict is not None for text in several]
    return sum(read) / len(read)


def table(data: Path, most: int | None = None) -> list[dict[str, Any]]:
    """A row per source with the shares by scale; of at most so many of its texts."""
    rows: list[dict[str, Any]] = []
    for source, every in texts(data).items():
        several = every[:most]
        shares = {name: share(several, scale) for name, scale in SCALES.items()}
        rows.append({"texts": source, "count": len(several), **shares})
    shares = {name: share(sentences(*scale), scale) for name, scale in SCALES.items()}
    rows.append({"texts": "sentences by hand", "count": 20 * len(SENTENCES), **shares})
    return rows


def main() -> None:
    """Read everything, write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--out", default="benchmarks/results/texts_without_a_score.json")
    args = parser.parse_args()
    rows = table(Path(args.data))
    Path(args.out).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"| texts | count | {' | '.join(SCALES)} |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        shares = " | ".join(f"{row[name]:.1%}" for name in SCALES)
        print(f"| {row['texts']} | {row['count']} | {shares} |")


if __name__ == "__main__":
    main()
