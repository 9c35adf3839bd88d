"""How often the answer judge agrees with the labels of recorded GSM8K solutions.

    python benchmarks/judge_agreement.py --judge .models/smollm2 --solutions ../shared/data/rollouts/gsm8k_openai_solutions.jsonl

The file holds one object per line with response, gold and is_correct (openai/grade-school-math, example_model_solutions).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from functools import cache
from pathlib import Path
from typing import Any

from rmrl.cluster.devices import cores, resolve_device
from rmrl.cluster.processes import RayHost
from rmrl.cluster.session import ray_session
from rmrl.config.schema import RewardConfig
from rmrl.data.tokenizer import load_tokenizer
from rmrl.rewards.resolve import Surroundings, resolve_rewards
from rmrl.rewards.scorer import Scorer
from rmrl.serving.environment import engine_environment
from rmrl.types import ScoreItem

ROOT = Path(__file__).resolve().parent.parent


def sample(path: Path, per_label: int) -> list[dict[str, Any]]:
    """As many right as wrong solutions, drawn with seed 0."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    draw = random.Random(0)
    return [row for label in (True, False) for row in draw.sample([r for r in rows if r["is_correct"] is label], per_label)]


def item(index: int, row: dict[str, Any]) -> ScoreItem:
    """One recorded solution as the judge is told it."""
    question = row.get("question", "")
    return ScoreItem(
        prompt_id=str(index),
        messages=[{"role": "user", "content": question}],
        response=row["response"],
        rm_prompt=question,
        ground_truth=str(row["gold"]).replace(",", ""),
    )


async def judge(rows: list[dict[str, Any]], path: str) -> list[Any]:
    """The judge's verdicts, through the same reward layer as in training."""
    device = resolve_device("auto")
    config = RewardConfig(models=["answer_judge"], specs={"answer_judge": {"path": path}})
    around = Surroundings(device=device, threads=cores(), functions_dirs=[ROOT / "reward_functions"])
    resolved = resolve_rewards(config, around)
    assert not resolved.problems, resolved.problems
    scorer = Scorer(
        resolved.specs,
        host=RayHost(environment=engine_environment(device=device, threads=cores())),  # type: ignore[arg-type]
        tokenizer=cache(lambda p: load_tokenizer(p, trust_remote_code=False)),
        max_missing=1.0,
    )
    try:
        batch = await scorer.score([[item(i, row) for i, row in enumerate(rows)]])
    finally:
        await scorer.close()
    return list(batch.scores.results[0])


def main() -> None:
    """Parse arguments, judge, write the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", default=".models/smollm2")
    parser.add_argument("--solutions", default="../shared/data/rollouts/gsm8k_openai_solutions.jsonl")
    parser.add_argument("--per-label", type=int, default=40)
    parser.add_argument("--out", default="benchmarks/results/judge_agreement.json")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    rows = sample(Path(args.solutions), args.per_label)
    with ray_session({}, processes=1):
        results = asyncio.run(judge(rows, args.judge))
    right = [r for r, row in zip(results, rows, strict=True) if row["is_correct"]]
    wrong = [r for r, row in zip(results, rows, strict=True) if not row["is_correct"]]
    summary = {
        "judge": Path(args.judge).name,
        "solutions": Path(args.solutions).name,
        "right": {"count": len(right), "accepted": sum(r.value == 1 for r in right), "no_verdict": sum(r.value is None for r in right)},
        "wrong": {"count": len(wrong), "accepted": sum(r.value == 1 for r in wrong), "no_verdict": sum(r.value is None for r in wrong)},
    }
    Path(args.out).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
