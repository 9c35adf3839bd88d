"""Named tensors in one safetensors file in shared memory: how new weights come from training to
rollout.

Layout (https://github.com/huggingface/safetensors): 8 bytes little-endian header length, a JSON
header {name: {dtype, shape, data_offsets}}, then the tensors back to back. The writer has the
manifest beforehand, so it writes the header first and each tensor as it arrives. The model is never
there twice.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from rmrl.errors import CheckpointError
from rmrl.inference.weights.staging import HostStage

Manifest = Sequence[tuple[str, "torch.dtype | str", Sequence[int]]]
"""(name, dtype, shape) of every tensor. A dtype may be spelled "bfloat16"."""

_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip
_ALIGNMENT = 64
"""The data section starts at a multiple of this, so that mapped tensors are aligned for every
dtype."""


def manifest_bytes(manifest: Manifest) -> int:
    """Bytes that the tensors of `manifest` have, without the header."""
    return sum(_as_dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in manifest)


def largest_bytes(manifest: Manifest) -> int:
    """Bytes that the largest tensor of `manifest` has, 0 without tensors."""
    sizes = [_as_dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in manifest]
    return max(sizes, default=0)


def write_weights(
    path: Path, manifest: Manifest, tensors: Iterable[tuple[str, torch.Tensor]]
) -> int:
    """Write `tensors`, in any order, to `path`. Returns the file's bytes.

    The file appears under its name only when complete. An open older file with that name stays
    readable. Raises CheckpointError when the tensors are not the manifest's.
    """
    header, places, total = _layout(manifest)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + total)
            _write_tensors(file.fileno(), len(header), places, tensors)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return len(header) + total


def read_weights(path: Path | str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) in the manifest's order. The tensors are views into the mapped file:
    copy the ones that must outlive it."""
    with safe_open(str(path), framework="pt", device="cpu") as file:
        for name in file.offset_keys():
            yield name, file.get_tensor(name)


def _as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    if isinstance(dtype, str):
        return getattr(torch, dtype)
    return dtype


Place = tuple[int, int, torch.dtype, tuple[int, ...]]
"""Start and end in the data section, dtype, shape."""


def _layout(manifest: Manifest) -> tuple[bytes, dict[str, Place], int]:
    """Return the header bytes (length prefix included), every tensor's place, and the data
    section's size."""
    places: dict[str, Place] = {}
    entries: dict[str, Any] = {}
    offset = 0
    for name, type_name, shape in manifest:
        if name in places:
            raise CheckpointError(f"the weights to publish name tensor '{name}' twice")
        dtype = _as_dtype(type_name)
        end = offset + dtype.itemsize * math.prod(shape)
        places[name] = (offset, end, dtype, tuple(shape))
        entries[name] = {
            "dtype": _CODES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text, places, offset


def _write_tensors(
    descriptor: int,
    base: int,
    places: dict[str, Place],
    tensors: Iterable[tuple[str, torch.Tensor]],
) -> None:
    missing = dict(places)
    stage = HostStage()
    for name, tensor in tensors:
        place = missing.pop(name, None)
        if place is None:
            raise CheckpointError(
                f"the weights to publish hold tensor '{name}' twice, or their manifest does not"
                " announce it"
            )
        start, _, dtype, shape = place
        if tensor.dtype != dtype or tuple(tensor.shape) != shape:
            actual = f"{tensor.dtype} {list(tensor.shape)}"
            raise CheckpointError(
                f"tensor '{name}' was announced as {dtype} {list(shape)} and arrived as {actual}"
            )
        offset = base + start
        for piece in stage.pieces(tensor):
            data = piece
            while len(data):  # one call writes 2 GiB at most
                written = os.pwrite(descriptor, data, offset)
                data = data[written:]
                offset += written
    if missing:
        raise CheckpointError(
            f"{len(missing)} tensors of the weights to publish never arrived, e.g."
            f" '{next(iter(missing))}'"
        )
