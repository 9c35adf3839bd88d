"""A training process's end in vLLM's own weight transfer (vllm.distributed.weight_transfer): CUDA
IPC handles, or a broadcast over NCCL.

vLLM's trainer-side engine drives the whole exchange. It gets the tensors and a client for the
rollout engines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch

from rmrl.inference.weights.file import Manifest, largest_bytes, manifest_bytes
from rmrl.inference.weights.parts import Parts
from rmrl.registry import load_attribute

INIT_INFOS = {
    "ipc": "vllm.distributed.weight_transfer.ipc_engine:IPCTrainerInitInfo",
    "nccl": "vllm.distributed.weight_transfer.nccl_engine:NCCLTrainerInitInfo",
    "nccl_m2n": "vllm.distributed.weight_transfer.m2n_trainer:M2NTrainerInitInfo",
}
"""Transport -> vLLM's settings of its training side. They name the backend of the same name."""


PACKED_BUFFER_BYTES = 2**30
"""vLLM's own size of the buffer in which tensors are packed for IPC."""


class WeightClient(Protocol):
    """vLLM's VLLMWeightSyncClient: calls that reach every rollout engine and return when all have
    completed."""

    version: int
    """Version of the next finished update."""

    @property
    def complete(self) -> bool:
        """Whether every engine has received all updates so far."""
        ...

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Any) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...


class Weights(Protocol):
    """A training engine's weights: names, dtypes and shapes, and the full (unsharded) tensors in
    the same order, gathered by all processes."""

    def manifest(self, dtype: str) -> Sequence[tuple[str, torch.dtype, tuple[int, ...]]]: ...

    def weights(self, dtype: str) -> Iterator[tuple[str, torch.Tensor]]: ...

    def parts(self) -> Mapping[str, Parts]:
        """Tensors that the processes hold in equal parts. nccl_m2n alone asks for them."""
        ...

    def local_weights(self, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
        """This process's parts in the manifest's order. Other tensors are whole."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLink:
    """One training process's connection to the rollout engines."""

    transport: str
    """A key of INIT_INFOS. The rollout engines were started with the backend of that name."""
    rank: int
    """Rank of the training process. Rank 0 alone uses the client, and sends over NCCL."""
    client: WeightClient
    dtype: str
    """Type of the sent tensors."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of vLLM's: nccl needs master_address, master_port, world_size (1 + the
    rollout engines' devices). nccl_m2n counts all training processes in world_size, and needs
    num_trainer_ranks and dst_mesh_dims (engines, devices of each)."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One training process's knowledge about weights that were sent."""

    bytes: int
    """Of all tensors."""
    complete: bool
    """False: an engine died meanwhile, and the others have received them."""


class WeightSender:
    """Sends weights; constructed in every training process at the same time; rank 0 connects to the
    rollout engines."""

    def __init__(self, weights: Weights, link: TransferLink) -> None:
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

        make_info: Any = load_attribute(INIT_INFOS[link.transport])
        self._link = link
        self._weights = weights
        options = transfer_options(link.options, weights.manifest(link.dtype))
        self._engine: Any = WeightTransferTrainerFactory.trainer_init(
            make_info(rank=link.rank, **options),
            client=link.client,
            source=make_source(weights, link.dtype, local=link.transport == "nccl_m2n"),
        )

    def send(self, version: int) -> Sent:
        """Send all weights as `version`. Every training process calls this method."""
        self._link.client.version = version
        self._engine.send_weights()
        size = manifest_bytes(self._weights.manifest(self._link.dtype))
        return Sent(size, complete=self._link.client.complete)

    def close(self) -> None:
        """Leave the processes that exchange weights."""
        self._engine.shutdown()


def group_options(
    transport: str, *, address: str, port: int, ranks: int, engines: int, width: int
) -> dict[str, Any]:
    """Return vLLM's settings for an exchange between `ranks` training processes and `engines` with
    `width` devices each."""
    if transport == "ipc":
        return {"packed": True}
    options: dict[str, Any] = {
        "master_address": address,
        "master_port": port,
        "world_size": 1 + engines * width,
    }
    if transport == "nccl_m2n":
        grid = {"num_trainer_ranks": ranks, "dst_mesh_dims": (engines, width)}
        options |= {**grid, "world_size": ranks + engines * width}
    return options


def transfer_options(options: Mapping[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Return vLLM's settings for `manifest`'s tensors. A packed tensor must fit the buffer:
    embeddings of models with 7 billion parameters exceed vLLM's 1 GiB."""
    largest = largest_bytes(manifest)
    if options.get("packed") and largest > PACKED_BUFFER_BYTES:
        return {**options, "packed_buffer_size_bytes": largest}
    return dict(options)


def source_problem() -> str:
    """Return why no weight source can be made for the installed vLLM, "" where it can. Imports
    vLLM's transfer interface, and needs no GPU."""
    nothing: Any = None
    try:
        make_source(nothing, "bfloat16")
    except Exception as error:  # whatever a release asks of subclasses
        return f"{type(error).__name__}: {error}"
    return ""


def make_source(weights: Weights, dtype: str, *, local: bool = False) -> Any:
    """Return the weights as vLLM's WeightSource, in the installed release's form. local: as
    each process holds them (vLLM 0.33 or newer)."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    def metadata(_: object) -> list[ParamMeta]:
        parts = weights.parts() if local else {}
        manifest = weights.manifest(dtype)
        return [
            ParamMeta(name, kind, tuple(shape), **_placed(parts.get(name)))
            for name, kind, shape in manifest
        ]

    def tensors(_: object) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(weights.weights(dtype))

    def own(_: object) -> Iterator[tuple[str, torch.Tensor]]:
        return weights.local_weights(dtype)

    # vLLM 0.33 and newer read a cached property and call `iter_full`. Older releases call the
    # method `metadata` and iterate over the source itself.
    cached = hasattr(WeightSource, "iter_full")
    members = {
        "__doc__": "Gathers the weights anew in every iteration.",
        "metadata": cached_property(metadata) if cached else metadata,
        "iter_full": tensors,
        "__iter__": tensors,
    }
    if local:
        members |= {"__doc__": "Hands out each process's parts.", "iter_local": own}
        del members["iter_full"], members["__iter__"]
    return type("Source", (WeightSource,), members)()


def _placed(parts: Parts | None) -> dict[str, Any]:
    """Return arguments for vLLM's ParamMeta."""
    if parts is None:
        return {}
    from vllm.distributed.weight_transfer.base import Replicate, Shard  # pyright: ignore[reportAttributeAccessIssue]

    return {
        "owners": tuple(range(math.prod(parts.grid))),
        "mesh_shape": parts.grid,
        "placements": tuple(Replicate() if cut is None else Shard(cut) for cut in parts.cuts),
    }
