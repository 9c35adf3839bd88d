"""Whole tensors' pieces <-> safetensors files, through torch.distributed.checkpoint (DCP). The same
for every backend.

A process passes its pieces: each is a box in a whole tensor and the memory for its numbers. Writing
sends no tensors; reading fills each piece in place from the boxes in the files, however many
processes wrote them. Nothing is pickled. A process's pieces go to files with about FILE_BYTES, one
after another, so that the additional memory stays small.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from rmrl.errors import CheckpointError

FILE_BYTES = 2**28
"""Maximum size of the tensors in one file. Writing one takes up to four times as much memory:
copies of its tensors, and the file itself."""

MODEL = "model."
"""Prefix of parameters' names."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""(offsets, sizes)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A box in a whole tensor, and the memory for its numbers."""

    name: str
    """Name of the full (unsharded) tensor."""
    size: tuple[int, ...]
    """Shape of the full tensor."""
    offset: tuple[int, ...]
    """Position of the box's first element in the full tensor."""
    data: Tensor
    """The numbers, in the shape of the box."""

    @property
    def index(self) -> MetadataIndex:
        """DCP's identifier for the piece."""
        return MetadataIndex(self.name, torch.Size(self.offset))

    @property
    def chunk(self) -> ChunkStorageMetadata:
        """How DCP describes the box."""
        return ChunkStorageMetadata(torch.Size(self.offset), self.data.shape)


def whole(name: str, data: Tensor) -> Piece:
    """The piece that is the tensor itself."""
    return Piece(name=name, size=tuple(data.shape), offset=(0,) * data.dim(), data=data)


def boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, Box]]:
    """Yield the elements [start, stop) in a contiguous tensor with `shape`, flattened, as (first
    element, box) in their order.

    These are at most 2 * dimensions - 1 boxes: a partial row, whole rows, a partial row, where a
    row is again a tensor.
    """
    if start >= stop:
        return
    if len(shape) <= 1:
        yield start, ((start,), (stop - start,))
        return
    row = math.prod(shape[1:])
    first = -(-start // row)
    last = stop // row
    if first > last:
        yield from _in_row(shape, first - 1, start, stop)
        return
    yield from _in_row(shape, first - 1, start, first * row)
    if first < last:
        offsets = (first, *(0,) * (len(shape) - 1))
        yield first * row, (offsets, (last - first, *shape[1:]))
    yield from _in_row(shape, last, last * row, stop)


def _in_row(shape: Sequence[int], number: int, start: int, stop: int) -> Iterator[tuple[int, Box]]:
    base = number * math.prod(shape[1:])
    for first, (offsets, sizes) in boxes(shape[1:], start - base, stop - base):
        yield base + first, ((number, *offsets), (1, *sizes))


def write_pieces(folder: Path, pieces: Iterable[Piece]) -> None:
    """Write this process's pieces. All processes call this together. A tensor's boxes must cover it
    and must not overlap.

    A piece that several processes have is written once. Raises CheckpointError in every process
    when one fails.
    """
    writer = _Writer(str(folder), save_distributed=True)
    try:
        dcp.save({}, storage_writer=writer, planner=_SavePlanner(pieces))
    # CheckpointException is a BaseException: it would end the process instead of the call.
    except CheckpointException as error:
        raise CheckpointError(f"'{folder}' cannot be written: {cause(error)}") from error


def read_pieces(folder: Path, pieces: Iterable[Piece], *, alone: bool = False) -> None:
    """Fill the pieces in place, cast to their dtype. All processes call this together, or one by
    itself (`alone`).

    Raises CheckpointError in every process if one lacks a tensor or a part or has another shape.
    """
    reader = _Reader(str(folder))
    planner = _LoadPlanner(folder, pieces)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*single process.*")
        try:
            dcp.load({}, storage_reader=reader, planner=planner, no_dist=alone)
        except CheckpointException as error:
            reason = cause(error)
            message = str(reason)
            if not isinstance(reason, CheckpointError):
                message = f"'{folder}' cannot be read: {reason}"
            raise CheckpointError(message) from error


def stored_tensors(folder: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Name -> full shape and dtype for the tensors in the files. Raises CheckpointError when they
    cannot be read."""
    metadata = headers(HuggingFaceStorageReader(str(folder))).state_dict_metadata
    tensors: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        name: (tuple(entry.size), entry.properties.dtype)
        for name, entry in metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    return tensors


def tensor_bytes(size: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes in a full tensor with this shape."""
    return math.prod(size) * dtype.itemsize


def cause(error: CheckpointException) -> BaseException:
    """The first failed process's error."""
    return next(iter(error.failures.values()))[0]


def headers(reader: HuggingFaceStorageReader) -> Metadata:
    """The metadata in the files' headers. Raises CheckpointError when they cannot be read."""
    try:
        return HuggingFaceStorageReader.read_metadata(reader)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"'{reader.path}' cannot be read ({error}): the checkpoint is torn; resume from another"
        ) from error


class _Writer(HuggingFaceStorageWriter):
    """Several files per process: no file has two boxes from one tensor (their key in a file is the
    tensor's name), and none is large."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        written: list[WriteResult] = []
        files = _files(plan.items)
        for number, items in enumerate(files, start=1):
            numbers = {item.index.fqn: number for item in items}
            # The largest number becomes the second number in a file's name.
            numbers[""] = len(files)
            storage: Any = {**plan.storage_data, "fqn_to_index_mapping": numbers}
            file_plan = replace(plan, items=items, storage_data=storage)
            written += super().write_data(file_plan, planner).wait()
        done: Future[list[WriteResult]] = Future()
        done.set_result(written)
        return done


def _files(items: Iterable[WriteItem]) -> list[list[WriteItem]]:
    """Distribute the boxes over files, each box to the first file that has room for it."""
    files: list[list[WriteItem]] = []
    sizes: list[int] = []
    fits_from: dict[str, int] = {}
    """Tensor -> the first file without a box of it."""
    for item in items:
        assert item.tensor_data is not None
        size = math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize
        number = fits_from.get(item.index.fqn, 0)
        while number < len(files) and sizes[number] + size > FILE_BYTES:
            number += 1
        if number == len(files):
            files.append([])
            sizes.append(0)
        files[number].append(item)
        sizes[number] += size
        fits_from[item.index.fqn] = number + 1
    return files


class _SavePlanner(DefaultSavePlanner):
    """Plans the pieces. DCP decides which process writes a piece that several have, and checks that
    the boxes cover the tensors."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces: dict[MetadataIndex, Piece] = {}
        for piece in pieces:
            # Cut by rows into parts that fit a file: the same parts in all processes that have it.
            rows = max(1, FILE_BYTES // max(1, piece.data[0].nbytes))
            for start in range(0, len(piece.data), rows):
                part = replace(
                    piece,
                    offset=(piece.offset[0] + start, *piece.offset[1:]),
                    data=piece.data[start : start + rows],
                )
                assert part.index not in self._pieces, "a process has a box of a tensor twice"
                self._pieces[part.index] = part

    def create_local_plan(self) -> SavePlan:
        items: list[WriteItem] = []
        for piece in self._pieces.values():
            data = TensorWriteData(
                chunk=piece.chunk,
                properties=TensorProperties.create_from_tensor(piece.data.detach()),
                size=torch.Size(piece.size),
            )
            item = WriteItem(index=piece.index, type=WriteItemType.SHARD, tensor_data=data)
            items.append(item)
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._pieces[write_item.index].data.detach()


class _Reader(HuggingFaceStorageReader):
    """Reader that raises an unreadable file's error in the plan, from where DCP raises it in every
    process; an error in `read_metadata` would only be logged."""

    _torn: CheckpointError | None = None

    def read_metadata(self) -> Metadata:
        try:
            return headers(self)
        except CheckpointError as error:
            self._torn = error
            return Metadata(state_dict_metadata={}, storage_data={})

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if self._torn is not None:
            raise self._torn
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)


class _LoadPlanner(DefaultLoadPlanner):
    """Plans the reads that fill the pieces, and checks that they fill them: DCP itself ignores
    numbers that are in no file."""

    def __init__(self, folder: Path, pieces: Iterable[Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._folder = folder
        self._pieces = list(pieces)

    def create_local_plan(self) -> LoadPlan:
        # The position in the index identifies the piece: several pieces may be the same box, in
        # different memory.
        assert self.metadata is not None
        items: list[ReadItem] = []
        for number, piece in enumerate(self._pieces):
            stored = self.metadata.state_dict_metadata.get(piece.name)
            if not isinstance(stored, TensorStorageMetadata):
                raise CheckpointError(
                    f"'{self._folder}' holds no '{piece.name}': it is torn, or was written for"
                    " another model; resume from another checkpoint, or with the model it was saved"
                    " from"
                )
            reads = create_read_items_for_chunk_list(piece.name, stored, [piece.chunk])
            size = tuple(stored.size)
            count = sum(math.prod(item.lengths) for item in reads)
            if size != piece.size or count != piece.data.numel():
                raise CheckpointError(
                    f"'{self._folder}' holds '{piece.name}' with shape {size}, {count} of the"
                    f" {piece.data.numel()} numbers that are needed of it here, and the model has"
                    f" {piece.size}: it is torn, or was written for another model; resume from"
                    " another checkpoint, or with the model it was saved from"
                )
            for item in reads:
                index = replace(item.dest_index, index=number)
                items.append(replace(item, dest_index=index))
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        assert index.index is not None
        return self._pieces[index.index].data.detach()
