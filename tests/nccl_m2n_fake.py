"""NVIDIA's nccl.core and nccl.m2n without a GPU: what they move travels through a TCPStore. A stub
for processes with nothing else, beside tests/vllm_sources.py."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections import Counter
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any, Self

import torch
from torch.distributed import TCPStore

from tests.patience import PATIENCE_S
from tests.vllm_sources import _nothing, _stub


class Group:
    """In place of vLLM's StatelessProcessGroup: objects under numbered keys."""

    latest: Group

    def __init__(self, host: str, port: int, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._calls = 0
        self._letters: Counter[tuple[str, int]] = Counter()
        patience = timedelta(seconds=PATIENCE_S)
        self._store = TCPStore(host, port, world_size, is_master=rank == 0, timeout=patience)
        Group.latest = self

    @classmethod
    def create(cls, host: str, port: int, rank: int, world_size: int, **_: Any) -> Self:
        return cls(host, port, rank, world_size)

    def number(self) -> int:
        """Count the calls, which all processes make in one order."""
        self._calls += 1
        return self._calls

    def put(self, key: str, value: object) -> None:
        self._store.set(key, pickle.dumps(value))

    def take(self, key: str) -> Any:
        self._store.wait([key])
        return pickle.loads(self._store.get(key))

    def all_gather_obj(self, value: object) -> list[Any]:
        number = self.number()
        self.put(f"{number}/{self.rank}", value)
        return [self.take(f"{number}/{rank}") for rank in range(self.world_size)]

    def broadcast_obj(self, value: object, src: int) -> Any:
        number = self.number()
        if self.rank == src:
            self.put(f"{number}/{src}", value)
        return self.take(f"{number}/{src}")

    def send_obj(self, value: object, rank: int) -> None:
        self.put(f"letter/{self.rank}/{rank}/{self._count('sent', rank)}", value)

    def recv_obj(self, rank: int) -> Any:
        return self.take(f"letter/{rank}/{self.rank}/{self._count('read', rank)}")

    def _count(self, way: str, rank: int) -> int:
        self._letters[way, rank] += 1
        return self._letters[way, rank]


class Communicator:
    """In place of NCCL's."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.rank = group.rank
        self.abort = self.destroy = _nothing

    @classmethod
    def init(cls, *, nranks: int, rank: int, unique_id: bytes) -> Self:
        assert (nranks, rank) == (Group.latest.world_size, Group.latest.rank)
        assert len(unique_id) == 128
        return cls(Group.latest)

    def broadcast(
        self, send: torch.Tensor, receive: torch.Tensor, *, root: int, stream: Any
    ) -> None:
        receive.copy_(self.group.broadcast_obj(send, root))


class Mesh:
    def __init__(self, dims: tuple[int, int], *, start_rank: int) -> None:
        self.dims = dims
        self.start = start_rank

    def coordinate(self, rank: int) -> tuple[int, int] | None:
        """Return a rank's place in the grid, None where it has none."""
        inside = rank - self.start
        if not 0 <= inside < self.dims[0] * self.dims[1]:
            return None
        return divmod(inside, self.dims[1])


class Shard:
    def __init__(self, dim: int) -> None:
        self.dim = dim


class Replicate:
    pass


def _part(mesh: Mesh, placements: list[Any], rank: int) -> tuple[int, int, int] | None:
    """Return (dimension, number, count) for the part that a rank holds."""
    place = mesh.coordinate(rank)
    if place is None:
        return None
    ((axis, cut),) = [pair for pair in enumerate(placements) if isinstance(pair[1], Shard)]
    return cut.dim, place[axis], mesh.dims[axis]


def reshard(
    source: torch.Tensor | None, target: torch.Tensor | None, comm: Communicator, stream: Any, *,
    src_mesh: Mesh, src_placements: list[Any], dst_mesh: Mesh, dst_placements: list[Any], handle: Any,
) -> None:  # fmt: skip
    group, number = comm.group, comm.group.number()
    own = _part(src_mesh, src_placements, group.rank)
    if own is not None:
        assert source is not None
        group.put(f"{number}/part/{own[1]}", source)
    goal = _part(dst_mesh, dst_placements, group.rank)
    if goal is not None:
        assert target is not None
        cut = _part(src_mesh, src_placements, src_mesh.start)
        assert cut is not None
        dim, _, count = cut
        whole = torch.cat([group.take(f"{number}/part/{part}") for part in range(count)], dim)
        target.copy_(whole.chunk(goal[2], goal[0])[goal[1]])


def install() -> None:
    """Make nccl.core and nccl.m2n importable, and replace vLLM's groups."""
    handle = ModuleType("handle")
    handle.destroy = _nothing  # type: ignore[attr-defined]
    maker = type("Handle", (), {"create": staticmethod(lambda _: handle)})
    unique = type("Unique", (), {"as_bytes": bytes(128)})
    ids = type("UniqueId", (), {"from_bytes": staticmethod(bytes)})
    _stub("nccl")
    _stub("nccl.core", Communicator=Communicator, UniqueId=ids, get_unique_id=unique)
    _stub(
        "nccl.m2n", Handle=maker, Config=lambda **_: None, Mesh=Mesh, Shard=Shard,
        Replicate=Replicate, reshard=reshard,
    )  # fmt: skip
    sys.modules["nccl"].m2n = sys.modules["nccl.m2n"]  # type: ignore[attr-defined]
    _stub("vllm.distributed.utils", StatelessProcessGroup=Group)
    _stub("vllm.distributed.device_communicators")
    _stub("vllm.distributed.device_communicators.pynccl_wrapper", NCCL_UNIQUE_ID_BYTES=128)
    _stub("vllm.utils")
    _stub("vllm.utils.nccl", unpinned_nccl_env=contextlib.nullcontext)
    torch.Tensor.record_stream = _nothing  # type: ignore[assignment]
    for name in ("full", "tensor"):
        setattr(torch, name, partial(_on_the_cpu, getattr(torch, name)))


def _on_the_cpu(make: Any, *arguments: Any, device: object = None, **options: Any) -> torch.Tensor:
    return make(*arguments, **options)
