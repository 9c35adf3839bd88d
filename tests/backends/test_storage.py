"""Pieces of tensors go to safetensors files and come back, whoever holds which box; what is missing
is an error in every process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from rmrl.backends import storage
from rmrl.backends.storage import Piece, boxes, read_pieces, stored_tensors, whole, write_pieces
from rmrl.errors import CheckpointError
from tests.backends.full_disk import full_disk


def test_a_range_of_elements_is_at_most_a_few_boxes():
    """Of 4 rows of 3: element 2 is (0, 2), rows 1 and 2 are whole, elements 9 and 10 are (3, 0) and
    (3, 1)."""
    assert list(boxes((4, 3), 2, 11)) == [
        (2, ((0, 2), (1, 1))),
        (3, ((1, 0), (2, 3))),
        (9, ((3, 0), (1, 2))),
    ]
    assert list(boxes((4, 3), 0, 12)) == [(0, ((0, 0), (4, 3)))]
    assert list(boxes((4, 3), 4, 5)) == [(4, ((1, 1), (1, 1)))]
    assert list(boxes((4, 3), 5, 7)) == [(5, ((1, 2), (1, 1))), (6, ((2, 0), (1, 1)))]
    assert list(boxes((7,), 2, 5)) == [(2, ((2,), (3,)))]
    assert list(boxes((4, 3), 3, 3)) == []


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4), (1, 1, 5), (3, 1, 2)])
def test_boxes_hold_their_range_and_nothing_else(shape: tuple[int, ...]):
    numbers = torch.arange(int(torch.tensor(shape).prod())).view(shape)
    for start in range(numbers.numel() + 1):
        for stop in range(start, numbers.numel() + 1):
            found: list[int] = []
            for first, (offsets, sizes) in boxes(shape, start, stop):
                box = numbers[
                    tuple(
                        slice(offset, offset + size)
                        for offset, size in zip(offsets, sizes, strict=True)
                    )
                ]
                assert box.flatten()[0] == first
                assert box.is_contiguous() or box.flatten().diff().eq(1).all()
                found += box.flatten().tolist()
            assert found == list(range(start, stop))
            assert len(list(boxes(shape, start, stop))) <= 2 * len(shape) - 1


def range_pieces(name: str, like: torch.Tensor, start: int, stop: int) -> list[Piece]:
    """The elements [start, stop) of `like`, whose memory they are."""
    flat = like.view(-1)
    return [
        Piece(
            name=name,
            size=tuple(like.shape),
            offset=offsets,
            data=flat[first : first + int(torch.tensor(sizes).prod())].view(sizes),
        )
        for first, (offsets, sizes) in boxes(like.shape, start, stop)
    ]


def test_one_process_writes_ranges_and_reads_others(tmp_path: Path):
    numbers = torch.arange(60, dtype=torch.float32).view(10, 6)
    write_pieces(
        tmp_path,
        [
            *range_pieces("a", numbers, 0, 27),
            *range_pieces("a", numbers, 27, 60),
            whole("b", numbers[:2].bfloat16()),
        ],
    )
    assert stored_tensors(tmp_path) == {
        "a": ((10, 6), torch.float32),
        "b": ((2, 6), torch.bfloat16),
    }
    got, again = torch.zeros(10, 6), torch.zeros(10, 6, dtype=torch.bfloat16)
    read_pieces(tmp_path, [*range_pieces("a", got, 5, 50), whole("a", again)])
    assert got.flatten().tolist() == [0.0] * 5 + list(range(5, 50)) + [0.0] * 10
    assert torch.equal(again, numbers.bfloat16())  # another piece of the same name, cast on the way


def test_files_stay_small_and_hold_a_name_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of 40 bytes a file: a and b (24 bytes each) do not fit together, c (16) fits beside one of
    them, d (100) fills two and a half."""
    monkeypatch.setattr(storage, "FILE_BYTES", 40)
    write_pieces(
        tmp_path,
        [
            whole("a", torch.zeros(6)),
            whole("b", torch.zeros(6)),
            whole("c", torch.zeros(4)),
            whole("d", torch.zeros(25)),
        ],
    )
    held = []
    for file in sorted(tmp_path.iterdir()):
        with safe_open(file, framework="pt") as opened:
            held.append(sorted(opened.keys()))
    assert held == [["a", "c"], ["b"], ["d"], ["d"], ["d"]]
    assert stored_tensors(tmp_path)["d"] == ((25,), torch.float32)


def test_a_full_disk_is_a_checkpoint_error(tmp_path: Path):
    with (
        full_disk(1000),
        pytest.raises(CheckpointError, match=r"cannot be written: .*File too large"),
    ):
        write_pieces(tmp_path, [whole("a", torch.zeros(1000))])


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path):
    write_pieces(tmp_path, [whole("a", torch.ones(4, 2)), whole("b", torch.ones(3))])
    target = torch.zeros(3)
    with pytest.raises(CheckpointError, match="holds no 'c'"):
        read_pieces(tmp_path, [whole("b", target), whole("c", torch.zeros(1))])
    with pytest.raises(
        CheckpointError, match=r"holds 'a' with shape \(4, 2\).* and the model has \(4, 3\)"
    ):
        read_pieces(tmp_path, [whole("b", target), whole("a", torch.zeros(4, 3))])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="the checkpoint is torn"):
        read_pieces(tmp_path, [whole("b", target)])
    with pytest.raises(CheckpointError, match="the checkpoint is torn"):
        stored_tensors(tmp_path)
    assert target.tolist() == [0.0] * 3


def test_pieces_that_leave_a_hole_are_noticed(tmp_path: Path):
    """The last row is there, so the shape looks right."""
    rows = torch.ones(4, 2)
    write_pieces(tmp_path, [Piece(name="a", size=(4, 2), offset=(2, 0), data=rows[2:])])
    read_pieces(tmp_path, [Piece(name="a", size=(4, 2), offset=(3, 0), data=torch.zeros(1, 2))])
    with pytest.raises(CheckpointError, match="4 of the 8 numbers"):
        read_pieces(tmp_path, [whole("a", rows)])
