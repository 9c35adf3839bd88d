"""Rows that several processes share: losses, metrics and gradients as in one process that has them
alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.micro_batches import split_by_length
from rmrl.backends.process_group import leave_group
from rmrl.backends.row_assignment import row_assignment
from rmrl.config.schema import FSDPConfig, OptimConfig
from rmrl.types import Ragged, TrainBatch
from tests.backends.policies import (
    ONE_PROCESS,
    VOCABULARY,
    make_batch,
    make_critic_batch,
    make_critic_settings,
    make_settings,
    run_group,
)

Result = dict[str, Any]
HEADS = {"grouped": (8, 2), "uneven": (12, 3), "whole": (4, 4)}
"""Checkpoint -> heads for queries, for keys and values. Four processes repeat 2 keys
twice, and 3 keys four times."""
CASES: dict[str, dict[str, Any]] = {
    "policy": {},
    "policy, keys of no common divisor": {"of": "uneven"},
    "policy, as many keys as queries": {"of": "whole"},
    "policy without checkpointing": {"model": {"enable_gradient_checkpointing": False}},
    "policy, several micro-batches": {"section": {"ppo_max_token_len_per_gpu": 16}},
    "policy, LoRA": {"model": {"lora_rank": 4}},
    "policy, packed": {"model": {"use_remove_padding": True, "attn_implementation": "varlen"}},
    "policy, strategy fsdp": {"section": {"strategy": "fsdp"}},
    "critic": {"role": "critic"},
    "critic, LoRA": {"role": "critic", "model": {"lora_rank": 4}},
    "reference": {"role": "ref"},
}
PAIRS = {"ulysses_sequence_parallel_size": 2}
LAYOUTS: dict[str, tuple[int, dict[str, int], tuple[str, ...]]] = {
    "two share": (2, PAIRS, tuple(CASES)),
    "four share": (
        4,
        {"ulysses_sequence_parallel_size": 4},
        ("policy", "policy, keys of no common divisor", "policy, LoRA", "critic", "reference"),
    ),
    "two pairs": (4, PAIRS, ("policy", "policy, several micro-batches", "critic, LoRA")),
    "two pairs, replicas": (4, {**PAIRS, "fsdp_size": 2}, ("policy", "policy, strategy fsdp")),
}
"""Name -> processes, fsdp_config, cases."""
BATCHES = ("ragged", "shorter than the group")


def settings_of(case: str, folder: str, **fsdp: Any) -> TrainSettings:
    """float32, and an epsilon in AdamW by which rounding stays as small in the weights."""
    entries = CASES[case]
    role = entries.get("role", "actor")
    optim = OptimConfig(lr=1e-3, eps=1e-2)
    section = {"grad_clip": 1e9, "optim": optim, **entries.get("section", {})}
    config = FSDPConfig(param_dtype=None, **fsdp)
    path = Path(folder) / entries.get("of", "grouped")
    model = entries.get("model", {})
    if role == "critic":
        return make_critic_settings(path, model=model, fsdp_config=config, **section)
    return make_settings(path, role=role, fsdp=config, model=model, **section)


def batch_of(name: str, role: str) -> TrainBatch:
    """Seven rows, or one with three tokens, where a second pair has none at all."""
    make = make_critic_batch if role == "critic" else make_batch
    if name == "ragged":
        return make(7, seed=7)
    row = make(1, seed=1)
    streams = {"tokens": Ragged.of([row.tokens.values[:3]], np.int64)}
    for stream in TrainBatch.STREAMS[1:]:
        if getattr(row, stream) is not None:
            streams[stream] = Ragged.of([getattr(row, stream).values[:2]], np.float32)
    return TrainBatch(**streams)


def run_case(case: str, folder: str, process: ProcessSettings, **fsdp: Any) -> Result:
    """What the engine answers and what an update gives, for each batch, and the weights after
    them."""
    settings = settings_of(case, folder, **fsdp)
    engine = FSDPEngine(settings=settings, process=process)
    assignment = row_assignment(settings.trained, process.world_size, section=settings.section)
    result: Result = {}
    for name in BATCHES:
        batch = batch_of(name, settings.role)
        if settings.role == "critic":
            answers = [engine.values(batch)]
        else:
            answers = list(engine.logprobs_and_energies(batch))
        result[f"answers, {name}"] = [answer.values.tolist() for answer in answers]
        if settings.role != "ref":
            parts = split_by_length(batch.tokens.lengths, len(assignment.output_ranks))
            result[f"gradients, {name}"] = noted_gradients(engine)
            own = batch.select(parts[assignment.share_of[process.rank]])
            result[f"metrics, {name}"] = engine.update([own])
    result["weights"] = {name: w.flatten().tolist() for name, w in engine.weights("float32")}
    return result


def noted_gradients(engine: FSDPEngine) -> dict[str, list[float]]:
    """Whole gradients by the parameters' names, once the next update is made, under fsdp2."""
    noted: dict[str, list[float]] = {}
    part: Any = engine._part  # pyright: ignore[reportPrivateUsage]

    def step(lr: float) -> float:
        if part._settings.trained.strategy == "fsdp2":
            for name, parameter in part.model.named_parameters():
                gradient = parameter.grad
                if isinstance(gradient, DTensor):
                    gradient = gradient.full_tensor()
                if gradient is not None:
                    noted[name] = gradient.flatten().tolist()
        return type(part).step(part, lr)

    part.step = step
    return noted


def job(process: ProcessSettings, folder: str) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for layout, (processes, fsdp, cases) in LAYOUTS.items():
        for case in cases if processes == process.world_size else ():
            results[f"{layout}: {case}"] = run_case(case, folder, process, **fsdp)
    leave_group()
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Small Llamas with untied heads."""
    folder = tmp_path_factory.mktemp("policies")
    for name, (queries, keys) in HEADS.items():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=queries,
            num_key_value_heads=keys,
            head_dim=8,
            tie_word_embeddings=False,
            initializer_range=0.1,
        )
        LlamaForCausalLM(config).save_pretrained(folder / name)
    return str(folder)


@pytest.fixture(scope="module")
def alone(folder: str) -> dict[str, Result]:
    """One process, whose rows are padded."""
    results = {case: run_case(case, folder, ONE_PROCESS) for case in CASES}
    leave_group()
    return results


@pytest.fixture(scope="module")
def shared(folder: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for processes in {processes for processes, _, _ in LAYOUTS.values()}:
        results |= run_group(job, processes, tmp_path_factory.mktemp("group"), folder)
    return results


@pytest.mark.parametrize(
    ("layout", "case"), [(name, case) for name, (_, _, cases) in LAYOUTS.items() for case in cases]
)
def test_processes_that_share_rows_compute_as_one(
    alone: dict[str, Result], shared: dict[str, Result], layout: str, case: str
):
    got, expected = shared[f"{layout}: {case}"], alone[case]
    assert got.keys() == expected.keys()
    for what, numbers in expected.items():
        if what.startswith(("gradients", "weights")):
            assert got[what].keys() == numbers.keys()
            for name, values in numbers.items():
                difference = np.abs(np.subtract(got[what][name], values)).max()
                assert difference <= 1e-6, (what, name)
        elif what.startswith("metrics"):
            # the norm of the gradient is a sum of squares
            near = {name: pytest.approx(v, abs=1e-6, rel=3e-6) for name, v in numbers.items()}
            assert got[what] == near
        else:
            np.testing.assert_allclose(got[what], numbers, atol=2e-6, rtol=0, err_msg=what)
