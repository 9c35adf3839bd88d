"""A step of `rmrl train-rm` beside one of TRL's RewardTrainer: the same pairs, tokens, model, dtype
and optimizer.

    python -m benchmarks.reward_steps --out benchmarks/results/reward_steps.json
    python -m benchmarks.reward_steps --model .models/tiny-arith --pairs 4 --steps 2 --rounds 1

Pairs come from ../shared/data/pref (or --pairs-file, JSON lines with prompt, chosen, rejected) and
are tokenized once, by rmrl. Each side runs in a process of its own, in turns; the first step is
left out. TRL takes a step's pairs at once and in quarters, and its fastest way counts. Neither side
checkpoints activations. Seconds per step and the process's peak memory;
a ratio is theirs / ours of the same round: median [smallest, largest].
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WAYS = {"rmrl": 1, "trl": 1, "trl, micro-batches of a quarter": 4}
"""Side -> the parts that a step's pairs are cut into. rmrl cuts by tokens."""
LR = 1e-5


def write_items(settings: argparse.Namespace, file: Path) -> None:
    """Write what both sides train on: the tokens of chosen and rejected, and how many they
    share."""
    from benchmarks.reward_head import PREFERENCES, rows_of
    from rmrl.config.schema import RewardDataConfig, RewardLossConfig
    from rmrl.reward_training.example import Example
    from rmrl.reward_training.objectives import OBJECTIVES
    from rmrl.reward_training.tokens import tokenized
    from rmrl.tokenizer import load_tokenizer

    count = settings.pairs * (settings.steps + 1)
    if settings.pairs_file:
        lines = Path(settings.pairs_file).read_text(encoding="utf-8").splitlines()
        rows: list[dict[str, Any]] = list(map(json.loads, lines))
    else:
        rows = list(rows_of("pandalm_human", PREFERENCES))
    examples = [
        Example(
            place=str(number),
            prompt=row["prompt"],
            responses=(row["chosen"], row["rejected"]),
            ranks=(0, 1),
        )
        for number, row in enumerate(rows)
    ]
    items = tokenized(
        examples,
        load_tokenizer(settings.model, trust_remote_code=False),
        OBJECTIVES["bradley_terry"](RewardLossConfig(), ()),
        RewardDataConfig(max_length=settings.max_length),
    ).items[:count]
    if len(items) < count:
        raise SystemExit(
            f"{len(items)} pairs fit into {settings.max_length} tokens, {count} needed"
        )
    text = json.dumps([[row.tolist() for row in item.tokens] + [item.shared] for item in items])
    file.write_text(text, encoding="utf-8")


def ours(settings: argparse.Namespace, items: list[Any]) -> list[float]:
    """Seconds of each step of rmrl's engine."""
    from rmrl.backends.base import ProcessSettings
    from rmrl.config.schema import (
        ActorConfig,
        CriticConfig,
        FSDPConfig,
        ModelConfig,
        OptimConfig,
        RewardLossConfig,
    )
    from rmrl.reward_training.labelled_batch import Item, batch_of
    from rmrl.reward_training.reward_engine import RewardEngine, RewardSettings

    trained: dict[str, Any] = {
        "strategy": "fsdp2",
        "fsdp_config": FSDPConfig(param_dtype=None),
        "optim": OptimConfig(lr=LR),
        "ppo_max_token_len_per_gpu": settings.tokens,
        "ppo_epochs": 1,
    }
    engine = RewardEngine(
        RewardSettings(
            model=ModelConfig(path=settings.model, enable_gradient_checkpointing=False),
            actor=ActorConfig(**trained),
            critic=CriticConfig(**trained),
            role="critic",
            total_steps=settings.steps + 1,
            max_response_length=settings.max_length,
            objective="bradley_terry",
            loss=RewardLossConfig(),
        ),
        ProcessSettings(threads=settings.threads, timeout_s=600),
    )
    seconds: list[float] = []
    for start in range(0, len(items), settings.pairs):
        batch = batch_of(
            [
                Item(
                    number=number,
                    tokens=(np.asarray(better, np.int32), np.asarray(worse, np.int32)),
                    shared=shared,
                    reads=tuple(
                        np.arange(len(row) - shared) == len(row) - shared - 1
                        for row in (better, worse)
                    ),
                    targets=((0.0, 0.0), (1.0, 0.0)),
                )
                for number, (better, worse, shared) in enumerate(
                    items[start : start + settings.pairs]
                )
            ]
        )
        started = time.perf_counter()
        engine.update([batch])
        seconds.append(time.perf_counter() - started)
    return seconds


