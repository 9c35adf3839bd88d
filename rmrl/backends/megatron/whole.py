"""Whole tensors by Hugging Face names from a Megatron checkpoint, in one process, without a process
group and without megatron-core."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from rmrl.backends.engine import TENSORS
from rmrl.backends.megatron.mapping import Entry, entries, joined, share_shape
from rmrl.backends.megatron.shape import SHAPE, Experts, Shape
from rmrl.backends.portions import AT_ONCE_BYTES, portions
from rmrl.backends.state_file import saved_model
from rmrl.backends.storage import MODEL, read_pieces, stored_tensors, tensor_bytes, whole
from rmrl.errors import CheckpointError


class MegatronTensors:
    """The parameters in a checkpoint; float32 where training kept master weights. Implements
    export.CheckpointReader."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the one with state.json. Raises CheckpointError when its tensors cannot be
        read."""
        self._folder = folder / TENSORS
        self._stored = stored_tensors(self._folder)
        self._entries: dict[str, Entry] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for entry in entries(self._shape(), saved_model(folder).role):
            if entry.tied or MODEL + entry.name not in self._stored:
                continue
            size, _ = self._stored[MODEL + entry.name]
            needed = share_shape(replace(entry, padded=entry.shapes[0][0]), 1)
            if size != needed:
                raise CheckpointError(
                    f"'{self._folder}' holds '{entry.name}' with shape {size} in place of {needed}:"
                    " the checkpoint is torn; choose another"
                )
            for name, shape in zip(entry.hf, entry.shapes, strict=True):
                self._entries[name] = entry
                self._shapes[name] = shape

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name -> whole shape."""
        return self._shapes

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors with these names, in their order, each whole and in its stored
        dtype."""
        for portion in portions(
            names,
            stored_in=lambda name: MODEL + self._entries[name].name,
            size=lambda stored: tensor_bytes(*self._stored[stored]),
            at_once=AT_ONCE_BYTES,
        ):
            stored_names = dict.fromkeys(self._entries[name].name for name in portion)
            stored = {name: self._empty(MODEL + name) for name in stored_names}
            read_pieces(
                self._folder,
                [whole(MODEL + name, tensor) for name, tensor in stored.items()],
                alone=True,
            )
            tensors: dict[str, Tensor] = {}
            for name in portion:
                if name not in tensors:
                    entry = self._entries[name]
                    parts = joined(entry, [stored.pop(entry.name)])
                    tensors |= zip(entry.hf, parts, strict=True)
                yield name, tensors.pop(name)

    def _empty(self, stored: str) -> Tensor:
        size, dtype = self._stored[stored]
        return torch.empty(size, dtype=dtype)

    def _shape(self) -> Shape:
        if SHAPE not in self._stored:
            raise CheckpointError(
                f"'{self._folder}' has no '{SHAPE}' of the model: the checkpoint is torn; choose"
                " another"
            )
        data = self._empty(SHAPE)
        read_pieces(self._folder, [whole(SHAPE, data)], alone=True)
        try:
            values = json.loads(bytes(data.numpy()))
            values["rope"] = tuple(values["rope"])
            if values["experts"] is not None:
                values["experts"] = Experts(**values["experts"])
            return Shape(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"'{self._folder}' has the model's shape in an unknown format ({error}): another"
                " version wrote it; resume the run once, so that its next checkpoint can be"
                " exported"
            ) from error
