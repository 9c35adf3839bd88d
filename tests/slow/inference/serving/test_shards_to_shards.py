"""weight_transport=nccl_m2n with vLLM's own files on both sides, without a GPU.

Two training processes hold DTensors on gloo. Two receiving engines are processes of their own, each
with the number that rmrl gives it. NVIDIA's library is a stub (tests/nccl_m2n_fake.py).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.version import Version

from rmrl.inference.vllm import compat
from rmrl.inference.weights.parts import Parts
from rmrl.inference.weights.sender import TransferLink, WeightSender, group_options
from rmrl.ports import HeldPort
from tests import nccl_m2n_fake, vllm_sources
from tests.patience import PATIENCE_S
from tests.slow.inference.serving.test_transfer_of_releases import (
    RELEASES,
    PipeClient,
    answered,
    contract,
    full,
)

pytestmark = pytest.mark.nightly
RANKS, ENGINES, WIDTH = 2, 2, 1
SHAPES = {"embedding": (6, 4), "uneven": (5, 4), "norm": (4,)}
"""Two ranks hold the first and the last in equal parts."""


class SplitWeights:
    """A rank's DTensors, as FSDP2 holds them."""

    def __init__(self) -> None:
        self.step = 0.0

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (RANKS,))
        for number, (name, shape) in enumerate(SHAPES.items()):
            yield name, distribute_tensor(full(number, shape, self.step), mesh, [Shard(0)])

    def manifest(self, dtype: str) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        return [(name, getattr(torch, dtype), shape) for name, shape in SHAPES.items()]

    def weights(self, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
        raise AssertionError("gathered")

    def parts(self) -> Mapping[str, Parts]:
        from rmrl.backends.fsdp.compat import parts_of

        held = {name: parts_of(tensor) for name, tensor in self.tensors()}
        return {name: parts for name, parts in held.items() if parts is not None}

    def local_weights(self, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
        from rmrl.backends.fsdp.compat import full_tensor, local_part

        kind, held = getattr(torch, dtype), self.parts()
        for name, tensor in self.tensors():
            yield name, (local_part if name in held else full_tensor)(tensor, kind)


class NumberedClient(PipeClient):
    """Gives each engine what EngineClient gives it."""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        from rmrl.cluster.engine_client import EngineClient

        client = EngineClient(
            [], devices_per_engine=WIDTH, timeout_s=PATIENCE_S, outlives_engines=False, numbers_engines=True,
        )  # fmt: skip
        for number, pipe in enumerate(self.pipes):
            pipe.send(("init", client.init_info_of(init_info, number)))
        assert [pipe.recv() for pipe in self.pipes] == ["done"] * len(self.pipes)

    def update_weights(self, update_info: Any) -> None:
        for pipe in self.pipes:
            pipe.send(("update", update_info))
        assert [pipe.recv() for pipe in self.pipes] == ["done"] * len(self.pipes)


class Model(torch.nn.Module):
    """Loads whole tensors, as fused layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.received: dict[str, list[Any]] = {}

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        self.received |= {name: tensor.tolist() for name, tensor in weights}


def engine(sources: Path, pipe: Connection) -> None:
    """Serve a receiving engine, behind rmrl's extension of vLLM's worker."""
    vllm_sources.install(sources, device=0)
    nccl_m2n_fake.install()
    from vllm.distributed.weight_transfer.m2n_engine import M2NWeightTransferEngine

    from rmrl.inference.vllm.worker_extension import WorkerExtension

    parallel = SimpleNamespace(
        world_size=WIDTH, rank=0, data_parallel_index=0, pipeline_parallel_size=1
    )
    model = Model()
    settings = SimpleNamespace(parallel_config=parallel, model_config=None)
    receiver = M2NWeightTransferEngine(
        SimpleNamespace(backend="nccl_m2n"), settings, torch.device("cpu"), model
    )
    worker: Any = WorkerExtension()
    worker.vllm_config = settings
    worker.init_weight_transfer_engine = lambda info: receiver.init_transfer_engine(
        receiver.parse_init_info(info)
    )
    while True:
        method, *arguments = pipe.recv()
        if method == "report":
            pipe.send((model.received, parallel.data_parallel_index))
            return
        if method == "init":
            (info,) = arguments
            worker.join_weight_transfer(info, info.pop("engine_number"))
        elif method == "start":
            receiver.start_weight_update()
        elif method == "update":
            receiver.update_weights(*arguments)
        else:
            receiver.finish_weight_update()
        pipe.send("done")


def trainer(
    sources: Path, rank: int, ports: tuple[int, int], pipes: list[Connection], answer: Connection
) -> None:
    """Send two versions as one training process."""
    vllm_sources.install(sources, device=0)
    nccl_m2n_fake.install()
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=RANKS
    )
    weights = SplitWeights()
    link = TransferLink(
        transport="nccl_m2n",
        rank=rank,
        client=NumberedClient(pipes),
        dtype="float32",
        options=group_options(
            "nccl_m2n",
            address="127.0.0.1",
            port=ports[1],
            ranks=RANKS,
            engines=ENGINES,
            width=WIDTH,
        ),
    )
    sender = WeightSender(weights, link)
    for version in (1, 2):
        weights.step = float(version)
        sent = sender.send(version)
    answer.send((sent.bytes, sorted(weights.parts())))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "release", [each for each in RELEASES if Version(each) >= compat.ITER_FULL_SINCE]
)
def test_every_engine_gets_the_shards_as_whole_tensors(release: str) -> None:
    try:
        sources = contract.sources(release, contract.CACHE)
    except contract.Unavailable as reason:
        pytest.skip(f"the sources of vLLM {release} cannot be had: {reason}")
    context = multiprocessing.get_context("spawn")
    reserved = (HeldPort(), HeldPort())
    ports = (reserved[0].number, reserved[1].number)
    near_ends: list[Connection] = []
    far_ends: list[Connection] = []
    processes: list[Any] = []
    for _ in range(ENGINES):
        near, far = context.Pipe()
        processes.append(context.Process(target=engine, args=(sources, far), daemon=True))
        near_ends.append(near)
        far_ends.append(far)
    answers: list[Connection] = []
    for rank in range(RANKS):
        near, far = context.Pipe()
        pipes = near_ends if rank == 0 else []
        arguments = (sources, rank, ports, pipes, far)
        processes.append(context.Process(target=trainer, args=arguments, daemon=True))
        answers.append(near)
        far_ends.append(far)
    try:
        for process in processes:
            process.start()
        for pipe in far_ends:
            pipe.close()
        assert [answered(pipe) for pipe in answers] == [
            (4 * (24 + 20 + 4), ["embedding", "norm"])
        ] * 2
        for pipe in near_ends:
            pipe.send(("report",))
            received, number = answered(pipe)
            assert received == {
                name: full(index, shape, 2.0).tolist()
                for index, (name, shape) in enumerate(SHAPES.items())
            }
            assert number == 0
    finally:
        for port in reserved:
            port.close()
        for process in processes:
            process.kill()
            process.join(PATIENCE_S)
