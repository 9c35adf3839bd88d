"""Release device memory between training phases: bytes are copied to host memory and their storage
is emptied.

The storages are moved, so every view into them stays valid: it has no data while its storage is
empty, and the same bytes afterwards. FSDP's shards are views into flat buffers, Megatron's
parameters and gradients into a few large ones, and its optimizer's tensors into those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, UntypedStorage

PIECE_BYTES = 2**26
"""Host memory is allocated in pieces of 64 MiB: page-locked memory comes in powers of two, so
pieces of any size could use twice as much."""


class Offloader:
    """Moves some tensors' storages, each with all its views, to host memory and back. Host memory
    is kept for the next time."""

    def __init__(
        self,
        tensors: Callable[[], Iterable[Tensor]],
        device: torch.device,
        *,
        keep: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """`tensors` is called at every offload; tensors that are not on `device` stay. `keep`
        False: discard the bytes, restore zeros."""
        self._tensors = tensors
        self._device = device
        self._keep = keep
        self._piece_bytes = piece_bytes
        self._pieces: list[Tensor] = []
        self._away: list[tuple[UntypedStorage, int]] = []

    @torch.no_grad()
    def offload(self) -> None:
        """Empty the storages; does nothing where they are offloaded already."""
        if self._away:
            return
        present = storages(self._tensors(), self._device)
        sized = [(storage, storage.nbytes()) for storage in present]
        if self._keep:
            for on_device, on_host in self._pairs(sized):
                on_host.copy_(on_device, non_blocking=True)
        self._wait()
        for storage in present:
            storage.resize_(0)
        self._away = sized

    @torch.no_grad()
    def onload(self) -> None:
        """Undo `offload`; does nothing where nothing is offloaded."""
        for storage, size in self._away:
            storage.resize_(size)
            if not self._keep:
                _bytes(storage).zero_()
        if self._keep:
            for on_device, on_host in self._pairs(self._away):
                on_device.copy_(on_host, non_blocking=True)
        self._wait()
        self._away = []

    def move(self, device: torch.device) -> None:
        """Offload where `device` is the CPU, else undo it."""
        if device.type == "cpu":
            self.offload()
        else:
            self.onload()

    def _pairs(self, stored: list[tuple[UntypedStorage, int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (a storage's bytes, their place in host memory), one after another, in `stored`'s
        order. Host memory is allocated at its first use."""
        place = 0
        for storage, size in stored:
            start = 0
            on_device = _bytes(storage)
            while start < size:
                number, offset = divmod(place, self._piece_bytes)
                count = min(size - start, self._piece_bytes - offset)
                if number == len(self._pieces):
                    pinned = self._device.type == "cuda"
                    piece = torch.empty(self._piece_bytes, dtype=torch.uint8, pin_memory=pinned)
                    self._pieces.append(piece)
                on_host = self._pieces[number][offset : offset + count]
                yield on_device[start : start + count], on_host
                start += count
                place += count

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def storages(tensors: Iterable[Tensor], device: torch.device) -> list[UntypedStorage]:
    """The storages on `device` that are not empty, each once."""
    by_address: dict[int, UntypedStorage] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if tensor.device == device and storage.nbytes() > 0:
            by_address[storage.data_ptr()] = storage
    return list(by_address.values())


def _bytes(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
