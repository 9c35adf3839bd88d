"""Models and optimizers leave the device and come back, in a process group of their own."""

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
from rmrl.backends.offload import storages
from rmrl.config.schema import MegatronConfig
from tests.backends.megatron import by_hand
from tests.backends.megatron.test_offload import CPU
from tests.backends.megatron.tiny import write_tiny

ALONE = ProcessSettings(threads=1, timeout_s=60)


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


def test_on_cpu_a_part_has_nothing_to_move(build: Callable[..., Any]):
    part = build(param_offload=True, grad_offload=True, optimizer_offload=True)
    before = held(part)
    part.move(CPU)
    assert held(part) == before
