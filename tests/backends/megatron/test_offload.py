"""Storages emptied and filled again, with every view of them."""

from __future__ import annotations

import torch

from rmrl.backends.offload import Offloader, storages

CPU = torch.device("cpu")


def test_views_show_the_same_bytes_afterwards():
    buffer = torch.arange(10.0)
    views = [buffer[:4].view(2, 2), buffer[4:]]
    other = torch.arange(5, dtype=torch.int64)
    # 40 bytes and 40 bytes in pieces of 16: pieces hold parts of both.
    offloader = Offloader(lambda: [*views, other], CPU, piece_bytes=16)
    for _ in range(2):
        offloader.offload()
        assert buffer.untyped_storage().nbytes() == 0
        assert other.untyped_storage().nbytes() == 0
        offloader.offload()  # nothing is left to do
        offloader.onload()
        assert buffer.tolist() == list(range(10))
        assert views[0].tolist() == [[0, 1], [2, 3]]
        assert views[1].data_ptr() == buffer.data_ptr() + 16
        assert other.tolist() == list(range(5))
        offloader.onload()
    assert len(offloader._pieces) == 5  # 80 bytes, taken once


def test_what_is_not_kept_comes_back_as_zeros():
    buffer = torch.ones(8)
    view = buffer[2:4]
    offloader = Offloader(lambda: [buffer], CPU, keep=False)
    offloader.offload()
    assert buffer.untyped_storage().nbytes() == 0
    offloader.onload()
    assert view.tolist() == [0, 0]
    assert offloader._pieces == []


def test_tensors_are_asked_for_at_every_offload():
    """An optimizer has its averages after the first step only."""
    state = {"weight": torch.ones(3)}
    offloader = Offloader(lambda: state.values(), CPU)
    offloader.offload()
    offloader.onload()
    state["average"] = torch.full((5,), 2.0)
    offloader.offload()
    assert [tensor.untyped_storage().nbytes() for tensor in state.values()] == [0, 0]
    offloader.onload()
    assert [tensor.sum().item() for tensor in state.values()] == [3, 10]


def test_storages_are_counted_once_and_only_on_the_device():
    buffer = torch.zeros(4)
    assert len(storages([buffer, buffer[1:], torch.zeros(2), torch.zeros(0)], CPU)) == 2
    assert storages([buffer], torch.device("meta")) == []


# --- of a model
