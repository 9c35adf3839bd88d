"""A micro-batch's loss from its log-probabilities or values: one differentiable number, the same
for every engine.

Everything here is an un-normalised sum. The engine divides by the whole mini-batch's weight over
all processes, so results do not depend on how rows were distributed or cut. Terms, weights and
metric sums all count the same tokens: `TrainBatch.loss_mask`. A mini-batch whose tokens were all
rejected weighs 0 and makes no step.

Shapes: B rows in the micro-batch    S longest row    T longest response    N response tokens of all
rows, flat and row by row
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rmrl.algorithms import aggregate
from rmrl.algorithms.losses.ratio import counted_sum
from rmrl.algorithms.losses.total import total_loss
from rmrl.algorithms.losses.value import explained_variance, value_loss
from rmrl.backends.base import TrainSettings
from rmrl.backends.own_tokens import own_tokens
from rmrl.backends.prompt_units import Sharing, arrays_of, computed_rows
from rmrl.models.packing import Layout, PackedRows
from rmrl.models.sequence_parallel import Slices
from rmrl.models.shared_prompts import SharedPrompts
from rmrl.types import LossInputs, Metrics, Ragged, TrainBatch, ValueLossInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTokens:
    """One micro-batch as the model's input. See rmrl.models.logprobs.ResponseModel.forward."""

    input_ids_BS: Tensor
    positions_N: Tensor
    targets_N: Tensor
    layout: Layout | None
    """The place of the rows. None: they are padded."""
    index_n: Tensor | None = None
    """Where several processes share the rows: which tokens this one computes, by their places among
    all N (rmrl.backends.own_tokens)."""


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """A tensor on `device`; to CUDA through pinned memory, without waiting for the copy."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor


def response_tokens(
    batch: TrainBatch,
    device: torch.device,
    *,
    packed: bool = False,
    multiple: int = 1,
    slices: Slices | None = None,
    own: bool = False,
) -> ResponseTokens:
    """Right-pad the rows, or pack them into one, and find, for each response token, the position
    before it. With `own` find each counted token's own position. `computed_rows` says which rows
    are among the model's B.

    Every row needs at least one prompt token. A row with zeros fills packed rows up until
    `multiple` divides their tokens. `slices`: the processes that share packed rows, whose number
    divides `multiple`. The result is this one's part.
    """
    sizes_B = batch.tokens.lengths
    responses_B = batch.response_mask.lengths
    assert (sizes_B > responses_B).all(), (
        "a row without a prompt token: its first response token has no probability"
    )
    index, place_B = computed_rows(batch, with_responses=own)
    computed = batch.tokens.select(index)
    if packed:
        missing = -len(computed.values) % multiple
        tokens_BS = np.pad(computed.values, (0, missing))[None]
        rows_B = computed.offsets[place_B]
        lengths = [*computed.lengths.tolist(), missing] if missing else computed.lengths
        rows = PackedRows.of(lengths, lambda array: to_device(array, device))
    else:
        tokens_BS = computed.padded(0)
        rows_B = place_B * tokens_BS.shape[1]
        rows = None
    starts_B = rows_B + sizes_B - responses_B - 1
    before = [start + np.arange(n) for start, n in zip(starts_B, responses_B, strict=True)]
    positions_N = Ragged.of(before, np.int64).values
    targets_N = Ragged.of(_responses(batch), np.int64).values
    if own:
        positions_N = _counted(positions_N + 1, batch)
    index_n = None
    if slices is not None:
        assert rows is not None, "processes share packed rows"
        assert not own, "each token's own position is read in whole rows"
        rows = rows.cut(slices)
        total = tokens_BS.shape[1]
        positions = np.arange(total)[slices.own(total)]
        tokens_BS = tokens_BS[:, positions]
        positions_N, targets_N, index_n = own_tokens(positions_N, targets_N, positions, total)
    return ResponseTokens(
        input_ids_BS=to_device(tokens_BS, device),
        positions_N=to_device(positions_N, device),
        targets_N=to_device(targets_N, device),
        layout=rows,
        index_n=None if index_n is None else to_device(index_n, device),
    )


def shared_tokens(
    batch: TrainBatch, device: torch.device, sharing: Sharing, *, own: bool = False
) -> ResponseTokens | None:
    """Put responses to one prompt into one sequence, None where that saves nothing. `own`: as in
    `response_tokens`."""
    units = arrays_of(batch, sharing, with_responses=own)
    if units is None:
        return None
    targets_N = Ragged.of(_responses(batch), np.int64).values
    positions_N = units.positions_N
    if own:
        positions_N = _counted(units.own_positions_N, batch)
    return ResponseTokens(
        input_ids_BS=to_device(units.tokens_US, device),
        positions_N=to_device(positions_N, device),
        targets_N=to_device(targets_N, device),
        layout=SharedPrompts.of(
            to_device(units.segments_US, device), to_device(units.position_ids_US, device)
        ),
    )


def _counted(positions_N: np.ndarray, batch: TrainBatch) -> np.ndarray:
    """The counted response tokens' positions."""
    return positions_N[batch.loss_mask.values > 0]


def _responses(batch: TrainBatch) -> Iterator[np.ndarray]:
    for tokens, length in zip(batch.tokens.rows(), batch.response_mask.lengths, strict=True):
        yield tokens[len(tokens) - length :]


