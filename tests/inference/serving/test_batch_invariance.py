"""A GPU without batch-invariant kernels is refused in the engine's process, in a sentence."""

from __future__ import annotations

import pytest
import torch

from rmrl.errors import EngineLoadError
from rmrl.inference.environment import BATCH_INVARIANT, engine_environment
from rmrl.inference.vllm.batch_invariance import check_device, refuse_capability


def test_the_key_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BATCH_INVARIANT, "1")
    assert engine_environment(device="cuda", threads=1)["VLLM_BATCH_INVARIANT"] == "0"
    assert (
        engine_environment(device="cuda", threads=1, batch_invariant=True)["VLLM_BATCH_INVARIANT"]
        == "1"
    )


def test_an_old_gpu_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        EngineLoadError, match=r"compute capability 8\.0 or higher, and Tesla T4 has 7\.5"
    ):
        refuse_capability((7, 5), "Tesla T4")


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
def test_newer_ones_are_not(capability: tuple[int, int]) -> None:
    refuse_capability(capability, "GPU")


def test_nothing_is_looked_at_unless_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BATCH_INVARIANT, "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("CUDA was looked at"))
    check_device()


def test_a_process_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BATCH_INVARIANT, "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineLoadError, match="needs a CUDA device, and this process has none"):
        check_device()
