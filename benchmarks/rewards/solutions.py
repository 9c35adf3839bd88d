"""Solutions to be scored: recorded ones of GSM8K where they are at hand, else generated sums."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmrl.rewards.answers.gsm8k import extract_answer
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import Prompt

SHORTEST, LONGEST = 150, 350
"""Characters: of about one length, so that half of the requests is about half of the work."""
WRONG = "-987654321"
"""A reference answer that no solution gives."""


@dataclass(slots=True)
class Solutions:
    """Draws batches; no two of them have a response in common."""

    pairs: Sequence[tuple[str, str]]
    """(question, solution)."""
    name: str
    """Where they are from."""
    _batches: int = field(default=0)

    def batch(
        self, count: int, source: str, *, distinct: int | None = None, closed: int = 0
    ) -> list[ResponseRow]:
        """`count` rows of data_source `source`. `distinct`: how many differ; `closed`: how many
        have an answer that the rule refuses."""
        self._batches += 1
        rows = [
            self._row(i % (distinct or count), source, closed=_falls(i, closed, count))
            for i in range(count)
        ]
        return [
            ResponseRow(prompt=prompt, text=text, group=i) for i, (prompt, text) in enumerate(rows)
        ]

    def _row(self, number: int, source: str, *, closed: bool) -> tuple[Prompt, str]:
        question, solution = self.pairs[number % len(self.pairs)]
        # At the beginning, where it parts the token sequences of batches; as many tokens in each
        # batch.
        text = f"Sheet {self._batches:03d}, solution {number:03d}. {solution}"
        truth = WRONG if closed else str(extract_answer(text))
        messages = [{"role": "user", "content": question}]
        return (
            Prompt(
                id=str(number),
                messages=messages,
                token_ids=(),
                ground_truth=truth,
                data_source=source,
            ),
            text,
        )


def _falls(i: int, chosen: int, count: int) -> bool:
    """Whether position i is one of `chosen` that are spread evenly over `count`."""
    return (i + 1) * chosen // count > i * chosen // count


def relabelled(rows: Sequence[ResponseRow], source: str) -> list[ResponseRow]:
    """The same rows under another data_source."""
    return [
        dataclasses.replace(row, prompt=dataclasses.replace(row.prompt, data_source=source))
        for row in rows
    ]


def solutions(path: Path, *, seed: int = 0) -> Solutions:
    """From a jsonl of objects with `question` and `response`; generated where it is not there."""
    draw = random.Random(seed)
    if not path.is_file():
        return Solutions([_sum(draw) for _ in range(500)], "generated sums")
    recorded = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [
        (row["question"], row["response"])
        for row in recorded
        if SHORTEST <= len(row["response"]) <= LONGEST
    ]
    pairs = [pair for pair in dict.fromkeys(pairs) if extract_answer(pair[1]) is not None]
    draw.shuffle(pairs)
    return Solutions(pairs, path.name)


def _sum(draw: random.Random) -> tuple[str, str]:
    parts = [draw.randint(2, 99) for _ in range(8)]
    question = "How many apples are there in baskets of " + ", ".join(map(str, parts)) + " apples?"
    told, total = [], 0
    for part in parts:
        told.append(f"{total} + {part} = {total + part} apples so far.")
        total += part
    return question, " ".join(told) + f"\nA: {total}"
