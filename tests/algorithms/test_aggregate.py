"""Aggregation: the table's numbers, and independence of how a batch is cut or padded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.algorithms.aggregate import AGGREGATION_MODES, divisor, token_weights, total_weight
from rmrl.errors import ConfigError

GROUPS_B = torch.tensor([7, 7, 3])
LOSS_BT = torch.tensor([[1.0, 2.0, 3.0, 9.0], [5.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]])
MASK_BT = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def unit_tokens(mask_BT: torch.Tensor, groups_B: torch.Tensor, mode: str) -> torch.Tensor | None:
    """Counted tokens of each row's group, [B, T]; None where each row is a sequence."""
    if mode != "prompt-mean":
        return None
    same_BB = (groups_B[:, None] == groups_B[None, :]).float()
    return (same_BB @ mask_BT.sum(1, keepdim=True)).expand_as(mask_BT)


def aggregate(
    loss_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    mode: str,
    max_length: int = 10,
    groups_B: torch.Tensor = GROUPS_B,
) -> float:
    further = {"max_length": max_length, "unit_tokens_BT": unit_tokens(mask_BT, groups_B, mode)}
    weights_BT = token_weights(mask_BT, mode, **further)
    return (loss_BT * weights_BT).sum().item() / divisor(
        total_weight(mask_BT, mode, **further).item(), mode
    )


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 11 / 4),  # (1 + 2 + 3 + 5) / 4 tokens
        ("token-sum", 11.0),  # 1 + 2 + 3 + 5
        ("seq-mean-token-sum", 11 / 2),  # (6 + 5) / 2 sequences
        ("seq-mean-token-mean", 7 / 2),  # (6 / 3 + 5 / 1) / 2
        ("seq-mean-token-sum-norm", 11 / 20),  # (6 / 10 + 5 / 10) / 2
        ("prompt-mean", 11 / 4),  # rows 0 and 1 answer one prompt; row 2's has no token
    ],
)
def test_hand_computed_with_an_empty_row(mode: str, expected: float) -> None:
    assert aggregate(LOSS_BT, MASK_BT, mode) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 11 / 4),
        ("seq-mean-token-sum", 11.0),
        ("seq-mean-token-mean", 11 / 4),  # (6 + 5) / 4 tokens of one sequence
        ("seq-mean-token-sum-norm", 11 / 10),
    ],
)
def test_two_rows_of_one_sequence_by_hand(mode: str, expected: float) -> None:
    further = {"max_length": 10, "unit_tokens_BT": torch.full_like(MASK_BT, 4.0)}
    weights_BT = token_weights(MASK_BT, mode, **further)
    total = divisor(total_weight(MASK_BT, mode, **further).item(), mode)
    assert (LOSS_BT * weights_BT).sum().item() / total == pytest.approx(expected)


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
def test_nothing_counted_has_no_weight(mode: str) -> None:
    nothing_BT = torch.zeros(2, 3)
    further = {"max_length": 4, "unit_tokens_BT": nothing_BT}
    assert total_weight(nothing_BT, mode, **further).item() == 0
    assert token_weights(nothing_BT, mode, **further).tolist() == [[0.0] * 3] * 2


def test_every_prompt_weighs_the_same_whatever_its_tokens() -> None:
    loss_BT = torch.tensor([[1.0, 2.0, 3.0], [6.0, 9.0, 9.0], [4.0, 9.0, 9.0]])
    mask_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    groups_B = torch.tensor([5, 2, 5])
    # prompt 5: (1 + 2 + 3 + 4) / 4 tokens; prompt 2: 6; token-mean would give 16 / 5
    mean = aggregate(loss_BT, mask_BT, "prompt-mean", groups_B=groups_B)
    assert mean == pytest.approx((2.5 + 6) / 2)


def test_with_one_response_per_prompt_prompt_mean_is_the_mean_over_responses() -> None:
    groups_B = torch.arange(3)
    assert aggregate(LOSS_BT, MASK_BT, "prompt-mean", groups_B=groups_B) == pytest.approx(
        aggregate(LOSS_BT, MASK_BT, "seq-mean-token-mean")
    )


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=2, max_size=6).filter(any),
    cut=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_cut_anywhere_and_padded_the_parts_add_up(
    mode: str, lengths: list[int], cut: int, seed: int
) -> None:
    mask_BT = (torch.arange(6) < torch.tensor(lengths)[:, None]).float()
    loss_BT = torch.randn(mask_BT.shape, generator=torch.Generator().manual_seed(seed))
    groups_B = torch.arange(len(lengths)) % 3
    tokens_BT = unit_tokens(mask_BT, groups_B, mode)
    numerator = denominator = 0.0
    for part in (slice(0, cut), slice(cut, None)):
        width = max(lengths[part], default=0)  # each part padded to its own longest row
        part_mask_BT = mask_BT[part, :width]
        part_tokens_BT = None if tokens_BT is None else tokens_BT[part, :width]
        further = {"max_length": 6, "unit_tokens_BT": part_tokens_BT}
        weights_BT = token_weights(part_mask_BT, mode, **further)
        numerator += (loss_BT[part, :width] * weights_BT).sum().item()
        denominator += total_weight(part_mask_BT, mode, **further).item()
    assert numerator / divisor(denominator, mode) == pytest.approx(
        aggregate(loss_BT, mask_BT, mode, max_length=6, groups_B=groups_B), rel=1e-4, abs=1e-6
    )


def test_integer_and_half_masks_give_float32_weights() -> None:
    for dtype in (torch.bool, torch.int64, torch.bfloat16):
        mask_BT = torch.ones(1, 300).to(dtype)
        assert total_weight(mask_BT, "token-mean", max_length=1).item() == 300
        assert token_weights(mask_BT, "seq-mean-token-mean", max_length=1).dtype == torch.float32


def test_unknown_mode_and_missing_length_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"loss_agg_mode: .*'token-maen'.*'token-mean'"):
        token_weights(MASK_BT, "token-maen", max_length=1)
    with pytest.raises(ConfigError, match="which is 0: it must be at least 1"):
        total_weight(MASK_BT, "seq-mean-token-sum-norm", max_length=0)
    one_token = torch.ones(1, 1)
    assert total_weight(one_token, "seq-mean-token-sum-norm", max_length=1).item() == 1.0
    assert token_weights(one_token, "seq-mean-token-sum-norm", max_length=1).tolist() == [[1.0]]
