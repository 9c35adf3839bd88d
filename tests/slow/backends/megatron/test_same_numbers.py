"""One PPO and one GRPO step from the same checkpoint and batch: the same numbers under FSDP2 and
under Megatron's layouts.

A step is what the trainer does with a batch: log-probabilities of policy and reference (or values
of the critic), advantages, an update of two mini-batches (of policy and critic). The trainer's own
row_assignment of rows is used; processes exchange results as Ray would.

Compared in float32: what the models answer before the step (2e-6), losses and metrics (2e-5),
gradient norms (relative 2e-5), weights after it (1e-5, where they move by up to 2e-2). AdamW's
epsilon is large: with a tiny one, an entry whose gradient is nothing but rounding moves by the
whole learning rate.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from rmrl.algorithms import ADVANTAGES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.process_group import leave_group
from rmrl.backends.row_assignment import row_assignment
from rmrl.backends.worker import TrainWorker
from rmrl.config.schema import (
    ActorConfig,
    AlgorithmConfig,
    CriticConfig,
    FSDPConfig,
    MegatronConfig,
    ModelConfig,
    OptimConfig,
)
from rmrl.telemetry.clock import Durations
from rmrl.trainer.policy import TrainedModel
from rmrl.types import AdvantageInputs, Ragged, TrainBatch
from tests.backends.megatron.tiny import write_tiny
from tests.backends.policies import VOCABULARY, make_batch, run_group

ALGORITHMS = ("grpo", "ppo")
LAYOUTS: dict[str, tuple[int, dict[str, int]]] = {
    "fsdp2": (2, {}),
    "tp1": (1, {}),
    "tp2": (2, {"tensor_model_parallel_size": 2}),
    "pp2": (2, {"pipeline_model_parallel_size": 2}),
    "dp2": (2, {}),
    "tp2dp2": (4, {"tensor_model_parallel_size": 2}),
}
"""Name -> processes, parallel sizes. All are compared with one process under FSDP2."""
ROWS, PER_PROMPT = 12, 3
Result = dict[str, Any]


def settings_of(algorithm: str, layout: str, folder: Path) -> dict[str, TrainSettings]:
    """Policy, frozen reference (other weights than the policy's) and critic."""
    shared: dict[str, Any] = {
        "strategy": "fsdp2" if layout.startswith("fsdp2") else "megatron",
        "fsdp_config": FSDPConfig(param_dtype=None),
        "megatron": MegatronConfig(dtype="float32", **LAYOUTS.get(layout, (1, {}))[1]),
        "optim": OptimConfig(lr=1e-2, eps=1e-3),
        "ppo_max_token_len_per_gpu": 60,
        "grad_clip": 0.5,
    }
    kl = {"use_kl_loss": True, "kl_loss_coef": 0.1} if algorithm == "grpo" else {}
    actor = ActorConfig(entropy_coeff=0.01, **kl, **shared)
    common: dict[str, Any] = {
        "actor": actor,
        "temperature": 0.9,
        "total_steps": 10,
        "max_response_length": 10,
    }
    policy, reference = (ModelConfig(path=str(folder / name)) for name in ("policy", "reference"))
    engines = {
        "actor": TrainSettings(role="actor", model=policy, **common),
        "ref": TrainSettings(role="ref", model=reference, **common),
    }
    if algorithm == "ppo":
        critic = CriticConfig(ppo_mini_batch_size=4, ppo_epochs=1, **shared)
        engines["critic"] = TrainSettings(role="critic", model=policy, critic=critic, **common)
    return engines


class SameProgram:
    """A training group whose processes all run this program: each calls its own worker, and all
    learn what the others answered."""

    def __init__(self, worker: TrainWorker, process: ProcessSettings) -> None:
        self._worker, self._process, self.size = worker, process, process.world_size
        self.durations = Durations()

    def stored(self, value: object) -> object:
        return value

    async def call(self, method: str, per_rank: Sequence[Sequence[Any]]) -> list[Any]:
        answers: list[Any] = [None] * self.size
        dist.all_gather_object(
            answers, getattr(self._worker, method)(*per_rank[self._process.rank])
        )
        return answers


async def one_step(algorithm: str, layout: str, folder: Path, process: ProcessSettings) -> Result:
    engines = settings_of(algorithm, layout, folder)
    group: Any = SameProgram(TrainWorker(engines, process), process)
    models = {
        role: TrainedModel(
            group,
            role,
            row_assignment(settings.trained, process.world_size, section=settings.section),
        )
        for role, settings in engines.items()
    }
    batch = make_batch(ROWS, seed=5, streams=False)
    old, energies = await models["actor"].logprobs_and_energies(batch)
    reference = await models["ref"].logprobs(batch)
    values = await models["critic"].values(batch) if algorithm == "ppo" else None
    batch = advantages_of(
        algorithm,
        dataclasses.replace(batch, old_logprobs=old, ref_logprobs=reference, values=values),
    )
    halves = [batch.select(np.arange(start, start + ROWS // 2)) for start in (0, ROWS // 2)]
    metrics = {}
    for role in [role for role in models if role != "ref"]:
        metrics |= await models[role].update(halves)
        await models[role].export_weights(
            str(folder / f"{algorithm}-{layout}-{role}"), dtype="float32"
        )
    after = await models["actor"].logprobs(batch)
    return {
        "old": old.values.tolist(),
        "energies": energies.values.tolist(),
        "reference": reference.values.tolist(),
        "metrics": metrics,
        "after": after.values.tolist(),
    }


def advantages_of(algorithm: str, batch: TrainBatch) -> TrainBatch:
    """From rewards that are the same everywhere; PPO adds the reference's KL to them through the
    values alone."""
    inputs = AdvantageInputs(
        rewards_B=torch.from_numpy(
            np.random.default_rng(3).standard_normal(ROWS).astype(np.float32)
        ),
        group_ids_B=torch.arange(ROWS) // PER_PROMPT,
        response_mask_BT=torch.from_numpy(batch.response_mask.padded(0)),
        values_BT=None if batch.values is None else torch.from_numpy(batch.values.padded(0)),
    )
    estimator = "gae" if algorithm == "ppo" else "grpo"
    estimated = ADVANTAGES[estimator](inputs, settings=AlgorithmConfig(adv_estimator=estimator))
    lengths = batch.response_mask.lengths
    returns = (
        None
        if estimated.returns_BT is None
        else Ragged.from_padded(estimated.returns_BT.float().numpy(), lengths)
    )
    return dataclasses.replace(
        batch,
        advantages=Ragged.from_padded(estimated.advantages_BT.float().numpy(), lengths),
        returns=returns,
    )


def all_steps(process: ProcessSettings, folder: str) -> dict[str, Result]:
    """Every layout of this number of processes, one after another."""
    results = {}
    for layout, (world, _) in LAYOUTS.items():
        for algorithm in ALGORITHMS if world == process.world_size else ():
            results[f"{algorithm}-{layout}"] = asyncio.run(
                one_step(algorithm, layout, Path(folder), process)
            )
            leave()
    leave_group()
    return results


def leave() -> None:
    """Other sizes come next in the same processes."""
    from rmrl.backends.megatron import groups

    groups.leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    shape = {
        "vocab_size": VOCABULARY + 1,
        "pad_token_id": 5,
    }  # a padding token that is part of the rows, as end tokens often are
    write_tiny(folder / "policy", "llama", seed=0, **shape)  # odd: padded under tensor parallelism
    write_tiny(folder / "reference", "llama", seed=1, **shape)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    found: dict[str, Result] = {}
    for world in sorted({world for world, _ in LAYOUTS.values()}):
        found |= run_group(all_steps, world, tmp_path_factory.mktemp(f"of{world}"), str(folder))
    return found


@pytest.fixture(scope="module")
def expected(folder: Path) -> Iterator[dict[str, Result]]:
    """One process under FSDP2."""
    alone = ProcessSettings(threads=1, timeout_s=60)
    yield {
        algorithm: asyncio.run(one_step(algorithm, "fsdp2-alone", folder, alone))
        for algorithm in ALGORITHMS
    }
    leave_group()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_step_is_the_same_under_every_layout(
    expected: dict[str, Result],
    results: dict[str, Result],
    folder: Path,
    algorithm: str,
    layout: str,
):
    want, got = expected[algorithm], results[f"{algorithm}-{layout}"]
    for name in ("old", "energies", "reference"):
        assert got[name] == pytest.approx(want[name], abs=2e-6), name
    assert got["after"] == pytest.approx(want["after"], abs=5e-5)
    assert set(got["metrics"]) == set(want["metrics"])
    for name, value in want["metrics"].items():
        assert got["metrics"][name] == pytest.approx(value, rel=2e-5, abs=2e-5), name
    for role in ("actor", *(["critic"] if algorithm == "ppo" else [])):
        one, other = (
            load_file(folder / f"{algorithm}-{which}-{role}") for which in ("fsdp2-alone", layout)
        )
        start = load_file(folder / "policy" / "model.safetensors")
        assert one.keys() == other.keys()
        for name, weight in one.items():
            torch.testing.assert_close(
                other[name],
                weight,
                atol=1e-5,
                rtol=0,
                msg=lambda text, at=f"{role} {name}": f"{at}: {text}",
            )
        moved = max(
            (one[name] - start[name]).abs().max().item() for name in one.keys() & start.keys()
        )
        assert moved > 1e-3, "the step moved nothing, so nothing was compared"


def test_the_loss_is_clipped_and_the_reference_is_another_model(expected: dict[str, Result]):
    """Otherwise the comparison would leave these terms out."""
    for algorithm in ALGORITHMS:
        result = expected[algorithm]
        assert np.abs(np.subtract(result["old"], result["reference"])).max() > 0.1
        assert cast("float", result["metrics"]["policy/clip_fraction"]) > 0
        assert result["metrics"]["policy/grad_norm"] > 0.5  # above the clip
