"""Bytes of tensors through two buffers that take turns."""

import pytest
import torch

from rmrl.inference.weights.staging import HostStage


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 40])
def test_pieces_are_the_bytes_in_order(count: int) -> None:
    """Buffers of 8 bytes: 17 bytes are pieces of 8, 8 and 1."""
    flat = torch.arange(count, dtype=torch.uint8)
    stage = HostStage(buffer_bytes=8)
    pieces = [bytes(piece) for piece in stage.staged(flat)]
    assert b"".join(pieces) == bytes(range(count))
    assert [len(piece) for piece in pieces if piece] == [8] * (count // 8) + [count % 8] * (
        count % 8 > 0
    )


def test_a_piece_is_untouched_while_the_next_one_is_copied() -> None:
    """The copy of a piece begins only when the piece two before it has been used."""
    source = torch.arange(32, dtype=torch.uint8)
    seen: list[bytes] = []
    for piece in HostStage(buffer_bytes=8).staged(source):
        source += 100  # later copies differ, this piece does not
        seen.append(bytes(piece))
    # When the first piece is handed over, the second one is in its buffer already.
    assert seen[0] == bytes(range(8))
    assert seen[1] == bytes(range(8, 16))
    assert seen[2] == bytes(x + 100 for x in range(16, 24))
    assert seen[3] == bytes(x + 200 for x in range(24, 32))


@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_tensors_of_the_host_need_no_buffer(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    stage = HostStage()
    data = b"".join(bytes(piece) for piece in stage.pieces(tensor))
    assert len(data) == tensor.numel() * tensor.element_size()
    assert not stage._buffers
    transposed = torch.arange(6, dtype=torch.int8).reshape(2, 3).T
    assert b"".join(bytes(piece) for piece in stage.pieces(transposed)) == bytes([0, 3, 1, 4, 2, 5])
