"""A Bradley-Terry head on a small real model, trained on people's preferences: is it better than
the longest response, TF-IDF and its own untrained head, on length-matched pairs of prompts that
training has not seen?

    python -m benchmarks.reward_head --out benchmarks/results/reward_head.json

Pairs come from ../shared/data/pref (its README names sources and licences). Two fifths of the
prompts are the test set, the same ones for every seed. There is one validation, behind the last
step, so that nothing is chosen on the test set. `--layers 10` keeps the first ten layers of the
base, which a busy machine can train. Seeds that are done stay in --runs and are not trained again.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
PREFERENCES = ROOT.parent / "shared" / "data" / "pref"
TEST_SHARE = 0.4
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


def write_split(sources: list[str], folder: Path, out: Path) -> dict[str, Any]:
    """Write train.jsonl and test.jsonl, split by prompt; return their sizes."""
    rows = [row for name in sources for row in rows_of(name, folder)]
    prompts = sorted({row["prompt"] for row in rows})
    random.Random(1).shuffle(prompts)
    held_out = set(prompts[: round(TEST_SHARE * len(prompts))])
    parts = {
        "train": [row for row in rows if row["prompt"] not in held_out],
        "test": [row for row in rows if row["prompt"] in held_out],
    }
    for name, part in parts.items():
        lines = [json.dumps(row) + "\n" for row in part]
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return {name: dict(Counter(row["source"] for row in part)) for name, part in parts.items()}


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


def train(base: Path, folder: Path, seed: int, settings: argparse.Namespace) -> dict[str, Any]:
    """Train one seed, or go on with it; return its figures and its curve."""
    run = folder / f"seed_{seed}"
    if not (run / "best" / "README.md").exists():
        command = [
            *(sys.executable, "-m", "rmrl.main_rm"),
            *(f"data.train_files={folder / 'train.jsonl'}", f"model.path={base}"),
            *(f"data.val_files={folder / 'test.jsonl'}", f"data.max_length={settings.max_length}"),
            *("data.train_batch_size=16", "optim.lr_scheduler_type=linear", f"out={run}"),
            *(f"optim.lr={settings.lr}", "optim.lr_warmup_steps_ratio=0.1"),
            *("fsdp_config.param_dtype=null", "model.enable_gradient_checkpointing=false"),
            *("trainer.max_tokens_per_gpu=2048", f"trainer.total_epochs={settings.epochs}"),
            *("trainer.test_freq=1000000", "trainer.save_freq=10", "trainer.device=cpu"),
            *(f"trainer.seed={seed}", "trainer.logger=[jsonl]", "gate.engines=[hf]"),
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
        "judges": {
            name: {key: judge[key] for key in ("accuracy", "length_matched")}
            for name, judge in report["judges"].items()
        },
        "by_source": {
            name: value for name, value in report["best"].items() if name.endswith("/accuracy")
        },
        "dropped": {part: len(report["data"][part]["dropped"]) for part in ("train", "held_out")},
        "gate": report["gate"],
        "run": report["run"],
        "curve": [[round(s["train/loss"], 4), round(s["train/accuracy"], 4)] for s in steps],
    }


def main() -> None:
    """Train the seeds that are left, and write the figures after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=str(ROOT / ".models" / "smollm2"))
    parser.add_argument("--layers", type=int, default=0, help="first layers to keep; 0: all")
    parser.add_argument("--sources", nargs="+", default=["pandalm_human", "hhh_alignment"])
    parser.add_argument("--preferences", type=Path, default=PREFERENCES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--max-length", type=int, default=384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/reward_head"))
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    settings.runs.mkdir(parents=True, exist_ok=True)
    folder = settings.runs.resolve()
    sizes = write_split(settings.sources, settings.preferences, folder)
    base = write_base(settings.base, settings.layers, folder)
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.reward_head", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "pairs": sizes,
        "runs": [],
    }
    for seed in settings.seeds:
        result["runs"].append(train(base, folder, seed, settings))
        text = json.dumps(result, indent=1) + "\n"
        print(text)
        if settings.out:
            settings.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
