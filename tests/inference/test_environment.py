"""Variables of an engine's process."""

from __future__ import annotations

import pytest
from packaging.version import Version

from rmrl.inference import environment
from rmrl.inference.environment import engine_environment, exact_pinned_possible
from rmrl.inference.settings import Device
from rmrl.inference.vllm import compat

SETTINGS = "pinned_max_round_threshold_mb:16,pinned_max_cached_size_mb:16"


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def test_pinned_memory_is_exact_on_gpus_where_it_must_be() -> None:
    variables = engine_environment(device="cuda", threads=1, exact_pinned=True)
    assert variables["PYTORCH_ALLOC_CONF"] == SETTINGS
    for device, exact in (("cuda", False), ("cpu", True)):
        variables = engine_environment(device=device, threads=1, exact_pinned=exact)
        assert "PYTORCH_ALLOC_CONF" not in variables


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_allocator_settings_of_the_user_are_kept(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:512")
    variables = engine_environment(device="cuda", threads=1, exact_pinned=True)
    assert variables[name] == f"max_split_size_mb:512,{SETTINGS}"
    monkeypatch.setenv(name, "pinned_max_cached_size_mb:64")
    variables = engine_environment(device="cuda", threads=1, exact_pinned=True)
    assert variables[name] == "pinned_max_cached_size_mb:64"


@pytest.mark.parametrize(
    ("version", "possible"),
    [("2.12.1", False), ("2.13.0+cpu", True), ("2.13.0a0+git12", True), ("3.0.0", True)],
)
def test_older_versions_of_torch_do_not_get_settings_that_they_refuse(
    version: str, possible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.importlib.metadata, "version", lambda name: version)
    assert exact_pinned_possible() == possible
    variables = engine_environment(device="cuda", threads=1, exact_pinned=True)
    assert ("PYTORCH_ALLOC_CONF" in variables) == possible


@pytest.mark.parametrize(
    ("version", "device", "unfiltered", "runner"),
    [
        ("0.32.0", "cuda", True, None),
        ("0.33.0", "cuda", True, None),
        ("0.32.0", "cuda", False, "0"),
        ("0.31.0", "cuda", True, "0"),
        ("0.32.0", "cpu", True, "0"),
    ],
)
def test_vllm_chooses_its_runner_where_seeds_are_free_and_nothing_is_filtered(
    version: str,
    device: Device,
    unfiltered: bool,
    runner: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None: the variable is not set, and vLLM takes its second model runner where it can."""
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setattr(compat, "installed_version", lambda: Version(version))
    variables = engine_environment(device=device, threads=1, second_runner=unfiltered)
    assert variables.get("VLLM_USE_V2_MODEL_RUNNER") == runner
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    variables = engine_environment(device=device, threads=1, second_runner=unfiltered)
    assert variables["VLLM_USE_V2_MODEL_RUNNER"] == "0"
