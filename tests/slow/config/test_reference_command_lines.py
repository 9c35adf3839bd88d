"""A reference command line trains on a CPU."""

from __future__ import annotations

from pathlib import Path

from tests.config.reference_lines import PPO_GSM8K, changed, typed
from tests.config.test_reference_command_lines import gsm8k
from tests.inputs import read_lines
from tests.trainer.job import run_typed

__all__ = ["gsm8k"]


def test_ppo_with_a_critic_runs_on_a_cpu(gsm8k: Path, tiny_llama: Path, tmp_path: Path):
    """Paths and counts are others, nothing else: two steps of four prompts, with validation and a
    checkpoint after the second."""
    words = changed(
        typed(
            PPO_GSM8K, TRAIN=gsm8k / "train.parquet", TEST=gsm8k / "test.parquet", POLICY=tiny_llama
        ),
        data__train_batch_size=4,
        data__max_prompt_length=64,
        data__max_response_length=16,
        actor_rollout_ref__actor__ppo_mini_batch_size=2,
        trainer__save_freq=2,
        trainer__test_freq=2,
        trainer__total_epochs=1,
    )
    out, printed = run_typed(words, tmp_path)
    assert "rows of openai/gsm8k are scored by the rule gsm8k" in printed
    rows = read_lines(out / "samples.jsonl")
    assert [row["step"] for row in rows] == [1] * 4 + [2] * 4
    assert {row["scores"]["gsm8k"]["status"] for row in rows} == {"ok"}
    assert (out / "checkpoints").is_dir()
    assert (out / "val_samples.jsonl").is_file()
