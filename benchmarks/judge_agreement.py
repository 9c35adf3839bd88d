"""How often the answer judge agrees with the labels of recorded GSM8K solutions.

    python benchmarks/judge_agreement.py --judge .models/smollm2 --solutions
    ../shared/data/rollouts/gsm8k_openai_solutions.jsonl

The file holds one object per line with response, gold and is_correct (openai/grade-school-math,
example_model_solutions).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

from benchmarks.rewards.rig import open_scorer
from rmrl.config.schema import RewardConfig
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import Prompt


def sample(path: Path, per_label: int) -> list[dict[str, Any]]:
    """As many right as wrong solutions, drawn with seed 0."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    draw = random.Random(0)
    return [
        row
        for label in (True, False)
        for row in draw.sample([r for r in rows if r["is_correct"] is label], per_label)
    ]


def response_row(index: int, row: dict[str, Any]) -> ResponseRow:
    """One recorded solution as the judge is told it."""
    messages = [{"role": "user", "content": row.get("question", "")}]
    prompt = Prompt(
        id=str(index),
        messages=messages,
        token_ids=(),
        ground_truth=str(row["gold"]).replace(",", ""),
    )
    return ResponseRow(prompt=prompt, text=row["response"], group=index)


async def judge(rows: list[dict[str, Any]], path: str) -> list[Any]:
    """The judge's verdicts, through the same reward layer as in training."""
    config = RewardConfig(
        models=["answer_judge"], specs={"answer_judge": {"path": path}}, max_missing=1.0
    )
    async with open_scorer(config) as scorer:
        batch = await scorer.score([response_row(i, row) for i, row in enumerate(rows)])
    return list(batch.scores.results[0])


def main() -> None:
    """Parse arguments, judge, write the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", default=".models/smollm2")
    parser.add_argument(
        "--solutions", default="../shared/data/rollouts/gsm8k_openai_solutions.jsonl"
    )
    parser.add_argument("--per-label", type=int, default=40)
    parser.add_argument("--out", default="benchmarks/results/judge_agreement.json")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    rows = sample(Path(args.solutions), args.per_label)
    results = asyncio.run(judge(rows, args.judge))
    right = [r for r, row in zip(results, rows, strict=True) if row["is_correct"]]
    wrong = [r for r, row in zip(results, rows, strict=True) if not row["is_correct"]]
    summary = {
        "judge": Path(args.judge).name,
        "solutions": Path(args.solutions).name,
        "right": {
            "count": len(right),
            "accepted": sum(r.value == 1 for r in right),
            "no_verdict": sum(r.value is None for r in right),
        },
        "wrong": {
            "count": len(wrong),
            "accepted": sum(r.value == 1 for r in wrong),
            "no_verdict": sum(r.value is None for r in wrong),
        },
    }
    Path(args.out).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
