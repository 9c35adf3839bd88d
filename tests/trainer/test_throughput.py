"""Tokens per second and device, and model FLOPs utilization."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmrl.config.schema import Config
from rmrl.models.checkpoint_inspect import parameter_count
from rmrl.trainer.throughput import Throughput, peak_flops

TIMES = {"time/generate_s": 20.0, "time/update_s": 50.0}


def test_a_step_by_hand() -> None:
    speed = Throughput(generate_devices=4, update_devices=8, update_operations=6 * 7e9)
    metrics = speed.metrics(TIMES, generated=800_000, trained=4_000_000, device="NVIDIA H200")
    assert metrics["perf/generate/tokens_per_s_per_device"] == 10_000  # 800,000 / 20 / 4
    assert metrics["perf/update/tokens_per_s_per_device"] == 10_000  # 4,000,000 / 50 / 8
    # 10,000 tokens x 42e9 operations = 0.42e15 of 0.989e15 a second
    assert metrics["perf/update/mfu"] == pytest.approx(0.42 / 0.989)


def test_what_is_not_defined_is_left_out() -> None:
    speed = Throughput(generate_devices=1, update_devices=1, update_operations=None)
    assert speed.metrics({}, generated=10, trained=10, device="") == {}
    assert speed.metrics(TIMES, generated=0, trained=0, device="NVIDIA H200") == {}
    assert "perf/update/mfu" not in speed.metrics(
        TIMES, generated=1, trained=1, device="NVIDIA H200"
    )
    known = Throughput(generate_devices=1, update_devices=1, update_operations=6.0)
    for device in ("", "NVIDIA H20", "NVIDIA GeForce RTX 4090"):
        assert "perf/update/mfu" not in known.metrics(TIMES, generated=1, trained=1, device=device)


def test_the_peak_of_a_device_by_its_name() -> None:
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_flops("NVIDIA A100 80GB PCIe") == 312e12
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA H200 NVL") == 835e12
    assert peak_flops("NVIDIA H200") == 989e12
    assert peak_flops("NVIDIA L40S") == 362e12
    assert peak_flops("NVIDIA L40") is None  # another device than the L4 and the L40S
    assert peak_flops("NVIDIA H20") is None
    assert peak_flops("NVIDIA H200 MIG 1g.18gb") is None


def test_operations_of_a_token(tiny_llama: Path, tmp_path: Path) -> None:
    config = Config()
    config.actor_rollout_ref.model.path = str(tiny_llama)
    config.trainer.n_gpus_per_node = 2
    speed = Throughput.of(config, generate_devices=2)
    parameters = parameter_count(tiny_llama)
    assert (speed.update_operations, speed.update_devices) == (6 * parameters, 2)
    config.actor_rollout_ref.model.lora_rank = 8
    assert Throughput.of(config, generate_devices=2).update_operations == 4 * parameters
    for file in tiny_llama.iterdir():
        (tmp_path / file.name).symlink_to(file)
    shape = json.loads((tiny_llama / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(shape | {"num_experts": 4}), encoding="utf-8")
    config.actor_rollout_ref.model.path = str(tmp_path)
    assert Throughput.of(config, generate_devices=2).update_operations is None
    config.actor_rollout_ref.model.path = "toy"
    assert Throughput.of(config, generate_devices=2).update_operations is None
