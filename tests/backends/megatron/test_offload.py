"""Storages emptied and filled again, with every view of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron.offload import (
    gradients,
    offloaders,
    optimizer_offloader,
    parameters,
)
from rmrl.backends.offload import Offloader, storages
from rmrl.config.schema import MegatronConfig
from tests.backends.megatron import by_hand
from tests.backends.megatron.tiny import write_tiny

CPU = torch.device("cpu")
ALONE = ProcessSettings(threads=1, timeout_s=60)


def test_views_show_the_same_bytes_afterwards():
    buffer = torch.arange(10.0)
    views = [buffer[:4].view(2, 2), buffer[4:]]
    other = torch.arange(5, dtype=torch.int64)
    # 40 bytes and 40 bytes in pieces of 16: pieces hold parts of both.
    offloader = Offloader(lambda: [*views, other], CPU, piece_bytes=16)
    for _ in range(2):
        offloader.offload()
        assert buffer.untyped_storage().nbytes() == 0
        assert other.untyped_storage().nbytes() == 0
        offloader.offload()  # nothing is left to do
        offloader.onload()
        assert buffer.tolist() == list(range(10))
        assert views[0].tolist() == [[0, 1], [2, 3]]
        assert views[1].data_ptr() == buffer.data_ptr() + 16
        assert other.tolist() == list(range(5))
        offloader.onload()
    assert len(offloader._pieces) == 5  # 80 bytes, taken once


def test_what_is_not_kept_comes_back_as_zeros():
    buffer = torch.ones(8)
    view = buffer[2:4]
    offloader = Offloader(lambda: [buffer], CPU, keep=False)
    offloader.offload()
    assert buffer.untyped_storage().nbytes() == 0
    offloader.onload()
    assert view.tolist() == [0, 0]
    assert offloader._pieces == []


def test_tensors_are_asked_for_at_every_offload():
    """An optimizer has its averages after the first step only."""
    state = {"weight": torch.ones(3)}
    offloader = Offloader(lambda: state.values(), CPU)
    offloader.offload()
    offloader.onload()
    state["average"] = torch.full((5,), 2.0)
    offloader.offload()
    assert [tensor.untyped_storage().nbytes() for tensor in state.values()] == [0, 0]
    offloader.onload()
    assert [tensor.sum().item() for tensor in state.values()] == [3, 10]


def test_storages_are_counted_once_and_only_on_the_device():
    buffer = torch.zeros(4)
    assert len(storages([buffer, buffer[1:], torch.zeros(2), torch.zeros(0)], CPU)) == 2
    assert storages([buffer], torch.device("meta")) == []


# --- of a model


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Parts of one process that share its groups."""
    from rmrl.backends.megatron import groups
    from rmrl.backends.megatron.part import MegatronPart
    from rmrl.backends.process_group import leave_group

    folder = write_tiny(tmp_path_factory.mktemp("models"))
    yield lambda **megatron: MegatronPart(by_hand.make_settings(folder, **megatron), ALONE)
    groups.leave()
    leave_group()


def held(part: Any) -> dict[str, int]:
    """Bytes of the storages behind parameters, gradients, and what else the optimizer has."""
    own = {
        storage.data_ptr()
        for storage in storages([*parameters(part.model), *gradients(part.model)], CPU)
    }
    others = [
        tensor
        for tensor in part._optimizer.tensors()
        if tensor.untyped_storage().data_ptr() not in own
    ]
    return {
        name: sum(storage.nbytes() for storage in storages(tensors, CPU))
        for name, tensors in (
            ("param", parameters(part.model)),
            ("grad", gradients(part.model)),
            ("optimizer", others),
        )
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("distributed", [True, False])
def test_training_goes_on_with_the_same_bits(
    build: Callable[..., Any], dtype: str, distributed: bool
):
    part, other = (build(dtype=dtype, use_distributed_optimizer=distributed) for _ in range(2))
    whole = MegatronConfig(param_offload=True, grad_offload=True, optimizer_offload=True)
    moving = [
        optimizer_offloader(part.model, part._optimizer),
        *offloaders(part.model, whole),
    ]
    for step in range(3):
        got = by_hand.train_step(part, step, ALONE)
        assert got == by_hand.train_step(other, step, ALONE)
        for offloader in moving:
            offloader.offload()
        assert held(part) == {"param": 0, "grad": 0, "optimizer": 0}
        for offloader in reversed(moving):
            offloader.onload()
        assert held(part) == held(other)
        assert min(held(other).values()) > 0
    expected = dict(other.weights(None))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in part.weights(None))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["param", "grad", "optimizer"])
def test_only_what_is_named_moves(build: Callable[..., Any], dtype: str, name: str):
    """In float32 the distributed optimizer's main parameters lie in the model's own buffer."""
    part = build(dtype=dtype)
    by_hand.train_step(part, 0, ALONE)
    before = held(part)
    if name == "optimizer":
        offloader = optimizer_offloader(part.model, part._optimizer)
    else:
        (offloader,) = offloaders(part.model, MegatronConfig(**{f"{name}_offload": True}))
    offloader.offload()
    assert held(part) == {**before, name: 0}
    offloader.onload()
    assert held(part) == before


@pytest.mark.slow
def test_on_cpu_a_part_has_nothing_to_move(build: Callable[..., Any]):
    part = build(param_offload=True, grad_offload=True, optimizer_offload=True)
    before = held(part)
    part.move(CPU)
    assert held(part) == before
