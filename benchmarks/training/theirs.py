"""TRL's side: GRPOTrainer on CPU. As a program (`python -m benchmarks.training.theirs job.json
out.json [name=value ...]`) it trains."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.training.job import ROOT, Job, read
from benchmarks.training.processes import run


def measure(
    job: Job,
    folder: Path,
    *,
    rows: int,
    on: Sequence[int],
    passive: bool = False,
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """One run with micro-batches of `rows` responses; `more`: further entries of GRPOConfig, as
    name=value.

    `passive`: threads that wait for one another sleep, as rmrl's do; else they spin, as torch
    leaves it.
    """
    folder.mkdir(parents=True)
    out = folder / "out.json"
    words = [
        str(job.write(folder / "job.json")),
        str(out),
        f"per_device_train_batch_size={rows}",
        *more,
    ]
    environment = {
        "OMP_NUM_THREADS": str(job.threads),
        **({"OMP_WAIT_POLICY": "passive"} if passive else {}),
    }
    peak = run("benchmarks.training.theirs", words, on=on, log=folder / "log.txt", env=environment)
    return {**json.loads(out.read_text(encoding="utf-8")), "peak_bytes": peak}


def main() -> None:
    """Train, and write what was measured."""
    job, out = read(Path(sys.argv[1])), Path(sys.argv[2])
    more = {
        name: yaml.safe_load(value) for name, value in (word.split("=", 1) for word in sys.argv[3:])
    }
    out.write_text(json.dumps(train(job, more, out.parent)), encoding="utf-8")


def train(job: Job, more: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Per measured step: seconds, of them those until the responses are there, tokens, mean
    reward."""
    import torch
    from datasets import Dataset
    from trl import GRPOTrainer

    torch.set_num_threads(job.threads)
    rows = [
        {"prompt": row["prompt"], "ground_truth": row["reward_model"]["ground_truth"]}
        for row in job.rows
    ]
    watch = Watch()
    trainer = GRPOTrainer(
        model=job.model,
        args=config(job, more, folder),
        reward_funcs=watch.rewarding(compute_score()),
        train_dataset=Dataset.from_list(rows),
        callbacks=[watch.callback()],
    )
    watch.begun()
    trainer.train()
    assert len(watch.steps) == job.warmup + job.steps, (
        f"TRL made {len(watch.steps)} steps of {job.warmup + job.steps}"
    )
    return watch.measured(job)


def config(job: Job, more: dict[str, Any], folder: Path) -> Any:
    """GRPOConfig that says what rmrl's settings say. The loss `dapo` is a mean over all tokens of
    the batch, as ours."""
    from trl import GRPOConfig

    rows = more["per_device_train_batch_size"]
    given = {
        "output_dir": str(folder / "run"), "use_cpu": True, "bf16": job.dtype == "bfloat16", "seed": job.seed,
        "model_init_kwargs": {"dtype": "float32", "attn_implementation": "sdpa"}, "gradient_checkpointing": False,
        "gradient_accumulation_steps": job.responses // rows, "num_generations": job.n, "max_completion_length": job.max_tokens,
        "temperature": job.temperature, "shuffle_dataset": False, "max_steps": job.warmup + job.steps, "num_train_epochs": 1,
        "learning_rate": job.lr, "weight_decay": job.weight_decay, "lr_scheduler_type": "constant", "max_grad_norm": 1.0,
        "beta": 0.0, "epsilon": 0.2, "loss_type": "dapo", "scale_rewards": "group", "num_iterations": 1,
        "logging_steps": 1, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "dataloader_num_workers": 0,
    }  # fmt: skip
    return GRPOConfig(**(given | more))


def compute_score() -> Callable[..., float]:
    """The rule that rmrl's side uses, from its file."""
    spec = importlib.util.spec_from_file_location(
        "arithmetic", ROOT / "reward_functions" / "arithmetic.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compute_score


class Watch:
    """Times of the steps, of their responses, and what was written."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._generated: dict[str, float] = {}
        self._last = 0.0

    def begun(self) -> None:
        """The first step begins now."""
        self._last = time.perf_counter()

    def rewarding(self, score: Callable[..., float]) -> Callable[..., list[float]]:
        """A reward function for GRPOTrainer; it is called when all responses of a step are
        there."""

        def arithmetic(
            completions: Any, completion_ids: Any, ground_truth: Any, **_: Any
        ) -> list[float]:
            found = {
                "generate_s": time.perf_counter() - self._last,
                "response_tokens": float(sum(map(len, completion_ids))),
            }
            rewards = [
                score("arithmetic", c[-1]["content"], truth)
                for c, truth in zip(completions, ground_truth, strict=True)
            ]
            self._generated = {**found, "reward_mean": sum(rewards) / len(rewards)}
            return rewards

        return arithmetic

    def step_ended(self) -> None:
        """The next one begins now."""
        now = time.perf_counter()
        self.steps.append({"step_s": now - self._last, **self._generated})
        self._last = now

    def callback(self) -> Any:
        """Notes a step's end, and the tokens that TRL has counted by then."""
        from transformers import TrainerCallback

        watch = self

        class OnStep(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                watch.step_ended()

            def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
                if logs and "num_tokens" in logs and watch.steps:
                    watch.steps[-1]["num_tokens"] = logs["num_tokens"]

        return OnStep()

    def measured(self, job: Job) -> dict[str, Any]:
        """The steps after the warm-up, as lists."""
        counted = [
            step["num_tokens"] for step in self.steps
        ]  # prompt + response, of all steps so far
        tokens = [after - before for before, after in zip([0.0, *counted], counted, strict=False)]
        found = {
            name: [step[name] for step in self.steps[job.warmup :]]
            for name in ("step_s", "generate_s", "response_tokens", "reward_mean")
        }
        generate_s = found.pop("generate_s")
        train_s = [
            step - generate for step, generate in zip(found["step_s"], generate_s, strict=True)
        ]
        return {
            **found,
            "tokens": tokens[job.warmup :],
            "phases_s": {"generate": generate_s, "update": train_s},
        }


if __name__ == "__main__":
    main()
