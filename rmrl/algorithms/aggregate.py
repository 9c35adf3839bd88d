"""Combine per-token losses into one number, written so that no micro-batch or process needs the
others.

    loss = sum over all tokens of loss_BT * token_weights(mask_BT)
           / divisor(sum over all parts of total_weight(mask_BT))

| mode                    | weight of a counted token | total weight   | a sequence's loss       |
|-------------------------|---------------------------|----------------|-------------------------|
| token-mean              | 1                         | counted tokens | (no sequence level)     |
| token-sum               | 1                         | counted tokens | (no sequence level)     |
| seq-mean-token-sum      | 1                         | sequences      | the sum of its tokens   |
| seq-mean-token-mean     | 1 / tokens of its row     | sequences      | the mean of its tokens  |
| seq-mean-token-sum-norm | 1 / max_length            | sequences      | the sum over a constant |
| prompt-mean             | 1 / tokens of its prompt  | prompts        | (no sequence level)     |

A prompt's tokens are the counted tokens in all its responses in the mini-batch. A response whose
branches are several rows is one sequence with their tokens. A part that holds only some rows cannot
count them: `unit_tokens_BT` brings the number, and a part's total weight is the share that it has.

The divisor is the total weight, except for `token-sum`, which divides by 1: its total weight only
says whether anything counts. `token-mean` is DAPO's (arXiv:2503.14476), `seq-mean-token-mean`
GRPO's (arXiv:2402.03300), `seq-mean-token-sum-norm` Dr. GRPO's (arXiv:2503.20783), `prompt-mean`
CISPO's and ScaleRL's (arXiv:2506.13585, arXiv:2510.13786). Rows whose mask is all zero are no
sequences: they weigh nothing in either sum, so padding a batch with empty rows changes nothing.
Because both sums are plain sums, the result does not depend on how a batch is cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

if TYPE_CHECKING:
    import torch

PROMPT_MEAN = "prompt-mean"
AGGREGATION_MODES = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    PROMPT_MEAN,
)


def token_weights(
    mask_BT: torch.Tensor,
    mode: str,
    *,
    max_length: int,
    unit_tokens_BT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return each token's loss weight before normalisation, [B, T] in the mask's floating dtype.
    The weight is 0 where the mask is 0.

    `max_length` is seq-mean-token-sum-norm's constant (the longest response allowed, in tokens, the
    same in every call in a run). `unit_tokens_BT`: how many tokens of the whole mini-batch count in
    the row's prompt (prompt-mean, which needs it) or sequence. None: each row is a sequence. The
    token modes ignore both. Raises ConfigError for an unknown mode or a `max_length`
    below 1 where the mode uses it.
    """
    _check(mode, max_length)
    mask_BT = _as_float(mask_BT)
    if mode == "seq-mean-token-sum-norm":
        return mask_BT / max_length
    if mode in ("seq-mean-token-mean", PROMPT_MEAN):
        if unit_tokens_BT is None:
            assert mode != PROMPT_MEAN, "prompt-mean needs the tokens of each row's prompt"
            unit_tokens_BT = mask_BT.sum(dim=1, keepdim=True)
        return mask_BT / unit_tokens_BT.clamp(min=1)  # an empty row divides 0 by 1
    return mask_BT


def total_weight(
    mask_BT: torch.Tensor,
    mode: str,
    *,
    max_length: int,
    unit_tokens_BT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the counted tokens, the sequences or the share of prompts in this part, to be summed
    over all parts. Scalar, same dtype as the weights. Shares are float64.

    Return 0 when nothing counts, and then there is no loss. Errors as for `token_weights`.
    """
    _check(mode, max_length)
    mask_BT = _as_float(mask_BT)
    if mode in ("token-mean", "token-sum"):
        return mask_BT.sum()
    if unit_tokens_BT is None:
        assert mode != PROMPT_MEAN, "prompt-mean needs the tokens of each row's prompt"
        return (mask_BT > 0).any(dim=1).sum().to(mask_BT.dtype)
    # float64: shares must add up to whole prompts over all parts
    return (mask_BT.double() / unit_tokens_BT.clamp(min=1)).sum()


def divisor(weight: float, mode: str) -> float:
    """Return the divisor for a whole batch's sum of weighted losses. `weight` is the batch's total
    weight, above 0."""
    assert weight > 0, "nothing counts, so there is nothing to divide"
    return 1.0 if mode == "token-sum" else weight


def _as_float(mask_BT: torch.Tensor) -> torch.Tensor:
    # bfloat16 cannot count beyond 256 exactly, so half precision is widened, not kept
    if mask_BT.is_floating_point() and mask_BT.element_size() >= 4:
        return mask_BT
    return mask_BT.float()


def _check(mode: str, max_length: int) -> None:
    if mode not in AGGREGATION_MODES:
        raise ConfigError(
            "actor_rollout_ref.actor.loss_agg_mode: nothing named"
            f" '{mode}'{did_you_mean(mode, AGGREGATION_MODES)}"
        )
    if mode == "seq-mean-token-sum-norm" and max_length < 1:
        raise ConfigError(
            f"loss_agg_mode={mode} divides by the longest response allowed, which is {max_length}:"
            " it must be at least 1"
        )
