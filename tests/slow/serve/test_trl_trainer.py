"""A short GRPO training of TRL's own trainer whose reward is a server's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import Served
from tests.serve.live import live


def test_trl_trains_on_the_rewards_of_a_server(
    served: Served, tmp_path: Path, tiny_llama: Path
) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    batches: list[tuple[list[str], list[float | None]]] = []
    with live(served, "serve.wires=[trl]") as address:

        def length(prompts: list[str], completions: list[str], **columns: Any) -> list[Any]:
            body = {
                "prompts": prompts,
                "completions": completions,
                "completion_ids": columns["completion_ids"],
                "ground_truth": columns["ground_truth"],
            }
            answer = httpx.post(f"{address}/trl", json=body, timeout=60).json()
            batches.append((completions, answer["rewards"]))
            return answer["rewards"]

        trainer = trl.GRPOTrainer(
            model=str(tiny_llama),
            reward_funcs=[length],
            args=trl.GRPOConfig(
                output_dir=str(tmp_path / "run"),
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=12,
                max_steps=2,
                logging_steps=1,
                report_to="none",
                save_strategy="no",
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict(
                {"prompt": ["Who are you?", "How much?"], "ground_truth": ["me", "4"]}
            ),
        )
        trainer.train()
    steps = [entry for entry in trainer.state.log_history if "rewards/length/mean" in entry]
    assert len(steps) == len(batches) == 2
    for (completions, rewards), entry in zip(batches, steps, strict=True):
        # the rule's own number: characters / 10
        by_hand = [len(text) / 10 for text in completions]
        assert rewards == pytest.approx(by_hand)
        assert entry["reward"] == pytest.approx(sum(by_hand) / 8, rel=1e-4)
