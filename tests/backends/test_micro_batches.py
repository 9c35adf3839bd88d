"""RowAssignment and cutting rows, with the numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rmrl.backends.micro_batches import Limits, cut, dummy_row, split_by_length, update_limits
from rmrl.config.schema import ActorConfig, CriticConfig, FSDPConfig
from rmrl.errors import ConfigError
from rmrl.types import Ragged, TrainBatch


def as_lists(parts: list[np.ndarray]) -> list[list[int]]:
    return [part.tolist() for part in parts]


def test_split_balances_tokens_with_equal_counts():
    # rounds: (9, 8) -> 9 | 8; then the lighter part 1 takes 5, part 0 takes 1: loads 10 and 13
    assert as_lists(split_by_length([5, 9, 1, 8], 2)) == [[1, 2], [0, 3]]


def test_split_of_a_number_that_does_not_divide():
    # rounds: 7 | 6, then part 1 (6) takes 5 and part 0 (7) takes 4: loads 11 | 11; the last row, 3,
    # goes to part 0
    assert as_lists(split_by_length([3, 4, 5, 6, 7], 2)) == [[0, 1, 4], [2, 3]]


def test_split_with_fewer_rows_than_processes_leaves_some_empty():
    assert as_lists(split_by_length([4], 3)) == [[0], [], []]
    assert as_lists(split_by_length([], 2)) == [[], []]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_split_loses_and_repeats_nothing(parts: int):
    lengths = np.random.default_rng(0).integers(1, 500, 100)
    split = split_by_length(lengths, parts)
    assert sorted(np.concatenate(split).tolist()) == list(range(100))
    counts = [len(part) for part in split]
    assert max(counts) - min(counts) <= 1
    if 100 % parts == 0:
        loads = [int(lengths[part].sum()) for part in split]
        assert max(loads) - min(loads) <= lengths.max()


def test_cut_by_tokens_counts_padding():
    # sorted 10 9 4 3 2; 2 x 10 <= 20, a third row would make 30; then 3 x 4 = 12
    assert as_lists(cut([4, 10, 3, 9, 2], Limits(tokens=20, rows=None))) == [[1, 3], [0, 2, 4]]


def test_cut_by_rows():
    assert as_lists(cut([4, 10, 3, 9, 2], Limits(tokens=None, rows=2))) == [[1, 3], [0, 2], [4]]


def test_cut_by_both():
    assert as_lists(cut([1, 1, 1, 1], Limits(tokens=3, rows=2))) == [[0, 1], [2, 3]]


def test_a_row_beyond_the_budget_goes_alone():
    assert as_lists(cut([50, 2, 2], Limits(tokens=10, rows=None))) == [[0], [1, 2]]


def test_packed_rows_fill_the_first_micro_batch_with_room():
    # 10 + 9 = 19, 4 does not fit in 20; 4 + 3 + 2 = 9; then 1 fits the first
    assert as_lists(cut([4, 10, 3, 9, 2, 1], Limits(tokens=20, rows=None, packed=True))) == [
        [1, 3, 5],
        [0, 2, 4],
    ]
    assert as_lists(cut([4, 10, 3, 9, 2, 1], Limits(tokens=20, rows=2, packed=True))) == [
        [1, 3],
        [0, 2],
        [4, 5],
    ]
    assert as_lists(cut([50, 2, 2], Limits(tokens=10, rows=None, packed=True))) == [[0], [1, 2]]


def test_packed_rows_need_no_more_micro_batches_than_padded_ones():
    lengths = np.random.default_rng(0).integers(1, 500, 200)
    padded, packed = (
        cut(lengths, Limits(tokens=1000, rows=None, packed=packed)) for packed in (False, True)
    )
    assert sorted(np.concatenate(packed).tolist()) == list(range(200))
    assert max(int(lengths[rows].sum()) for rows in packed) <= 1000
    assert len(packed) == -(-int(lengths.sum()) // 1000)  # as few as there can be
    assert len(padded) > len(packed)


def test_cut_of_nothing():
    assert cut([], Limits(tokens=10, rows=None)) == []


def test_limits_come_from_the_settings():
    assert update_limits(ActorConfig(ppo_max_token_len_per_gpu=99)) == Limits(tokens=99, rows=None)
    assert update_limits(
        ActorConfig(use_dynamic_bsz=False, ppo_micro_batch_size_per_gpu=4)
    ) == Limits(tokens=None, rows=4)
    shared = FSDPConfig(ulysses_sequence_parallel_size=4)  # each computes a fourth
    limits = update_limits(ActorConfig(ppo_max_token_len_per_gpu=99, fsdp_config=shared))
    assert limits.tokens == 4 * 99
    with pytest.raises(ConfigError, match="ppo_micro_batch_size_per_gpu=4"):
        update_limits(ActorConfig(use_dynamic_bsz=False))
    assert update_limits(CriticConfig(), section="critic", packed=True) == Limits(
        tokens=32768, rows=None, packed=True
    )
    with pytest.raises(ConfigError, match=r"set critic\.ppo_micro_batch_size_per_gpu=4"):
        update_limits(CriticConfig(use_dynamic_bsz=False), section="critic")


def test_dummy_has_the_streams_of_its_batch_and_counts_nothing():
    empty = Ragged.of([], np.float32)
    batch = TrainBatch(tokens=Ragged.of([], np.int64), response_mask=empty, advantages=empty)
    dummy = dummy_row(batch)
    assert dummy.response_mask.values.tolist() == [0.0]
    assert dummy.advantages.values.tolist() == [0.0]
    assert dummy.old_logprobs is None
    assert dummy.tokens.values.dtype == np.int64
