"""Whole tensors out of a sharded checkpoint, in one process and without a process group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from rmrl.backends.engine import TENSORS
from rmrl.backends.portions import portions
from rmrl.backends.storage import MODEL, read_pieces, stored_tensors, tensor_bytes, whole


class WholeTensors:
    """The parameters that a checkpoint holds, by their names in the language model (Hugging Face's,
    and peft's for adapters)."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where state.json is. Raises CheckpointError when its tensors cannot be read."""
        self._folder = folder / TENSORS
        stored = stored_tensors(self._folder)
        self._stored = {
            name.removeprefix(MODEL): held
            for name, held in stored.items()
            if name.startswith(MODEL)
        }

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> whole shape."""
        return {name: size for name, (size, _) in self._stored.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of these names, in their order, each whole and in the dtype it was saved
        in."""
        for portion in portions(
            names, stored_in=lambda name: name, size=lambda name: tensor_bytes(*self._stored[name])
        ):
            tensors = {
                name: torch.empty(size, dtype=dtype)
                for name in portion
                for size, dtype in [self._stored[name]]
            }
            read_pieces(
                self._folder,
                [whole(MODEL + name, tensor) for name, tensor in tensors.items()],
                alone=True,
            )
            for name in portion:
                yield name, tensors.pop(name)
