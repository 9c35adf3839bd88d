"""Thirty short GRPO runs of a tiny policy on rewards of different faults, beside what `rmrl audit`
says about each reward before.

    python -m benchmarks.audit_predicts

The policy of examples/arithmetic is taught to answer in several ways. Its first responses are
audited with gold as their labels, and each reward trains it for STEPS steps. Place of the turn-over:
the n from which best-of-n loses gold, by the check `pressure` (the largest n where it loses none),
and the step from which training loses gold (the last one where it loses none, FALL at least).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch

from benchmarks.audit_predicts.figures import compared, draw, summary
from benchmarks.audit_predicts.policy import Policy
from benchmarks.audit_predicts.rewards import REWARDS, gold
from rmrl.cli import main as command

FUNCTION = """from benchmarks.audit_predicts.rewards import REWARDS

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return REWARDS["NAME"](solution_str, ground_truth)
"""
CHECKED = "audit.checks=[golden,agreement,shortcuts,pressure]"
STEPS = 28
PROMPTS, RESPONSES = 48, 64


def main() -> None:
    """Train, audit and show, or one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path(".models/tiny-arith"))
    parser.add_argument("--work", type=Path, default=Path("runs/audit_predicts"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--only", choices=("policy", "train", "audit", "show"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    start = given.work / "policy"
    if not (start / "config.json").exists():
        make_policy(given.model, start, given.work / "rows.jsonl")
    if given.only in (None, "train"):
        for number, name in enumerate(REWARDS):
            train(start, given.work / "runs", name, number)
    if given.only in (None, "audit"):
        for run in ended(given.work):
            audit(given.work, run.stem)
    if given.only in (None, "show"):
        show(given.work, given.out)


def make_policy(model: Path, start: Path, rows: Path) -> None:
    """Teach the policy its ways, and write its first responses with gold as their labels."""
    torch.manual_seed(0)
    policy = Policy(model)
    policy.teach_ways(seed=0)
    policy.save(start)
    pairs = random.Random(0).sample(policy.questions, PROMPTS)
    sampled = policy.sample(pairs, RESPONSES)
    lines: list[str] = []
    for number, (question, answer) in enumerate(pairs):
        texts = sampled.texts[number * RESPONSES : (number + 1) * RESPONSES]
        row = {
            "prompt": question,
            "data_source": "arithmetic",
            "reward_model": {"ground_truth": answer},
            "responses": texts,
            "label": [bool(gold(text, answer)) for text in texts],
        }
        lines.append(json.dumps(row))
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")


def train(start: Path, out: Path, name: str, number: int) -> None:
    """Train one policy, and write its curve; a curve that stands there is kept."""
    path = out / f"{name}.json"
    if path.exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(number)
    random.seed(number)
    policy = Policy(start)
    draw = random.Random(number)
    begun = time.monotonic()
    steps = [policy.step(REWARDS[name], draw) for _ in range(STEPS)]
    seconds = round(time.monotonic() - begun, 1)
    path.write_text(json.dumps({"reward": name, "seconds": seconds, "steps": steps}) + "\n")
    print(
        f"{name}: gold {steps[0]['gold']:.2f} -> {steps[-1]['gold']:.2f}, {seconds} s", flush=True
    )


def ended(work: Path) -> list[Path]:
    """Return the curves of the runs that have ended."""
    runs = [work / "runs" / f"{name}.json" for name in REWARDS]
    return [run for run in runs if run.exists()]


def audit(work: Path, name: str) -> None:
    """Audit one reward on the policy's first responses; an audit that stands there is kept."""
    out = work / "audits" / name
    if (out / "audit.json").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    function = out / f"{name}.py"
    function.write_text(FUNCTION.replace("NAME", name), encoding="utf-8")
    words = [f"data.files={work / 'rows.jsonl'}", "label=label", f"audit.rows={PROMPTS}", CHECKED]
    command(["audit", f"{function}::compute_score", f"out={out}", *words])


def show(work: Path, out: Path) -> None:
    """Write the table and the curves of all runs that have ended."""
    rows = [compared(run, work / "audits" / run.stem / "audit.json") for run in ended(work)]
    result = {"command": "python -m benchmarks.audit_predicts", "steps": STEPS, **summary(rows)}
    text = json.dumps(result, indent=1)
    (out / "audit_predicts.json").write_text(text + "\n", encoding="utf-8")
    draw(rows, out / "audit_predicts.png")
    print(text)


if __name__ == "__main__":
    main()
