"""Devices of a job whose driver runs on a machine without GPUs."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ray

from rmrl.cluster import device_survey
from rmrl.cluster.device_survey import find_devices
from rmrl.cluster.devices import Machine, joined_address
from rmrl.cluster.gpu import Gpu
from rmrl.errors import ConfigError, InfrastructureError

GIB = 2**30


class Remote:
    """A task of a cluster that is not there: it runs here, on the node of its strategy."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.settings: dict[str, Any] = {}

    def options(self, **settings: Any) -> Remote:
        self.settings = settings
        return self

    def remote(self, *args: Any) -> Any:
        assert self.settings["num_cpus"] == 0  # a cluster whose CPUs are in use answers as well
        assert not self.settings["scheduling_strategy"].soft
        return self.function(*args)


def cluster(monkeypatch: pytest.MonkeyPatch, *gpus: int) -> None:
    nodes: list[dict[str, Any]] = []
    for number, count in enumerate(gpus):
        resources = {"CPU": 8.0}
        if count:
            resources["GPU"] = float(count)
        address = f"10.0.0.{number}"
        nodes.append(
            {
                "Alive": count >= 0,
                "NodeID": f"{number:056x}",
                "NodeManagerAddress": address,
                "Resources": resources,
            }
        )
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray, "remote", Remote)
    monkeypatch.setattr(ray, "get", lambda results, timeout: results)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.0:6379")


def machine(*free_gib: int) -> Machine:
    gpus = tuple(Gpu(total_bytes=80 * GIB, free_bytes=free * GIB) for free in free_gib)
    return Machine(gpus=gpus, host_free_bytes=100 * GIB)


def test_a_head_without_gpus_trains_on_those_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster(monkeypatch, 0, 8, -1)
    monkeypatch.setattr(device_survey, "_this_machine", lambda: machine(*[78] * 8))
    devices = find_devices("auto", {})
    assert devices.kind == "cuda"
    assert devices.gpus_per_node(1) == 8
    assert devices.free_bytes(8) == 78 * GIB
    assert devices.host_free_bytes() == 100 * GIB


def test_a_cluster_without_gpus_is_a_sentence_with_its_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster(monkeypatch, 0, 0)
    match = (
        r"trainer\.device=cuda, and the Ray cluster at 10\.0\.0\.0:6379 has no GPU .*"
        r"\(Ray counts no GPU on 10\.0\.0\.0; Ray counts no GPU on 10\.0\.0\.1\): .*--num-gpus="
    )
    with pytest.raises(ConfigError, match=match):
        find_devices("cuda", {})
    assert find_devices("auto", {}).kind == "cpu"


def test_gpus_in_use_by_others_are_taken_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_survey, "_this_machine", lambda: machine(5, 78, 20, 77))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpus = device_survey.machine_of_node(2).gpus
    assert [gpu.free_bytes // GIB for gpu in gpus] == [78, 77]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ  # Ray's own, not the user's


def test_a_cluster_that_gives_no_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, 8)
    monkeypatch.setattr(device_survey, "_this_machine", machine)

    def late(results: object, timeout: float) -> None:
        raise ray.exceptions.GetTimeoutError("too late")

    monkeypatch.setattr(ray, "get", late)
    with pytest.raises(InfrastructureError, match=r"did not report .* GPUs \(GetTimeoutError"):
        find_devices("auto", {})


def test_the_cluster_that_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert joined_address({}) is None
    assert joined_address({"address": "local"}) is None
    assert joined_address({"address": "auto"}) == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert joined_address({}) == "10.0.0.1:6379"
    assert joined_address({"address": "local"}) is None
