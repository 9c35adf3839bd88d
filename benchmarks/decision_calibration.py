"""Can a small model's stated probabilities be believed, after training on answers by cross-entropy,
by RLCD (reward: correct less the probability stated) and by outcome (reward: correct)?

    python -m benchmarks.decision_calibration --out benchmarks/results/decision_calibration.json

Label sets come from ../shared/data (its README names sources and licences): whether a solution of a
GSM8K problem is right, whether a response follows its prompt's instructions (IFEval), and which of
two responses people prefer (PandaLM). A set's rows are split by prompt, the same way for every
seed. There is one validation, behind the last step, so that nothing is chosen on the test rows; the
learning rate falls to 0 until then, or the last few rows would decide how sure the model is of all.
`calibrated` is the ECE that chance alone gives to probabilities that are exactly right.
Runs whose figures stand in --out are not trained again, and one that was broken off goes on: all of
them take hours, and may take several days' idle time.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
FIGURES = ("accuracy", "ece", "brier", "loss", "label_mass")
SHOWN = (*FIGURES, "calibrated")
Row = dict[str, Any]
Key = tuple[int, str, str]
"""Seed, label set, objective."""


def read(name: str) -> Iterator[Row]:
    """Yield a data set's rows."""
    for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def gsm8k() -> Iterator[Row]:
    """Solutions by four models, right or wrong."""
    for row in read("rollouts/gsm8k_openai_solutions"):
        yield {
            "prompt": row["question"],
            "response": row["response"],
            "question": "The final answer is correct.",
            "label": row["is_correct"],
        }


def ifeval() -> Iterator[Row]:
    """Responses that follow all instructions of their prompt, or do not."""
    prompts = {row["id"]: row["prompt"] for row in read("rollouts/ifeval_prompts")}
    for row in read("rollouts/ifeval_responses"):
        if row["id"] in prompts:
            yield {
                "prompt": prompts[row["id"]],
                "response": row["response"],
                "question": "The response follows every instruction.",
                "label": all(row["strict"]),
            }


def pandalm() -> Iterator[Row]:
    """Two responses, of which three people prefer one."""
    for row in read("pref/pandalm_human"):
        (label, count), *_ = Counter(row["annotators"]).most_common()
        if label and count > 1:
            both = f"Response 1:\n{row['response_1']}\n\nResponse 2:\n{row['response_2']}"
            yield {
                "prompt": f"{row['instruction']}\n\n{row['input']}".strip(),
                "response": both,
                "question": "Which of the two responses is better?",
                "answers": ["1", "2"],
                "label": str(label),
            }


SETS: dict[str, Callable[[], Iterator[Row]]] = {
    "gsm8k": gsm8k,
    "ifeval": ifeval,
    "pandalm": pandalm,
}


