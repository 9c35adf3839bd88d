"""strategy=fsdp and strategy=fsdp2 give the same numbers, in one and in two processes, however the
weights got there.

All runs of two processes share one start-up; what they must equal is computed by one process under
fsdp2, which test_fsdp_engine.py compares with plain torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from transformers import Qwen3Config, Qwen3ForCausalLM

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.process_group import all_sum, leave_group
from rmrl.config.schema import CriticConfig, FSDPConfig, ModelConfig, OptimConfig
from rmrl.errors import ConfigError
from rmrl.types import Ragged, TrainBatch
from tests.backends.policies import (
    VOCABULARY,
    make_batch,
    make_settings,
    run_group,
    share,
    write_policy,
)

ONE_PROCESS = ProcessSettings(threads=1, timeout_s=60)
STRATEGIES = ("fsdp2", "fsdp")
STEPS = 3
Result = dict[str, Any]

CASES: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"policy": "qwen3"},
    "lora": {"lora_rank": 4},
    "critic": {"role": "critic"},
    "offload": {
        "reshard_after_forward": False,
        "offload_policy": True,
        "param_offload": True,
        "optimizer_offload": True,
    },
    "replicas": {"fsdp_size": 1},
    "bf16": {"param_dtype": "bfloat16"},
}
RESUMED = ("tied", "lora", "critic", "replicas")


def write_qwen3(folder: Path) -> Path:
    """Another family: no tied embeddings, norms of queries and keys, rotary frequencies that no
    checkpoint holds scaled by the config."""
    torch.manual_seed(1)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    }
    shape["max_position_embeddings"] = 32
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 16,
    }
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        num_hidden_layers=3,
        tie_word_embeddings=False,
        initializer_range=0.1,
        rope_parameters=rope,
        **shape,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def settings_of(case: str, strategy: str, folder: str) -> TrainSettings:
    entries = {"param_dtype": None, **CASES[case]}
    path = Path(folder) / entries.pop("policy", "llama")
    lora_rank, role = entries.pop("lora_rank", 0), entries.pop("role", "actor")
    fsdp = FSDPConfig(**entries)
    settings = make_settings(path, fsdp=fsdp, strategy=strategy, ppo_max_token_len_per_gpu=60)
    model = ModelConfig(path=str(path), lora_rank=lora_rank)
    if role == "actor":
        return dataclasses.replace(settings, model=model)
    critic = CriticConfig(
        strategy=strategy,
        fsdp_config=fsdp,
        ppo_epochs=1,
        ppo_mini_batch_size=8,
        ppo_max_token_len_per_gpu=60,
        optim=OptimConfig(lr=2e-3),
    )
    return dataclasses.replace(settings, model=model, role="critic", critic=critic)


def batch_of(role: str, rows: int, *, seed: int) -> TrainBatch:
    batch = make_batch(rows, seed=seed)
    if role != "critic":
        return batch
    rng = np.random.default_rng(seed)
    streams = {
        name: [rng.standard_normal(n) for n in batch.response_mask.lengths]
        for name in ("returns", "values")
    }
    return dataclasses.replace(
        batch, **{name: Ragged.of(rows, np.float32) for name, rows in streams.items()}
    )


def run_case(
    case: str, strategy: str, folder: str, process: ProcessSettings, load: str | None = None
) -> Result:
    """Answers before and after, metrics of every update, all weights as they end up; saved before
    the last update, which is made once more after loading `load`, what the other strategy saved."""
    settings = settings_of(case, strategy, folder)
    engine = FSDPEngine(settings=settings, process=process)
    role, answer = settings.role, engine.values if settings.role == "critic" else engine.logprobs
    asked = batch_of(role, 5, seed=99)
    before = answer(asked).values.tolist()
    metrics = [
        engine.update([share(batch_of(role, 7, seed=step), process)]) for step in range(STEPS - 1)
    ]
    if case in RESUMED:
        engine.save(saved(folder, case, strategy, process.world_size))
    metrics.append(engine.update([share(batch_of(role, 7, seed=STEPS - 1), process)]))
    weights = {name: tensor.flatten().tolist() for name, tensor in engine.weights("float32")}
    manifest = [
        [name, str(dtype), list(shape)] for name, dtype, shape in engine.manifest("float32")
    ]
    result: Result = {
        "before": before,
        "metrics": metrics,
        "after": answer(asked).values.tolist(),
        "weights": weights,
        "manifest": manifest,
        "split": split_weights(engine),
    }
    if load is not None:
        engine.load(load)
        result["resumed"] = engine.update([share(batch_of(role, 7, seed=STEPS - 1), process)])
    return result


def split_weights(engine: FSDPEngine) -> Result:
    """The weights put together from what each process hands out, and the names in parts."""
    parts = engine.parts()
    joined: dict[str, list[float]] = {}
    for name, tensor in engine.local_weights("float32"):
        joined[name] = tensor.flatten().tolist()
        if name not in parts:
            continue
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, joined[name])
        grid = np.array(everyone).reshape(*parts[name].grid, -1)
        for axis, cut in enumerate(parts[name].cuts):
            assert cut in (None, 0)
            if cut is None:
                grid = grid.take([0], axis)
        joined[name] = grid.flatten().tolist()
    return {"names": list(parts), "joined": joined}


def saved(folder: str, case: str, strategy: str, processes: int) -> str:
    return f"{folder}/{case}-{strategy}-{processes}"


def job(process: ProcessSettings, folder: str) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for case in CASES:
        for strategy, other in (STRATEGIES, STRATEGIES[::-1]):
            load = saved(folder, case, other, 1) if case in RESUMED else None
            results[f"{case}-{strategy}"] = run_case(case, strategy, folder, process, load)
    leave_group()
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("policies")
    write_policy(folder / "llama")
    write_qwen3(folder / "qwen3")
    return str(folder)


@pytest.fixture(scope="module")
def one(folder: str) -> Iterator[dict[str, Result]]:
    """One process, which loads as transformers does."""
    yield {
        f"{case}-{strategy}": run_case(case, strategy, folder, ONE_PROCESS)
        for case in CASES
        for strategy in STRATEGIES
    }
    leave_group()


@pytest.fixture(scope="module")
def two(
    folder: str, one: dict[str, Result], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Result]:
    return run_group(job, 2, tmp_path_factory.mktemp("two"), folder)


def gradient_norms(result: Result) -> list[float]:
    return [
        value
        for metrics in result["metrics"]
        for name, value in metrics.items()
        if name.endswith("/grad_norm")
    ]


def assert_same(
    got: Result, expected: Result, *, logprobs: float, weights: float, norms: float
) -> None:
    """Within absolute differences of log-probabilities (or values) and weights, and a relative one
    of gradient norms."""
    assert got["before"] == pytest.approx(expected["before"], abs=1e-6)
    assert gradient_norms(got) == pytest.approx(gradient_norms(expected), rel=norms)
    assert got["after"] == pytest.approx(expected["after"], abs=logprobs)
    assert got["manifest"] == expected["manifest"]
    assert list(got["weights"]) == [name for name, _, _ in got["manifest"]]
    for name, values in expected["weights"].items():
        assert np.abs(np.subtract(got["weights"][name], values)).max() <= weights, name


@pytest.mark.parametrize("case", CASES)
def test_one_process_is_bit_equal_under_both(one: dict[str, Result], case: str):
    fsdp, fsdp2 = ({**one[f"{case}-{each}"], "split": None} for each in STRATEGIES)
    assert fsdp == fsdp2
    assert (
        np.abs(np.subtract(one[f"{case}-fsdp"]["before"], one[f"{case}-fsdp"]["after"])).max()
        > 1e-3
    )  # and it learned


@pytest.mark.parametrize("case", CASES)
def test_two_processes_are_the_same_under_both(two: dict[str, Result], case: str):
    # Weights that differ in their last bits may be rounded to two neighbours in bfloat16.
    logprobs = 2**-5 if case == "bf16" else 1e-5
    assert_same(
        two[f"{case}-fsdp"], two[f"{case}-fsdp2"], logprobs=logprobs, weights=5e-6, norms=5e-6
    )


@pytest.mark.parametrize("case", CASES)
def test_processes_hand_out_the_parts_that_they_hold(two: dict[str, Result], case: str):
    """For weight_transport=nccl_m2n. Adapters are merged into whole tensors."""
    for strategy in STRATEGIES:
        split = two[f"{case}-{strategy}"]["split"]
        assert split["joined"] == two[f"{case}-{strategy}"]["weights"]
    assert bool(two[f"{case}-fsdp2"]["split"]["names"]) == (case != "lora")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("case", CASES)
def test_two_processes_are_the_same_as_one(
    one: dict[str, Result], two: dict[str, Result], case: str, strategy: str
):
    """`before` shows that weights sent by the first process are those that each would have loaded.
    Sums in bfloat16 depend on the cut."""
    loose = (
        {"logprobs": 0.1, "weights": 2e-2, "norms": 2e-2}
        if case == "bf16"
        else {"logprobs": 1e-4, "weights": 1e-4, "norms": 1e-5}
    )
    assert_same(two[f"{case}-{strategy}"], one[f"{case}-fsdp2"], **loose)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("case", RESUMED)
def test_two_processes_resume_what_one_saved_under_the_other_strategy(
    two: dict[str, Result], case: str, strategy: str
):
    result = two[f"{case}-{strategy}"]
    again = {"metrics": [result["resumed"]]}
    assert gradient_norms(again) == pytest.approx(gradient_norms(result)[-1:], rel=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("case", RESUMED)
def test_one_process_resumes_what_two_saved_under_the_other_strategy(
    two: dict[str, Result], one: dict[str, Result], folder: str, case: str, strategy: str
):
    other = STRATEGIES[1 - STRATEGIES.index(strategy)]
    settings = settings_of(case, strategy, folder)
    engine = FSDPEngine(settings=settings, process=ONE_PROCESS)
    engine.load(saved(folder, case, other, 2))
    engine.update([batch_of(settings.role, 7, seed=STEPS - 1)])
    for name, tensor in engine.weights("float32"):
        assert (
            np.abs(
                np.subtract(tensor.flatten().tolist(), one[f"{case}-fsdp2"]["weights"][name])
            ).max()
            <= 1e-4
        ), name
    assert two  # which saved it


def failing_job(process: ProcessSettings, folder: str) -> str:
    try:
        FSDPEngine(settings=make_settings(Path(folder) / "nowhere"), process=process)
    except ConfigError as error:
        return str(error)
    return "nothing was raised"


def both_failed_job(process: ProcessSettings, folder: str) -> list[int]:
    said = failing_job(process, folder)
    counts = all_sum([float("there is no such folder" in said)])
    leave_group()
    return [int(count) for count in counts]


def test_what_the_first_process_cannot_load_is_said_by_all(folder: str, tmp_path: Path):
    assert run_group(both_failed_job, 2, tmp_path, folder) == [2]


def test_a_model_of_two_dtypes_needs_fsdp2(folder: str):
    settings = settings_of("lora", "fsdp", folder)
    settings.actor.fsdp_config.model_dtype = "bfloat16"
    with pytest.raises(
        ConfigError,
        match=(
            r"this model's are bfloat16 and float32: set strategy=fsdp2, or"
            r" fsdp_config\.model_dtype=float32"
        ),
    ):
        FSDPEngine(settings=settings, process=ONE_PROCESS)
    leave_group()
