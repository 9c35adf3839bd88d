"""Make a weak judge for the policy of examples/arithmetic: `rmrl train-rm` on pairs that show one
mistake alone.

    python examples/watch/make_judge.py --policy .models/tiny-arith --out .models/weak_judge

The better response of a pair is the right answer, the worse one is one too high, which is the
mistake that the policy makes. Training and held-out pairs ask the two sets of questions of
make_data.py. At the end the judge scores answers to held-out questions with mistakes that it was
never shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmrl import Rewards
from rmrl.cli import main as rmrl

sys.path.append(str(Path(__file__).resolve().parent.parent / "arithmetic"))
from make_data import split

MISTAKE = 1
"""What a wrong answer of the pairs is above the right one."""
OFFSETS = (-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20)
"""Answers whose mean score is shown, as differences from the right one."""
ON_THIS_MACHINE = ("trainer.device=cpu", "trainer.threads_per_process=1")


def off_by(answer: str, offset: int) -> str:
    """Return an answer that is wrong by `offset`."""
    return str(int(answer) + offset)


def write_pairs(questions: Sequence[tuple[str, str]], path: Path) -> Path:
    """Write a pair for each (question, answer)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for question, answer in questions:
            wrong = off_by(answer, MISTAKE)
            print(json.dumps({"prompt": question, "chosen": answer, "rejected": wrong}), file=file)
    return path


def train(policy: Path, data: Path, out: Path, more: Sequence[str]) -> int:
    """Write the pairs and train the judge on them; return the exit status of `rmrl train-rm`."""
    training, held_out = split()
    return rmrl(
        [
            "train-rm",
            f"data.train_files={write_pairs(training, data / 'pairs.jsonl')}",
            f"data.val_files={write_pairs(held_out, data / 'held_out.jsonl')}",
            f"model.path={policy}",
            f"out={out}",
            "data.train_batch_size=64",
            "data.max_length=64",
            "trainer.total_training_steps=300",
            "optim.lr=5e-4",
            "fsdp_config.param_dtype=null",
            "model.enable_gradient_checkpointing=false",
            "gate.engines=[hf]",
            *ON_THIS_MACHINE,
            *more,
        ]
    )


def mean_scores(judge: Path) -> dict[int, float]:
    """Return the judge's mean score of held-out answers for each of OFFSETS."""
    _, held_out = split()
    questions = [question for question, _ in held_out]
    answers = [[off_by(answer, offset) for offset in OFFSETS] for _, answer in held_out]
    section: dict[str, Any] = {"reward": str(judge / "reward.yaml"), "trainer": {"device": "cpu"}}
    with Rewards(section) as rewards:
        table = rewards.score(questions, answers)
    return dict(zip(OFFSETS, np.mean(table["reward"], axis=0), strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Train, then show what the judge knows and what it only believes."""
    parser = argparse.ArgumentParser(
        description="Make a judge of small sums that has seen one mistake alone."
    )
    parser.add_argument("--policy", type=Path, default=Path(".models/tiny-arith"))
    parser.add_argument("--data", type=Path, default=Path(".data/watch"))
    parser.add_argument("--out", type=Path, default=Path(".models/weak_judge"))
    options, more = parser.parse_known_args(argv)
    status = train(options.policy, options.data, options.out, more)
    if status == 0:
        print("mean score of answers to held-out questions:")
        for offset, mean in mean_scores(options.out).items():
            print(f"  right {offset:+3d}: {mean:+.2f}")
    return status


if __name__ == "__main__":
    sys.exit(main())
