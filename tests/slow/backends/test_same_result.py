"""The same batch in one process and one micro-batch, and in two processes and four micro-batches
each: the same weights after two steps.

Weights are compared to 5e-6 where the steps move them by up to 3e-2 (measured: 7e-7). AdamW's
epsilon is large here: with a tiny one, an entry whose gradient is nothing but rounding moves by the
whole learning rate, in a direction that the order of a sum decides.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rmrl.algorithms.aggregate import AGGREGATION_MODES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.process_group import leave_group
from rmrl.config.schema import OptimConfig
from rmrl.trainer.loss_weights import unit_tokens
from rmrl.types import TrainBatch
from tests.backends.policies import (
    make_batch,
    make_critic_batch,
    make_critic_settings,
    make_settings,
    run_group,
    share,
    write_policy,
)

ROWS = 8
LORA = {"lora_rank": 4, "lora_alpha": 16}
PACKED = {"use_remove_padding": True, "attn_implementation": "sdpa"}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{
        f"{role}-{mode}": (role, {"loss_agg_mode": mode}, {})
        for role in ("actor", "critic")
        for mode in AGGREGATION_MODES
    },
    **{f"{role}-lora": (role, {}, LORA) for role in ("actor", "critic")},
    **{f"{role}-lora-fsdp": (role, {"strategy": "fsdp"}, LORA) for role in ("actor", "critic")},
    **{f"{role}-packed": (role, {}, PACKED) for role in ("actor", "critic")},
}
"""Name -> role, settings of its section, settings of its model."""


def make(case: str, checkpoint: Path, *, alone: bool) -> TrainSettings:
    role, section, model = CASES[case]
    section = {**section, "optim": OptimConfig(lr=1e-2, eps=1e-3)}
    if not alone:  # four micro-batches of one row in each of two processes
        section |= {"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": ROWS // 2 // 4}
    return (make_critic_settings if role == "critic" else make_settings)(
        checkpoint, model=model, **section
    )


def with_prompts(batch: TrainBatch) -> TrainBatch:
    """Rows 0 and 4, 1 and 5, ... answer one prompt, so that most prompts lie on both processes."""
    tokens = unit_tokens(batch.loss_mask, np.arange(len(batch)) % 4)
    return dataclasses.replace(batch, unit_tokens=tokens)


def train(case: str, process: ProcessSettings, checkpoint: Path, file: Path) -> dict[str, float]:
    """Two optimizer steps; the weights go to `file`."""
    engine = FSDPEngine(
        settings=make(case, checkpoint, alone=process.world_size == 1), process=process
    )
    rows = make_critic_batch if CASES[case][0] == "critic" else make_batch
    batches = [with_prompts(rows(ROWS, seed=seed)) for seed in (1, 2)]
    metrics = engine.update([share(batch, process) for batch in batches])
    engine.export_weights(str(file), "float32")
    return metrics


def two_processes(
    process: ProcessSettings, checkpoint: str, folder: str
) -> dict[str, dict[str, float]]:
    metrics = {
        case: train(case, process, Path(checkpoint), Path(folder) / f"{case}.two") for case in CASES
    }
    leave_group()
    return metrics


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def together(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("weights")
    return run_group(two_processes, 2, folder, str(checkpoint), str(folder)), folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_of_four_micro_batches_equal_one_of_one(
    case: str, checkpoint: Path, together: tuple[dict[str, Any], Path]
):
    metrics_two, folder = together
    alone = ProcessSettings(threads=1, timeout_s=60)
    try:
        metrics_one = train(case, alone, checkpoint, folder / f"{case}.one")
    finally:
        leave_group()
    one, two, start = (
        load_file(folder / f"{case}.one"),
        load_file(folder / f"{case}.two"),
        load_file(checkpoint / "model.safetensors"),
    )
    assert one.keys() == two.keys()
    for name, weight in one.items():
        torch.testing.assert_close(
            two[name], weight, atol=5e-6, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    moved = max((one[name] - start[name]).abs().max().item() for name in one.keys() & start.keys())
    assert moved > 1e-4, "the steps moved nothing, so nothing was compared"
    assert metrics_two[case] == {
        name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in metrics_one.items()
    }
