"""Device memory given back between training phases: bytes go to host memory and the storage they
lay in becomes empty.

Megatron's parameters and gradients are views of a few large buffers, and its optimizer's are views
of those. Here the storage is what moves, so every view stays what it was: it has nothing to show
while its storage is empty, and shows the same bytes afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, UntypedStorage

from rmrl.config.schema import MegatronConfig

if TYPE_CHECKING:
    from rmrl.backends.megatron.model import MegatronModel
    from rmrl.backends.megatron.optimizer import Optimizer

PIECE_BYTES = 2**26
"""Host memory is taken in pieces of 64 MiB: page-locked memory comes in powers of two, so pieces of
any size could take twice as much."""


class Offloader:
    """The storages of some tensors, each with all its views: to host memory and back. Host memory
    once taken is kept for the next time."""

    def __init__(
        self,
        tensors: Callable[[], Iterable[Tensor]],
        device: torch.device,
        *,
        keep: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """`tensors` is asked at every offload; what does not lie on `device` stays. `keep` False:
        drop the bytes, come back with zeros."""
        self._tensors, self._device = tensors, device
        self._keep, self._piece_bytes = keep, piece_bytes
        self._pieces: list[Tensor] = []
        self._away: list[tuple[UntypedStorage, int]] = []

    @torch.no_grad()
    def offload(self) -> None:
        """Empty the storages; nothing where they are away already."""
        if self._away:
            return
        here = [(storage, storage.nbytes()) for storage in storages(self._tensors(), self._device)]
        if self._keep:
            for on_device, on_host in self._pairs(here):
                on_host.copy_(on_device, non_blocking=True)
        self._wait()
        for storage, _ in here:
            storage.resize_(0)
        self._away = here

    @torch.no_grad()
    def onload(self) -> None:
        """Undo `offload`; nothing where nothing is away."""
        for storage, size in self._away:
            storage.resize_(size)
            if not self._keep:
                _bytes(storage).zero_()
        if self._keep:
            for on_device, on_host in self._pairs(self._away):
                on_device.copy_(on_host, non_blocking=True)
        self._wait()
        self._away = []

    def _pairs(self, stored: list[tuple[UntypedStorage, int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """(bytes of a storage, their place in host memory): one after another, in the order of
        `stored`."""
        place = 0
        for storage, size in stored:
            start, on_device = 0, _bytes(storage)
            while start < size:
                piece, offset = divmod(place, self._piece_bytes)
                count = min(size - start, self._piece_bytes - offset)
                yield on_device[start : start + count], self._piece(piece)[offset : offset + count]
                start, place = start + count, place + count

    def _piece(self, number: int) -> Tensor:
        if number == len(self._pieces):
            self._pieces.append(
                torch.empty(
                    self._piece_bytes, dtype=torch.uint8, pin_memory=self._device.type == "cuda"
                )
            )
        return self._pieces[number]

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def storages(tensors: Iterable[Tensor], device: torch.device) -> list[UntypedStorage]:
    """The storages on `device` that hold something, each once."""
    found = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for tensor in tensors
        if tensor.device == device
    }
    return [storage for storage in found.values() if storage.nbytes() > 0]


def _bytes(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def offloaders(
    model: MegatronModel, optimizer: Optimizer | None, megatron: MegatronConfig
) -> list[Offloader]:
    """What the settings say is offloaded: parameters, gradients (not kept, between phases they are
    zero), the optimizer's tensors."""

    def of_optimizer() -> Iterator[Tensor]:
        # In float32 the distributed optimizer updates the parameters themselves: those are not its
        # own.
        others = {
            storage.data_ptr()
            for storage in storages([*parameters(model), *gradients(model)], model.device)
        }
        tensors = () if optimizer is None else optimizer.tensors()
        return (tensor for tensor in tensors if tensor.untyped_storage().data_ptr() not in others)

    chosen = []
    if megatron.param_offload:
        chosen.append(Offloader(lambda: parameters(model), model.device))
    if megatron.grad_offload:
        chosen.append(Offloader(lambda: gradients(model), model.device, keep=False))
    if megatron.optimizer_offload and optimizer is not None:
        chosen.append(Offloader(of_optimizer, model.device))
    return chosen


def parameters(model: MegatronModel) -> list[Tensor]:
    """Of all stages of this process."""
    return [parameter.data for module in model.modules for parameter in module.parameters()]


def gradients(model: MegatronModel) -> list[Tensor]:
    """Where gradients add up; none of a model that does not train."""
    held = (
        getattr(parameter, "main_grad", None)
        for module in model.modules
        for parameter in module.parameters()
    )
    return [gradient for gradient in held if gradient is not None]