def weight_and_tokens(batch: TrainBatch, settings: TrainSettings) -> tuple[float, float]:
    """This batch's share in the total weight (see rmrl.algorithms.aggregate), and its counted
    tokens."""
    mask_BT = torch.from_numpy(batch.loss_mask.padded(0))
    weight = aggregate.total_weight(
        mask_BT,
        settings.trained.loss_agg_mode,
        max_length=settings.max_response_length,
        unit_tokens_BT=_stream(batch.unit_tokens, mask_BT.device),
    )
    return float(weight), float(mask_BT.sum(dtype=torch.float64))


def weighted_loss(
    batch: TrainBatch, logprobs_N: Tensor, entropy_N: Tensor | None, *, settings: TrainSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum over the micro-batch of weight x loss (a scalar with gradient), and metric sums over
    counted tokens.

    Without `old_logprobs` the detached log-probabilities themselves replace them: right for a
    single step on fresh rollouts. The sums then have `rollout_logprob_diff`, how far the sampling
    engine's log-probabilities are from these.
    """
    device = logprobs_N.device
    logprobs_BT = _unflatten(logprobs_N, batch)
    old_logprobs_BT = _stream(batch.old_logprobs, device)
    if old_logprobs_BT is None:
        old_logprobs_BT = logprobs_BT.detach()
    advantages_BT = _stream(batch.advantages, device)
    mask_BT = _stream(batch.loss_mask, device)
    assert mask_BT is not None
    assert advantages_BT is not None, "update() needs a batch with advantages"
    inputs = LossInputs(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=old_logprobs_BT,
        advantages_BT=advantages_BT,
        mask_BT=mask_BT,
        ref_logprobs_BT=_stream(batch.ref_logprobs, device),
        rollout_logprobs_BT=_stream(batch.rollout_logprobs, device),
        rollout_weights_BT=_stream(batch.rollout_weights, device),
        entropy_BT=None if entropy_N is None else _unflatten(entropy_N, batch),
        nll_weights_BT=_stream(batch.nll_weights, device),
    )
    loss_BT, sums = total_loss(inputs, settings=settings.actor)
    weights_BT = _token_weights(inputs.mask_BT, batch, settings)
    if batch.old_logprobs is None and inputs.rollout_logprobs_BT is not None:
        # Several updates measure this once from old_logprobs, on the controller; here the first
        # forward pass is the measurement.
        difference_BT = (inputs.logprobs_BT - inputs.rollout_logprobs_BT).abs()
        sums = {**sums, "rollout_logprob_diff": counted_sum(difference_BT, inputs.mask_BT)}
    return (loss_BT * weights_BT).sum(), sums


def weighted_value_loss(
    batch: TrainBatch, values_N: Tensor, *, settings: TrainSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """`weighted_loss` for a critic's values and the batch's returns.

    Without `values` (those before the first update) the detached values themselves replace them.
    `value_metrics` reads the sums.
    """
    values_BT = _unflatten(values_N, batch)
    old_values_BT = _stream(batch.values, values_N.device)
    returns_BT = _stream(batch.returns, values_N.device)
    mask_BT = _stream(batch.loss_mask, values_N.device)
    assert mask_BT is not None
    assert returns_BT is not None, "a critic's update() needs a batch with returns"
    old_values_BT = values_BT.detach() if old_values_BT is None else old_values_BT
    inputs = ValueLossInputs(
        values_BT=values_BT, old_values_BT=old_values_BT, returns_BT=returns_BT, mask_BT=mask_BT
    )
    assert settings.critic is not None
    loss_BT, sums = value_loss(inputs, settings=settings.critic)
    return (loss_BT * _token_weights(mask_BT, batch, settings)).sum(), sums


def value_metrics(metrics: Metrics) -> Metrics:
    """A critic's metrics, with `critic/explained_variance` instead of the squared sums that it is
    computed from.

    It compares the values before each step with the returns, over all steps' counted tokens.
    """
    means = {name.removeprefix("critic/"): value for name, value in metrics.items()}
    if "return" not in means:
        return metrics  # no step had a token that counts
    means["explained_variance"] = explained_variance(means)
    del means["return_squared"], means["value_error_squared"]
    means["value_mean"] = means.pop("value")
    means["return_mean"] = means.pop("return")
    return {f"critic/{name}": value for name, value in means.items()}


def divisor(weight: float, settings: TrainSettings) -> float:
    """Divisor for a mini-batch's summed weighted losses; `weight` is the total weight over all
    processes, above 0."""
    return aggregate.divisor(weight, settings.trained.loss_agg_mode)


def _token_weights(mask_BT: Tensor, batch: TrainBatch, settings: TrainSettings) -> Tensor:
    return aggregate.token_weights(
        mask_BT,
        settings.trained.loss_agg_mode,
        max_length=settings.max_response_length,
        unit_tokens_BT=_stream(batch.unit_tokens, mask_BT.device),
    )


def _unflatten(flat_N: Tensor, batch: TrainBatch) -> Tensor:
    """One number per response token -> [B, T], right-padded with 0."""
    lengths_B = batch.response_mask.lengths
    present_BT = to_device(np.arange(lengths_B.max())[None, :] < lengths_B[:, None], flat_N.device)
    zeros_BT = torch.zeros(present_BT.shape, dtype=flat_N.dtype, device=flat_N.device)
    return zeros_BT.masked_scatter(present_BT, flat_N)


def _stream(ragged: Ragged | None, device: torch.device) -> Tensor | None:
    """The stream right-padded with 0, [B, T] float32."""
    if ragged is None:
        return None
    return to_device(ragged.padded(0), device).float()
