"""Rows of a micro-batch as one process's input; no process group needed."""

from __future__ import annotations

import numpy as np
import torch

from rmrl.backends.megatron.rows import Layout, lay_out
from rmrl.backends.micro_batches import dummy_row
from rmrl.types import Ragged, TrainBatch

CPU = torch.device("cpu")


def batch_of(*rows: tuple[list[int], int]) -> TrainBatch:
    """Rows of (tokens, how many of them are response)."""
    return TrainBatch(
        tokens=Ragged.of([tokens for tokens, _ in rows], np.int64),
        response_mask=Ragged.of([np.ones(responses) for _, responses in rows], np.float32),
    )


TWO = batch_of(([10, 11, 12, 13, 14], 2), ([20, 21, 22], 1))


def test_padded_rows_have_the_length_of_the_longest():
    rows = lay_out(TWO, Layout(packed=False), CPU)
    assert rows.input_ids_BS.tolist() == [[10, 11, 12, 13, 14], [20, 21, 22, 0, 0]]
    assert rows.position_ids_BS.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert (rows.positions_n.tolist(), rows.targets_n.tolist()) == ([2, 3, 6], [13, 14, 22])
    assert (rows.boundaries, rows.index_n, rows.size, max(rows.lengths)) == (None, None, 3, 5)


def test_padded_rows_are_a_multiple():
    rows = lay_out(TWO, Layout(packed=False, multiple=4), CPU)
    assert rows.input_ids_BS.tolist() == [
        [10, 11, 12, 13, 14, 0, 0, 0],
        [20, 21, 22, 0, 0, 0, 0, 0],
    ]
    assert (rows.positions_n.tolist(), rows.targets_n.tolist()) == ([2, 3, 9], [13, 14, 22])


def test_packed_rows_are_each_a_multiple():
    rows = lay_out(TWO, Layout(packed=True, multiple=2), CPU)
    assert rows.input_ids_BS.tolist() == [[10, 11, 12, 13, 14, 0, 20, 21, 22, 0]]
    assert rows.position_ids_BS.tolist() == [[0, 1, 2, 3, 4, 5, 0, 1, 2, 3]]
    assert rows.boundaries is not None
    assert (rows.boundaries.tolist(), rows.boundaries.dtype, max(rows.lengths)) == (
        [0, 6, 10],
        torch.int32,
        6,
    )
    assert (rows.positions_n.tolist(), rows.targets_n.tolist()) == ([2, 3, 7], [13, 14, 22])


def test_filling_makes_up_a_common_length():
    layout = Layout(packed=True, multiple=2)
    assert layout.packed_length(TWO) == 10
    rows = lay_out(TWO, layout.of_length(24), CPU)
    assert rows.input_ids_BS.shape == (1, 24)
    assert rows.boundaries is not None
    assert (rows.boundaries.tolist(), max(rows.lengths)) == ([0, 6, 10, 24], 14)
    assert rows.targets_n.tolist() == [13, 14, 22]


def test_filling_has_few_rows_however_short_the_others_are():
    """What a process without rows of its own runs where another's fill 16384 tokens: attention goes
    row by row."""
    rows = lay_out(dummy_row(TWO), Layout(packed=True, multiple=6, length=16386), CPU)
    assert rows.boundaries is not None
    lengths = rows.boundaries.diff().tolist()
    assert lengths == [6, *[1026] * 15, 990]
    assert max(rows.lengths) == 1026


def test_filling_rows_are_as_long_as_the_longest_one_where_that_is_long():
    rows = lay_out(batch_of((list(range(3000)), 1)), Layout(packed=True, length=8000), CPU)
    assert rows.boundaries is not None
    assert rows.boundaries.tolist() == [0, 3000, 6000, 8000]


def test_context_parallel_processes_hold_the_first_and_last_chunks_of_each_row():
    batch = batch_of(([10, 11, 12, 13, 14, 15, 16], 6), ([20, 21, 22], 1))
    first, second = (
        lay_out(batch, Layout(packed=False, multiple=4, context=2, context_rank=rank), CPU)
        for rank in (0, 1)
    )
    assert first.input_ids_BS.tolist() == [[10, 11, 16, 0], [20, 21, 0, 0]]
    assert second.input_ids_BS.tolist() == [[12, 13, 14, 15], [22, 0, 0, 0]]
    assert first.position_ids_BS.tolist() == [[0, 1, 6, 7]] * 2
    # Positions before the targets 11 12 | 13 14 15 16 | 22: the first process holds 0, 1 and row
    # 2's 1, the second 2 to 5.
    assert (first.positions_n.tolist(), first.targets_n.tolist()) == ([0, 1, 5], [11, 12, 22])
    assert (second.positions_n.tolist(), second.targets_n.tolist()) == (
        [0, 1, 2, 3],
        [13, 14, 15, 16],
    )
    assert first.index_n is not None
    assert second.index_n is not None
    assert (first.index_n.tolist(), second.index_n.tolist(), first.size) == (
        [0, 1, 6],
        [2, 3, 4, 5],
        7,
    )


def test_packed_rows_are_cut_one_by_one():
    rows = lay_out(TWO, Layout(packed=True, multiple=4, context=2, context_rank=1), CPU)
    assert rows.input_ids_BS.tolist() == [[12, 13, 14, 0, 21, 22]]
    assert rows.boundaries is not None
    assert rows.boundaries.tolist() == [0, 8, 12]
    # Positions before 13 14 | 22 are 2 and 3 of the first row and 1 of the second.
    assert (rows.positions_n.tolist(), rows.targets_n.tolist()) == ([0, 1, 4], [13, 14, 22])


def test_a_process_without_response_tokens_has_one_position_for_the_backward_pass():
    rows = lay_out(
        TWO.select([1]), Layout(packed=False, multiple=4, context=2, context_rank=0), CPU
    )
    assert rows.input_ids_BS.tolist() == [[20, 0]]
    assert rows.index_n is not None
    assert (
        rows.index_n.tolist(),
        rows.positions_n.tolist(),
        rows.targets_n.tolist(),
        rows.size,
    ) == ([], [0], [0], 1)


def test_padded_lengths_and_the_filling_up_to_a_common_length():
    sizes_B = np.asarray([3, 5])
    assert Layout(packed=False, multiple=4).padded_lengths(sizes_B) == [8, 8]
    packed = Layout(packed=True, multiple=4)
    assert packed.padded_lengths(sizes_B) == [4, 8]
    assert packed.of_length(16).padded_lengths(sizes_B) == [4, 8, 4]


def test_own_positions_are_the_first_and_last_chunk_of_each_row():
    assert Layout(packed=True).own_positions([4, 8]) is None
    first = Layout(packed=True, multiple=4, context=2).own_positions([4, 8])
    assert first is not None
    # rows of 4 and 8 positions in 4 chunks each: chunks 0 and 3 of each row
    assert first.tolist() == [0, 3, 4, 5, 10, 11]
