"""Whole tensors by Hugging Face names out of a Megatron checkpoint, in one process, without a
process group and without megatron-core."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    """The parameters that a checkpoint holds; float32 ones where training kept master weights.
    Implements export.CheckpointReader."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where state.json is. Raises CheckpointError when its tensors cannot be read."""
        self._folder = folder / TENSORS
        self._stored = stored_tensors(self._folder)
        shape = self._shape()
        known = entries(shape, saved_model(folder).role)
        held = [entry for entry in known if not entry.tied and MODEL + entry.name in self._stored]
        self._require_whole(held)
        self._entries = {name: entry for entry in held for name in entry.hf}
        self._shapes = {
            name: size for entry in held for name, size in zip(entry.hf, entry.shapes, strict=True)
        }

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name -> whole shape."""
        return self._shapes

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of these names, in their order, each whole and in the dtype it was saved
        in."""
        for portion in portions(
            names,
            stored_in=lambda name: MODEL + self._entries[name].name,
            size=lambda stored: tensor_bytes(*self._stored[stored]),
            at_once=AT_ONCE_BYTES,
        ):
            tensors = self._tensors(
                list(dict.fromkeys(self._entries[name].name for name in portion))
            )
            found: dict[str, Tensor] = {}
            for name in portion:
                if name not in found:
                    entry = self._entries[name]
                    found |= zip(entry.hf, joined(entry, [tensors.pop(entry.name)]), strict=True)
                yield name, found.pop(name)

    def _require_whole(self, held: Sequence[Entry]) -> None:
        for entry in held:
            size, _ = self._stored[MODEL + entry.name]
            wanted = share_shape(replace(entry, padded=entry.shapes[0][0]), 1)
            if size != wanted:
                raise CheckpointError(
                    f"'{self._folder}' holds '{entry.name}' with shape {size} in place of {wanted}:"
                    " the checkpoint is torn; choose another"
                )

    def _tensors(self, names: Sequence[str]) -> dict[str, Tensor]:
        tensors = {name: self._empty(MODEL + name) for name in names}
        read_pieces(
            self._folder,
            [whole(MODEL + name, tensor) for name, tensor in tensors.items()],
            alone=True,
        )
        return tensors

    def _empty(self, stored: str) -> Tensor:
        size, dtype = self._stored[stored]
        return torch.empty(size, dtype=dtype)

    def _shape(self) -> Shape:
        if SHAPE not in self._stored:
            raise CheckpointError(
                f"'{self._folder}' does not say the model's shape: the checkpoint is torn; choose"
                " another"
            )
        data = self._empty(SHAPE)
        read_pieces(self._folder, [whole(SHAPE, data)], alone=True)
        try:
            return _shape_of(json.loads(bytes(data.numpy())))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"'{self._folder}' says the model's shape in a way that is not known ({error}):"
                " another version wrote it; resume the run once, so that its next checkpoint can"
                " be exported"
            ) from error


def _shape_of(values: dict[str, Any]) -> Shape:
    experts: Any = values["experts"]
    known: dict[str, Any] = {
        **values,
        "rope": tuple(values["rope"]),
        "experts": None if experts is None else Experts(**experts),
    }
    return Shape(**known)
