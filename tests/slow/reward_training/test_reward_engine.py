"""RewardEngine: against TRL's trainer, in one process and in two, resumed, and what it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from rmrl.backends.base import ProcessSettings
from rmrl.backends.process_group import leave_group
from rmrl.config.schema import RewardLossConfig
from rmrl.reward_training.labelled_batch import batch_of
from rmrl.reward_training.reward_engine import RewardEngine
from tests.backends.policies import ONE_PROCESS, run_group, write_policy
from tests.reward_training.pairs import random_items, reward_settings

CENTERED = RewardLossConfig(center=0.03)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def saved(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model with a random head, as a run writes it."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    RewardEngine(reward_settings(base), ONE_PROCESS).save_hf(str(folder))
    leave_group()
    return folder


@pytest.fixture(autouse=True)
def _leave_group() -> Iterator[None]:
    yield
    leave_group()


def whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def weights_of(engine: RewardEngine) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in engine.weights()}


@pytest.mark.parametrize("center", [0.0, 0.03])
def test_loss_and_gradients_are_those_of_trl(saved: Path, tmp_path: Path, center: float) -> None:
    """200 pairs with margins, float32, to 1e-6."""
    trl = pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")
    from datasets import Dataset
    from transformers import AutoTokenizer

    items = random_items(200, seed=5)
    rows = [
        {
            "chosen_ids": item.tokens[0].tolist(),
            "rejected_ids": item.tokens[1].tolist(),
            "margin": item.targets[0][1],
        }
        for item in items
    ]
    model = AutoModelForSequenceClassification.from_pretrained(saved, dtype=torch.float32)
    trainer = trl.RewardTrainer(
        model=model,
        args=trl.RewardConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            report_to="none",
            center_rewards_coefficient=center or None,
            per_device_train_batch_size=200,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(saved),
    )
    batch = trainer.data_collator(rows)
    model.train()
    loss = trainer.compute_loss(model, batch)
    loss.backward()

    settings = reward_settings(saved, loss=RewardLossConfig(center=center))
    engine: Any = RewardEngine(settings, ONE_PROCESS)
    part = engine._part
    total: list[float] = []

    def our_loss(micro: Any, outputs_N: Any, entropy_N: Any) -> Any:
        loss_sum, _ = engine._loss(micro, outputs_N, entropy_N)
        total.append(float(loss_sum) / len(items))
        return loss_sum / len(items)

    plan = engine._plan(batch_of(items), engine._limits)
    assert len(plan) > 3
    part.train([micro for _, micro in plan], our_loss)

    assert sum(total) == pytest.approx(loss.item(), abs=1e-6)
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in part.model.named_parameters():
        torch.testing.assert_close(
            whole(parameter.grad), expected.pop(name.removeprefix("model.")), atol=1e-6, rtol=1e-5
        )
    assert not expected


def test_shared_prompts_and_micro_batches_change_no_score(saved: Path) -> None:
    """The score is transformers' own of each row alone."""
    items = random_items(9, seed=2)
    model = AutoModelForSequenceClassification.from_pretrained(saved)
    expected = [
        model(input_ids=torch.from_numpy(row[None].astype(np.int64))).logits.item()
        for item in items
        for row in item.tokens
    ]
    for shares in (True, False):
        for tokens in (60, 4000):
            settings = reward_settings(saved, tokens=tokens, share_prompts=shares)
            engine = RewardEngine(settings, ONE_PROCESS)
            scores = engine.scores(batch_of(items))
            assert [row[0, 0] for row in scores] == pytest.approx(expected, abs=1e-5)
            leave_group()


@pytest.mark.parametrize("attention", ["sdpa", "varlen"])
def test_packed_rows_have_the_same_scores_and_steps(saved: Path, attention: str) -> None:
    """As rows are packed on CUDA by default."""
    items = random_items(9, seed=2)
    results: list[tuple[list[float], float, dict[str, list[float]]]] = []
    for entries in (
        {"share_prompts": False},
        {"use_remove_padding": True, "attn_implementation": attention},
    ):
        settings = reward_settings(saved, loss=CENTERED, tokens=120, **entries)
        engine = RewardEngine(settings, ONE_PROCESS)
        scores = [row[0, 0] for row in engine.scores(batch_of(items))]
        metrics = engine.update([batch_of(items)])
        results.append((scores, metrics["critic/grad_norm"], weights_of(engine)))
        leave_group()
    (scores, norm, weights), packed = results
    assert packed[0] == pytest.approx(scores, abs=1e-5)
    assert packed[1] == pytest.approx(norm, rel=1e-4)
    for name, values in weights.items():
        assert packed[2][name] == pytest.approx(values, abs=2e-5)


def _train(process: ProcessSettings, base: str, folder: str, lora_rank: int) -> Any:
    """Four steps of eight pairs; a checkpoint and a saved model behind them."""
    items = random_items(8, seed=7)
    settings = reward_settings(Path(base), loss=CENTERED, tokens=120, lora_rank=lora_rank)
    engine = RewardEngine(settings, process)
    share = items[process.rank :: process.world_size]
    metrics = [engine.update([batch_of(share)]) for _ in range(4)]
    engine.save_hf(f"{folder}/hf")
    engine.save(f"{folder}/checkpoint")
    weights = {name: tensor.flatten().tolist() for name, tensor in engine.weights()}
    engine.close()
    return {"metrics": metrics, "weights": weights}


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_two_processes_train_as_one_and_the_head_is_saved(
    base: Path, tmp_path: Path, lora_rank: int
) -> None:
    results = [
        run_group(_train, count, tmp_path, str(base), str(tmp_path / str(count)), lora_rank)
        for count in (1, 2)
    ]
    for alone, together in zip(results[0]["metrics"], results[1]["metrics"], strict=True):
        assert together == pytest.approx(alone, rel=2e-4, abs=1e-6)
    losses = [metrics["critic/loss"] for metrics in results[0]["metrics"]]
    assert losses[-1] < losses[0]
    for name, values in results[0]["weights"].items():
        assert results[1]["weights"][name] == pytest.approx(values, abs=2e-5)

    engine = RewardEngine(reward_settings(base, loss=CENTERED, lora_rank=lora_rank), ONE_PROCESS)
    engine.load(str(tmp_path / "1" / "checkpoint"))
    items = random_items(6, seed=9)
    trained = [row[0, 0] for row in engine.scores(batch_of(items))]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "1" / "hf")
    plain = [
        model(input_ids=torch.from_numpy(row[None].astype(np.int64))).logits.item()
        for item in items
        for row in item.tokens
    ]
    assert trained == pytest.approx(plain, abs=1e-5)
    config = json.loads((tmp_path / "1" / "hf" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"]


def test_a_resumed_engine_goes_on_bit_for_bit(base: Path, tmp_path: Path) -> None:
    batches = [batch_of(random_items(6, seed=seed)) for seed in range(4)]
    engine = RewardEngine(reward_settings(base, loss=CENTERED), ONE_PROCESS)
    for batch in batches[:2]:
        engine.update([batch])
    engine.save(str(tmp_path / "checkpoint"))
    straight = [engine.update([batch]) for batch in batches[2:]]
    expected = weights_of(engine)
    leave_group()

    resumed = RewardEngine(reward_settings(base, loss=CENTERED), ONE_PROCESS)
    resumed.load(str(tmp_path / "checkpoint"))
    assert [resumed.update([batch]) for batch in batches[2:]] == straight
    assert weights_of(resumed) == expected
