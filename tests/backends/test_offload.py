"""What leaves the device between phases comes back bit by bit, and training goes on as if nothing
had happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from rmrl.backends import process_group
from rmrl.backends.base import ProcessSettings
from rmrl.backends.fsdp import compat
from rmrl.backends.fsdp.layout import Layout
from rmrl.backends.fsdp.offload import averages, model_offloader, optimizer_offloader, shards
from rmrl.backends.offload import Offloader, storages
from rmrl.config.schema import FSDPConfig

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    process_group.join_group(ProcessSettings(), "cpu")
    yield
    process_group.leave_group()


class Tied(nn.Module):
    """Layers, and two names for one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        for layer in self.layers:
            hidden = layer(hidden).tanh()
        return self.head(hidden)


def build(strategy: str) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(0)
    layout = Layout(
        mesh=compat.device_mesh("cpu", -1),
        device=CPU,
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32,
    )
    model = compat.shard(Tied(), layout, strategy=strategy)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)


def step(
    model: nn.Module, optimizer: torch.optim.AdamW, come: Callable[[], object] = lambda: None
) -> None:
    model(torch.tensor([1, 2, 3])).float().square().sum().backward()
    come()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2"])
def test_offloaded_training_is_bit_equal(strategy: str) -> None:
    model, optimizer = build(strategy)
    other, other_optimizer = build(strategy)
    settings = FSDPConfig(param_offload=True, optimizer_offload=True)
    parameters = model_offloader(model, settings, CPU)
    state = optimizer_offloader(optimizer, settings, CPU)
    assert parameters is not None
    assert state is not None
    for _ in range(3):
        step(other, other_optimizer)
        # Its state comes for the optimizer's step alone.
        step(model, optimizer, state.onload)
        with torch.no_grad():
            tensors = [*shards(model), *averages(optimizer)]
        addresses = [tensor.untyped_storage() for tensor in tensors]
        assert sum(storage.nbytes() for storage in addresses) > 0
        state.offload()
        parameters.offload()
        assert [storage.nbytes() for storage in addresses] == [0] * len(addresses)
        parameters.onload()
    expected = compat.shards(other)
    for name, tensor in compat.shards(model).items():
        assert torch.equal(compat.full_tensor(tensor), compat.full_tensor(expected[name])), name


def test_settings_choose_what_leaves() -> None:
    model, optimizer = build("fsdp2")

    def leave(**changes: bool) -> tuple[bool, bool]:
        fsdp = FSDPConfig(**changes)
        state = optimizer_offloader(optimizer, fsdp, CPU)
        return model_offloader(model, fsdp, CPU) is not None, state is not None

    assert leave() == (False, False)
    assert leave(param_offload=True) == (True, False)
    assert leave(optimizer_offload=True) == (False, True)
    everything = {"param_offload": True, "optimizer_offload": True}
    assert leave(**everything, offload_policy=True) == (False, False)
    assert optimizer_offloader(None, FSDPConfig(optimizer_offload=True), CPU) is None


def test_host_memory_comes_in_equal_pieces_and_is_taken_once() -> None:
    """Page-locked blocks are rounded up to powers of two: 5 pieces of 64 bytes, not 512 bytes."""
    tensors = [torch.arange(50.0), torch.arange(25.0)]  # 200 and 100 bytes
    offloader = Offloader(lambda: tensors, CPU, piece_bytes=64)
    for _ in range(3):
        offloader.offload()
        offloader.onload()
    assert [piece.nbytes for piece in offloader._pieces] == [64] * 5
    assert len(storages(tensors, CPU)) == 2
    assert [float(tensor.sum()) for tensor in tensors] == [1225.0, 300.0]
