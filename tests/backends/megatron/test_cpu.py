"""The CPU adaptation: what it does inside its scope, and that nothing is left of it outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rmrl.backends.megatron import core, cpu
from rmrl.backends.megatron.cpu import CALLS, adapted

without_cuda = pytest.mark.skipif(
    torch.cuda.is_available(), reason="where there is CUDA, nothing is adapted"
)

ASK_FOR_CUDA: list[Callable[[], Any]] = [
    torch.cuda.current_device,
    lambda: torch.empty(1, device="cuda"),
    lambda: torch.empty(1, device=torch.device("cuda", 0)),
    lambda: torch.zeros(1).cuda(),
    lambda: torch.zeros(1).to("cuda"),
    torch.cuda.synchronize,
    torch.cuda.current_stream,
    torch.cuda.Stream,
]


def refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (
        AssertionError,
        RuntimeError,
    ):  # "Torch not compiled with CUDA enabled", and others of that kind
        return True
    return False


@without_cuda
@pytest.mark.parametrize("call", ASK_FOR_CUDA)
def test_cuda_is_the_cpu_inside_and_absent_outside(call: Callable[[], Any]) -> None:
    assert refused(call)
    with adapted():
        assert not refused(call)
    assert refused(call)


@without_cuda
def test_tensors_inside() -> None:
    tensor = torch.ones(2)
    with adapted():
        assert torch.zeros(2, device="cuda:1").device.type == "cpu"
        assert tensor.cuda() is tensor
        assert tensor.to("cuda", torch.float64).dtype == torch.float64
        assert not torch.zeros(2, pin_memory=True).is_pinned()
        assert tensor.type() == "torch.cuda.FloatTensor"
        assert tensor.type(torch.float64).dtype == torch.float64
        assert torch.empty(1, device=torch.cuda.current_device()).device.type == "cpu"
    assert tensor.type() == "torch.FloatTensor"


@without_cuda
def test_the_cuda_generator_is_the_cpu_generator() -> None:
    with torch.random.fork_rng(devices=[]), adapted():
        torch.cuda.manual_seed(5)
        first, state = torch.rand(1), torch.cuda.get_rng_state()
        second = torch.rand(1)
        torch.cuda.set_rng_state(state)
        assert torch.rand(1) == second
        torch.manual_seed(5)
        assert torch.rand(1) == first


@without_cuda
def test_streams_and_events_are_synchronous_and_stay_classes() -> None:
    assert isinstance(torch.cuda.Stream, type)
    assert not isinstance(object(), torch.cuda.Event)
    with adapted():
        stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.current_stream())
            stream.record_event(event)
        assert event.query()
        assert stream.record_event().elapsed_time(event) == 0.0
        torch.cuda.nvtx.range_push("layer")
        torch.cuda.nvtx.range_pop()


@without_cuda
def test_other_threads_see_nothing_of_it() -> None:
    seen: list[bool] = []
    with adapted():
        other = threading.Thread(target=lambda: seen.extend(refused(call) for call in ASK_FOR_CUDA))
        other.start()
        other.join(timeout=300)
    assert seen == [True] * len(ASK_FOR_CUDA)


@without_cuda
def test_scopes_nest_and_end_with_an_error() -> None:
    with adapted():
        with adapted():
            pass
        assert not refused(torch.cuda.current_device)
    with pytest.raises(KeyError), adapted():
        raise KeyError
    assert refused(torch.cuda.current_device)
    assert refused(ASK_FOR_CUDA[1])


def test_torch_compile_is_the_real_one_after_the_import() -> None:
    assert core.GPTModel is not None
    assert torch.compile.__module__ == "torch"


@without_cuda
def test_a_second_install_changes_nothing() -> None:
    before = {name: getattr(torch.cuda, name) for name in [*CALLS, "Stream", "Event"]}
    cpu.install()
    assert {name: getattr(torch.cuda, name) for name in before} == before


def test_without_the_adaptation_first_the_import_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(cpu._process, "installed", False)
    with pytest.raises(RuntimeError, match=r"import it from there"):
        cpu.install()


def test_where_there_is_cuda_nothing_is_adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: getattr(torch.cuda, name) for name in [*CALLS, "Stream", "Event"]}
    monkeypatch.setattr(cpu._process, "installed", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cpu.install()  # would raise: megatron-core is imported already
    assert not cpu._process.installed
    assert {name: getattr(torch.cuda, name) for name in before} == before
    with adapted():
        assert torch.zeros(1).type() == "torch.FloatTensor"
