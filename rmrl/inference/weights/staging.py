"""Device tensors' bytes in host memory, piece by piece through pinned buffers.

`Tensor.cpu()` copies into fresh pageable memory, at a fraction of the bus's bandwidth, and holds
the tensor twice. Two pinned buffers take turns here: while the bytes of one are written, the next
piece is on its way into the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

BUFFER_BYTES = 64 * 2**20
"""Size of each buffer. A power of two, to which pinned memory is rounded up."""


class HostStage:
    """Two buffers, made when a device's first tensor arrives."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._buffer_bytes = buffer_bytes
        self._buffers: list[torch.Tensor] = []

    def pieces(self, tensor: torch.Tensor) -> Iterator[memoryview]:
        """Yield a tensor's bytes in order. A piece is valid until the next one is taken."""
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        if flat.device.type == "cpu":
            yield memoryview(flat.numpy())  # pyright: ignore[reportArgumentType]
            return
        yield from self.staged(flat)

    def staged(self, flat: torch.Tensor) -> Iterator[memoryview]:
        """Yield a flat uint8 tensor's bytes, from any device, through the buffers."""
        on_cuda = flat.is_cuda
        if not self._buffers:
            for _ in range(2):
                self._buffers.append(
                    torch.empty(self._buffer_bytes, dtype=torch.uint8, pin_memory=on_cuda)
                )
        ahead: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        for number, piece in enumerate(flat.split(self._buffer_bytes)):
            buffer = self._buffers[number % 2][: len(piece)]
            buffer.copy_(piece, non_blocking=on_cuda)
            arrival = None
            if on_cuda:
                arrival = torch.cuda.Event()
                arrival.record(torch.cuda.current_stream(flat.device))
            if ahead is not None:
                yield _arrived(*ahead)
            ahead = (buffer, arrival)
        if ahead is not None:
            yield _arrived(*ahead)


def _arrived(buffer: torch.Tensor, arrival: torch.cuda.Event | None) -> memoryview:
    if arrival is not None:
        arrival.synchronize()
    return memoryview(buffer.numpy())  # pyright: ignore[reportArgumentType]