def theirs(settings: argparse.Namespace, items: list[Any], parts: int) -> list[float]:
    """Seconds of each step of TRL's trainer."""
    import torch
    import trl
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        TrainerCallback,
    )

    torch.set_num_threads(settings.threads)
    seconds: list[float] = []

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.perf_counter() - self.started)

    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    model = AutoModelForSequenceClassification.from_pretrained(
        settings.model, num_labels=1, dtype=torch.float32
    )
    model.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
    rows = [{"chosen_ids": better, "rejected_ids": worse} for better, worse, _ in items]
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.RewardTrainer(
            model=model,
            args=trl.RewardConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                report_to="none",
                save_strategy="no",
                learning_rate=LR,
                max_steps=settings.steps + 1,
                max_length=settings.max_length,
                per_device_train_batch_size=settings.pairs // parts,
                gradient_accumulation_steps=parts,
                gradient_checkpointing=False,
                disable_tqdm=True,
                logging_strategy="no",
                train_sampling_strategy="sequential",
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[Watch()],
        )
        trainer.train()
    return seconds


def side(settings: argparse.Namespace) -> None:
    """Run one side in this process and print its figures as JSON."""
    items = json.loads(Path(settings.items).read_text(encoding="utf-8"))
    way = settings.side
    seconds = ours(settings, items) if way == "rmrl" else theirs(settings, items, parts=WAYS[way])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds[1:], "peak_gib": peak / 2**30}))


def measured(way: str, items: Path) -> dict[str, Any]:
    """The figures of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.reward_steps", *sys.argv[1:]]
    command += ["--side", way, "--items", str(items)]
    answer = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    """Run the sides in turns, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reward_steps", description=__doc__)
    parser.add_argument("--model", default=str(ROOT / ".models" / "smollm2"))
    parser.add_argument("--pairs-file")
    parser.add_argument("--pairs", type=int, default=8, help="of a step")
    parser.add_argument("--steps", type=int, default=3, help="measured in each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=4096, help="of a micro-batch of rmrl")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--items", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.side:
        side(settings)
        return
    rounds: list[dict[str, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        items = Path(folder) / "items.json"
        write_items(settings, items)
        lengths = [
            [len(better), len(worse), shared]
            for better, worse, shared in json.loads(items.read_text(encoding="utf-8"))
        ]
        for number in range(settings.rounds):
            ways = list(WAYS) if number % 2 else list(reversed(WAYS))
            rounds.append({way: measured(way, items) for way in ways})
            print(json.dumps(rounds[-1]), flush=True)
    ratios: dict[str, list[float]] = {"seconds": [], "memory": []}
    for each in rounds:
        step = {way: statistics.median(found["seconds"]) for way, found in each.items()}
        peak = {way: found["peak_gib"] for way, found in each.items()}
        fastest = min((way for way in WAYS if way != "rmrl"), key=lambda way: step[way])
        ratios["seconds"].append(step[fastest] / step["rmrl"])
        ratios["memory"].append(peak[fastest] / peak["rmrl"])
    whole, shared = np.asarray(lengths)[:, :2].sum(), np.asarray(lengths)[:, 2].sum()
    result = {
        "command": " ".join(["python -m benchmarks.reward_steps", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "load": os.getloadavg()[0],
        "shared_tokens": float(shared / whole),
        "ratios": {
            name: [statistics.median(each), min(each), max(each)] for name, each in ratios.items()
        },
        "rounds": rounds,
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if settings.out:
        settings.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