def write_split(name: str, folder: Path, settings: argparse.Namespace) -> dict[str, int]:
    """Write train.jsonl and test.jsonl, split by prompt; return their sizes."""
    rows = [row for row in SETS[name]() if len(str(row)) < settings.most_characters]
    prompts = sorted({row["prompt"] for row in rows})
    draw = random.Random(1)
    draw.shuffle(prompts)
    draw.shuffle(rows)
    held_out = set(prompts[: len(prompts) // 3])
    parts = {
        "train": [row for row in rows if row["prompt"] not in held_out],
        "test": [row for row in rows if row["prompt"] in held_out][: settings.test],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for part, chosen in parts.items():
        lines = [json.dumps(row) + "\n" for row in chosen]
        (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    return {part: len(chosen) for part, chosen in parts.items()}


def train(folder: Path, decision: str, seed: int, settings: argparse.Namespace) -> Row:
    """Train once, or read what an earlier call has trained; return the figures."""
    run = folder / f"{decision}_{seed}"
    if not (run / "best" / "README.md").exists():
        command = [
            *(sys.executable, "-m", "rmrl.main_rm", "objective=decision"),
            *(f"loss.decision={decision}", f"model.path={settings.model}", f"out={run}"),
            *(f"data.train_files={folder / 'train.jsonl'}", "data.overlong=drop"),
            *(f"data.val_files={folder / 'test.jsonl'}", f"data.max_length={settings.max_length}"),
            *(f"data.train_batch_size={settings.rows}", "trainer.test_freq=1000000"),
            *(f"trainer.total_training_steps={settings.steps}", f"optim.lr={settings.lr}"),
            *("optim.lr_scheduler_type=cosine", "optim.lr_warmup_steps_ratio=0.1"),
            *("model.enable_gradient_checkpointing=false", "trainer.save_freq=32"),
            *("trainer.device=cpu", f"trainer.seed={seed}"),
            *("trainer.logger=[jsonl]", "gate.engines=[hf]", "gate.texts=8"),
            f"trainer.threads_per_process={settings.threads}",
        ]
        subprocess.run(command, check=True, cwd=ROOT)
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    judges = {
        name: {key: judge[key] for key in (*FIGURES, "calibration")}
        for name, judge in report["judges"].items()
    }
    for judge in judges.values():
        judge["calibrated"] = ece_by_chance(judge["calibration"])
    dropped = {part: len(report["data"][part]["dropped"]) for part in ("train", "held_out")}
    return {"seed": seed, "judges": judges, "dropped": dropped, "run": report["run"]}


def ece_by_chance(calibration: Mapping[str, Any], draws: int = 1000) -> float:
    """Return the mean ECE of as many answers in each bin that are right with the probability which
    is stated there."""
    counts_K = np.asarray([point["count"] for point in calibration["curve"]])
    stated_K = np.asarray([point["confidence"] for point in calibration["curve"]])
    right_DK = np.random.default_rng(1).binomial(counts_K, stated_K, size=(draws, len(counts_K)))
    return float(np.abs(right_DK - counts_K * stated_K).sum(-1).mean() / counts_K.sum())


def recorded(out: Path) -> dict[Key, Row]:
    """Return the runs of earlier calls."""
    runs: dict[Key, Row] = {}
    if out.is_file():
        for name, figures in json.loads(out.read_text(encoding="utf-8"))["sets"].items():
            for decision, each in figures["decisions"].items():
                runs |= {(run["seed"], name, decision): run for run in each["runs"]}
    return runs


def means(runs: list[Row], judge: str) -> dict[str, list[float]]:
    """Return each figure's mean over the seeds, with the lowest and the highest."""
    figures: dict[str, list[float]] = {}
    for name in SHOWN:
        values = [run["judges"][judge][name] for run in runs]
        if name == "accuracy":
            values = [value["value"] for value in values]
        figures[name] = [
            round(each, 4) for each in (statistics.fmean(values), min(values), max(values))
        ]
    return figures


def summary(runs: dict[Key, Row]) -> Row:
    """Return the runs by set and objective, with each one's means over the seeds."""
    sets: dict[str, Any] = {}
    for (_, name, decision), run in sorted(runs.items()):
        figures = sets.setdefault(name, {"decisions": {}})
        figures["decisions"].setdefault(decision, {"runs": []})["runs"].append(run)
    for figures in sets.values():
        decisions = figures["decisions"].values()
        of_set = [run for each in decisions for run in each["runs"]]
        figures["before"] = means(of_set, "untrained head")
        figures["prior"] = means(of_set, "share of each answer")
        for each in decisions:
            each["trained"] = means(each["runs"], "trained")
    return {
        "command": " ".join(["python -m benchmarks.decision_calibration", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "sets": sets,
    }


def plot(sets: Mapping[str, Any], path: Path) -> None:
    """Draw how often answers are right against the probability that the model states of them, a dot
    a bin and seed, its area the number of answers."""
    figure = Figure(figsize=(4 * len(sets), 4), layout="constrained")
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    for panel, (name, of_set) in zip(panels, sets.items(), strict=True):
        panel.plot([0, 1], [0, 1], color="0.8", zorder=0)
        for number, (decision, each) in enumerate(of_set["decisions"].items()):
            points = [
                point
                for run in each["runs"]
                for point in run["judges"]["trained"]["calibration"]["curve"]
            ]
            panel.scatter(
                [point["confidence"] for point in points],
                [point["frequency"] for point in points],
                [2 * point["count"] for point in points],
                color=f"C{number}",
                alpha=0.6,
                label=f"{decision}: ECE {each['trained']['ece'][0]:.3f}",
            )
        panel.set(title=name, xlabel="probability stated", ylabel="share that is right")
        legend = panel.legend(loc="upper left", fontsize="small")
        for handle in legend.legend_handles:
            handle.set_sizes([30])
    figure.savefig(path, dpi=100)


def parsed() -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(ROOT / ".models" / "smollm2"))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--decisions", nargs="+", default=["cross_entropy", "rlcd", "outcome"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--test", type=int, default=192)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--most-characters", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/decision_calibration"))
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    """Train the runs that are left, a seed after the other, and write figures and plot after
    each."""
    settings = parsed()
    runs = recorded(settings.out)
    for seed in settings.seeds:
        for name in settings.sets:
            folder = settings.runs.resolve() / name
            rows = write_split(name, folder, settings)
            for decision in settings.decisions:
                key = (seed, name, decision)
                if key not in runs:
                    runs[key] = train(folder, decision, seed, settings) | {"rows": rows}
                    figures = summary(runs)
                    text = json.dumps(figures, indent=1) + "\n"
                    settings.out.write_text(text, encoding="utf-8")
                    plot(figures["sets"], settings.out.with_suffix(".png"))
                    # Every run would keep 3.6 GB.
                    shutil.rmtree(folder / f"{decision}_{seed}")
                trained = runs[key]["judges"]["trained"]
                print(key, {name: trained[name] for name in SHOWN}, flush=True)


if __name__ == "__main__":
    main()
