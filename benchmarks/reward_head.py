"""A Bradley-Terry head on a small real model, trained on people's preferences: is it better than
the longest response, TF-IDF and its own untrained head, on length-matched pairs of prompts that
training has not seen?

    python -m benchmarks.reward_head --out benchmarks/results/reward_head.json

Pairs come from ../shared/data/pref (its README names sources and licences). The prompts are halved
by their hashes. For each seed one model learns from the first half and is tested on the second, and
another the other way round, so that every pair is held out once. The figures of the two are added
up, with Wilson intervals (95 %), in which a tie counts half. There is one validation, behind the
last step, so that no weights are chosen on the test pairs. The source, the layers and the steps were
chosen by a few trials within three fifths of the prompts. `--layers` keeps the first layers of the
base. Runs that are done stay in --runs and are not trained again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy.stats import binomtest
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
PREFERENCES = ROOT.parent / "shared" / "data" / "pref"
FOLDS = 2
FIGURES = ("accuracy", "length_matched")
BASELINES = ("untrained head", "words", "longest")
Row = dict[str, str]


def rows_of(name: str, folder: Path) -> Iterator[Row]:
    """Yield a source's pairs, the better response first. Ties are left out."""
    for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        prompt, better, worse = entry.get("instruction", ""), None, None
        match entry:
            case {"annotators": votes, "input": more, "response_1": one, "response_2": two}:
                (label, count), *_ = Counter(votes).most_common()
                prompt = f"{prompt}\n\n{more}".strip()
                if label and count > 1:
                    better, worse = (one, two) if label == 1 else (two, one)
            case {"output_1": one, "output_2": two, "label": label}:
                better, worse = (one, two) if label == 1 else (two, one)
            case {"chosen": better, "rejected": worse}:
                pass
            case _:
                raise ValueError(f"{name}: a row with {sorted(entry)}")
        if isinstance(better, str) and isinstance(worse, str):
            yield {"prompt": prompt, "chosen": better, "rejected": worse, "source": name}


def fold_of(prompt: str) -> int:
    """Return a prompt's half, the same whichever sources are taken."""
    return hashlib.sha256(prompt.encode()).digest()[0] % FOLDS


def write_folds(sources: list[str], folder: Path, out: Path) -> dict[str, Any]:
    """Write fold_0.jsonl and fold_1.jsonl, split by prompt; return their sizes."""
    rows = [row for name in sources for row in rows_of(name, folder)]
    sizes: dict[str, Any] = {}
    for fold in range(FOLDS):
        part = [row for row in rows if fold_of(row["prompt"]) == fold]
        lines = [json.dumps(row) + "\n" for row in part]
        (out / f"fold_{fold}.jsonl").write_text("".join(lines), encoding="utf-8")
        sizes[f"fold_{fold}"] = dict(Counter(row["source"] for row in part))
    return sizes


def write_base(source: str, layers: int, out: Path) -> Path:
    """Return the base's folder: the checkpoint itself, or its first layers."""
    if not layers:
        return Path(source)
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype="float32")
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:layers]
    model.save_pretrained(out / "base")
    AutoTokenizer.from_pretrained(source).save_pretrained(out / "base")
    return out / "base"


def train(
    base: Path, folder: Path, seed: int, fold: int, settings: argparse.Namespace
) -> dict[str, Any]:
    """Train once, or go on with it, without the fold that it is tested on; return its figures and
    its curve."""
    run = folder / f"seed_{seed}_fold_{fold}"
    learnt, tested = (folder / f"fold_{number}.jsonl" for number in (1 - fold, fold))
    if not (run / "best" / "README.md").exists():
        command = [
            *(sys.executable, "-m", "rmrl.main_rm", f"model.path={base}", f"out={run}"),
            *(f"data.train_files={learnt}", f"data.val_files={tested}"),
            *(f"data.max_length={settings.max_length}", f"data.train_batch_size={settings.rows}"),
            *("optim.lr_scheduler_type=linear", "optim.lr_warmup_steps_ratio=0.1"),
            *(f"optim.lr={settings.lr}", "model.enable_gradient_checkpointing=false"),
            *(f"trainer.total_epochs={settings.epochs}", f"trainer.seed={seed}"),
            *("trainer.test_freq=1000000", "trainer.save_freq=20", "trainer.device=cpu"),
            *("trainer.logger=[jsonl]", "gate.engines=[hf]"),
            f"trainer.threads_per_process={settings.threads}",
        ]
        subprocess.run(command, check=True, cwd=ROOT)
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    report["gate"].pop("scores", None)
    report["run"].pop("seconds", None)
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    return {
        "seed": seed,
        "fold": fold,
        "judges": {
            name: {key: judge[key] for key in FIGURES} for name, judge in report["judges"].items()
        },
        "dropped": {part: len(report["data"][part]["dropped"]) for part in ("train", "held_out")},
        "gate": report["gate"],
        "run": report["run"],
        "curve": [[round(s["train/loss"], 4), round(s["train/accuracy"], 4)] for s in steps],
    }


def pooled(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one seed's figures over both folds, and above which baselines the trained model's
    interval lies on length-matched pairs."""
    figures: dict[str, Any] = {}
    for name in runs[0]["judges"]:
        figures[name] = {}
        for key in FIGURES:
            shares = [run["judges"][name][key] for run in runs]
            count = sum(each["count"] for each in shares)
            right = sum(each["value"] * each["count"] for each in shares)
            low, high = binomtest(round(right), count).proportion_ci(0.95, method="wilson")
            numbers = {"value": right / count, "low": low, "high": high}
            figures[name][key] = {k: round(float(v), 4) for k, v in numbers.items()}
            figures[name][key]["count"] = count
    low = figures["trained"]["length_matched"]["low"]
    above = [name for name in BASELINES if low > figures[name]["length_matched"]["high"]]
    return {"seed": runs[0]["seed"], "above": above, "judges": figures}


def main() -> None:
    """Train the seeds that are left, and write the figures after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=str(ROOT / ".models" / "smollm2"))
    parser.add_argument("--layers", type=int, default=16, help="first layers to keep; 0: all")
    parser.add_argument("--sources", nargs="+", default=["pandalm_human"])
    parser.add_argument("--preferences", type=Path, default=PREFERENCES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8, help="pairs in a step")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--max-length", type=int, default=384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/reward_head"))
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    settings.runs.mkdir(parents=True, exist_ok=True)
    folder = settings.runs.resolve()
    sizes = write_folds(settings.sources, settings.preferences, folder)
    base = write_base(settings.base, settings.layers, folder)
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.reward_head", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "pairs": sizes,
        "seeds": [],
        "runs": [],
    }
    for seed in settings.seeds:
        runs = [train(base, folder, seed, fold, settings) for fold in range(FOLDS)]
        result["seeds"].append(pooled(runs))
        result["runs"] += runs
        text = json.dumps(result, indent=1) + "\n"
        print(json.dumps(result["seeds"][-1], indent=1), flush=True)
        if settings.out:
            settings.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
