"""Whole tensors out of a sharded checkpoint, in one process and without a process group."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from rmrl.backends.engine import TENSORS
from rmrl.backends.fsdp.checkpoint import MODEL
from rmrl.errors import CheckpointError

AT_ONCE_BYTES = 2**30
"""Tensors read together; memory holds one such portion."""


class WholeTensors:
    """The parameters that a checkpoint holds, by their names in the language model (Hugging Face's, and peft's for adapters)."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where state.json is. Raises CheckpointError when its tensors cannot be read."""
        self._folder = folder / TENSORS
        try:
            stored = HuggingFaceStorageReader(str(self._folder)).read_metadata().state_dict_metadata
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"'{self._folder}' cannot be read ({error}): the checkpoint is torn; choose another") from error
        self._stored = {
            name.removeprefix(MODEL): entry
            for name, entry in stored.items()
            if name.startswith(MODEL) and isinstance(entry, TensorStorageMetadata)
        }

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> whole shape."""
        return {name: tuple(entry.size) for name, entry in self._stored.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of these names, in their order, each whole and in the dtype it was saved in."""
        for portion in self._portions(names):
            tensors = {MODEL + name: torch.empty(self.shapes[name], dtype=self._stored[name].properties.dtype) for name in portion}
            self._fill(tensors)
            for name in portion:
                yield name, tensors.pop(MODEL + name)

    def _portions(self, names: Iterable[str]) -> Iterator[list[str]]:
        portion: list[str] = []
        size = 0
        for name in names:
            entry = self._stored[name]
            tensor_bytes = math.prod(entry.size) * entry.properties.dtype.itemsize
            if portion and size + tensor_bytes > AT_ONCE_BYTES:
                yield portion
                portion, size = [], 0
            portion.append(name)
            size += tensor_bytes
        yield portion

    def _fill(self, tensors: dict[str, Tensor]) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*single process.*")
            try:
                dcp.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(self._folder)), no_dist=True)
            except CheckpointException as error:
                raise CheckpointError(f"'{self._folder}' cannot be read: {next(iter(error.failures.values()))[0]}") from error
