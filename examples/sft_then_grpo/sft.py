"""Supervised fine-tuning before reinforcement learning: TRL's SFTTrainer on the rows that rmrl will
train on, or on others like them.

    python examples/sft_then_grpo/sft.py --model .models/smollm2 --data
    .data/sft_then_grpo/train.parquet --out .models/smollm2-sft

The files are those of data_preprocess/. A row's completion is its worked solution
(extra_info.answer of GSM8K, extra_info.solution of MATH) where it has one, else the reference
answer. Only completions are trained on. The folder written is an ordinary Hugging Face one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from rmrl.data.schema import PromptRow
from rmrl.errors import ConfigError, DataError
from rmrl.exit import exit_code

SOLUTIONS = ("answer", "solution")
"""Entries of extra_info that hold a worked solution."""
MAX_TOKENS = 1024
"""Prompt and completion together; the rest is cut off."""


def completion_of(row: PromptRow) -> str:
    """What the model is to write. Raises DataError where the row knows no answer."""
    found = next(
        (row.extra_info[name] for name in SOLUTIONS if row.extra_info.get(name)), row.ground_truth
    )
    if not found:
        raise DataError(
            f"{row.where}: no answer to learn from; need reward_model.ground_truth, or"
            f" extra_info.{' or extra_info.'.join(SOLUTIONS)}"
        )
    return str(found)


def examples(path: Path, most: int) -> list[dict[str, Any]]:
    """Rows as TRL's conversational prompt and completion; the first `most`, all where it is -1."""
    rows = iterate_rows(DataConfig(train_files=str(path)), split="train")
    return [
        {
            "prompt": [dict(turn) for turn in row.messages],
            "completion": [{"role": "assistant", "content": completion_of(row)}],
        }
        for row in (rows if most < 0 else islice(rows, most))
    ]


def train(options: argparse.Namespace) -> None:
    """Fine-tune and save."""
    try:
        from trl import SFTConfig, SFTTrainer
    except ImportError as error:
        raise ConfigError(
            'SFT needs the package trl, which is not installed; run: pip install "trl>=1.16"'
        ) from error
    import torch
    from datasets import Dataset

    data = Dataset.from_list(examples(options.data, options.rows))
    on_gpu = torch.cuda.is_available()
    settings = SFTConfig(
        output_dir=str(options.out / "trainer"),
        per_device_train_batch_size=min(options.batch, 8),
        gradient_accumulation_steps=max(1, options.batch // 8),
        num_train_epochs=options.epochs,
        learning_rate=options.lr,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        max_length=MAX_TOKENS,
        completion_only_loss=True,
        gradient_checkpointing=on_gpu,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        seed=options.seed,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = SFTTrainer(model=options.model, args=settings, train_dataset=data)
    trainer.train()
    trainer.model.to(torch.bfloat16)
    trainer.save_model(str(options.out))
    print(f"saved to {options.out}; {len(data)} examples")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="folder or hub id to start from")
    parser.add_argument(
        "--data", type=Path, required=True, help="parquet or jsonl file of data_preprocess/"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the fine-tuned model")
    parser.add_argument(
        "--rows", type=int, default=-1, help="the first rows only; -1: all (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=float, default=1.0, help="passes over the rows (default: %(default)s)"
    )
    parser.add_argument(
        "--batch", type=int, default=32, help="examples per optimizer step (default: %(default)s)"
    )
    parser.add_argument(
        "--lr", type=float, default=1e-5, help="peak learning rate (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="order of the examples (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    with exit_code() as code:
        train(options)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
