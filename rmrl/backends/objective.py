"""From a micro-batch and its log-probabilities to one differentiable number, the same for every engine.

Everything here is an un-normalised sum. The engine divides by the weight of the whole mini-batch over all processes, so results do
not depend on how rows were dealt or cut.

Shapes: B rows of the micro-batch    S longest row    T longest response    N response tokens of all rows, flat and row by row
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rmrl.algorithms import aggregate
from rmrl.algorithms.losses.total import total_loss
from rmrl.backends.base import TrainSettings
from rmrl.types import LossInputs, Ragged, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTokens:
    """One micro-batch as the model takes it; see rmrl.models.logprobs.ResponseModel.forward."""

    input_ids_BS: Tensor
    positions_N: Tensor
    targets_N: Tensor


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """A tensor on `device`; to CUDA through pinned memory, without waiting for the copy."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def response_tokens(batch: TrainBatch, device: torch.device) -> ResponseTokens:
    """Right-pad the rows and find, for each response token, the position before it. Every row needs at least one prompt token."""
    sizes_B, responses_B = batch.tokens.lengths, batch.response_mask.lengths
    assert (sizes_B > responses_B).all(), "a row without a prompt token: its first response token has no probability"
    tokens_BS = batch.tokens.padded(0)
    starts_B = np.arange(len(batch)) * tokens_BS.shape[1] + sizes_B - responses_B - 1
    positions = Ragged.of([start + np.arange(n) for start, n in zip(starts_B, responses_B, strict=True)], np.int64).values
    return ResponseTokens(
        input_ids_BS=to_device(tokens_BS, device),
        positions_N=to_device(positions, device),
        targets_N=to_device(tokens_BS.reshape(-1)[positions + 1], device),
    )


def weight_and_tokens(batch: TrainBatch, settings: TrainSettings) -> tuple[float, float]:
    """This batch's share of the loss's divisor, and its counted tokens."""
    mask_BT = torch.from_numpy(batch.response_mask.padded(0))
    weight = aggregate.total_weight(mask_BT, settings.actor.loss_agg_mode, max_length=settings.max_response_length)
    return float(weight), float(mask_BT.sum(dtype=torch.float64))


def weighted_loss(
    batch: TrainBatch, logprobs_N: Tensor, entropy_N: Tensor | None, *, settings: TrainSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum over the micro-batch of weight x loss (a scalar with gradient), and metric sums over counted tokens.

    Without `old_logprobs` the log-probabilities themselves stand in, detached: right for a single step on fresh rollouts. The sums
    then hold `rollout_logprob_diff`, how far the sampling engine's log-probabilities are from these.
    """
    inputs = _loss_inputs(batch, logprobs_N, entropy_N)
    loss_BT, sums = total_loss(inputs, settings=settings.actor)
    weights_BT = aggregate.token_weights(inputs.mask_BT, settings.actor.loss_agg_mode, max_length=settings.max_response_length)
    if batch.old_logprobs is None and inputs.rollout_logprobs_BT is not None:
        # Several updates measure this once from old_logprobs, on the controller; here the first forward pass is the measurement.
        apart_BT = (inputs.logprobs_BT.detach() - inputs.rollout_logprobs_BT).abs()
        sums = {**sums, "rollout_logprob_diff": (apart_BT * inputs.mask_BT).sum()}
    return (loss_BT * weights_BT).sum(), sums


def _loss_inputs(batch: TrainBatch, logprobs_N: Tensor, entropy_N: Tensor | None) -> LossInputs:
    device = logprobs_N.device
    lengths_B = batch.response_mask.lengths
    present_BT = to_device(np.arange(lengths_B.max())[None, :] < lengths_B[:, None], device)

    def unflatten(flat_N: Tensor) -> Tensor:
        return torch.zeros(present_BT.shape, dtype=flat_N.dtype, device=device).masked_scatter(present_BT, flat_N)

    def stream(ragged: Ragged | None) -> Tensor | None:
        return None if ragged is None else to_device(ragged.padded(0), device).float()

    logprobs_BT = unflatten(logprobs_N)
    old_logprobs_BT = stream(batch.old_logprobs)
    advantages_BT, mask_BT = stream(batch.advantages), stream(batch.response_mask)
    assert mask_BT is not None
    assert advantages_BT is not None, "update() needs a batch with advantages"
    return LossInputs(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=logprobs_BT.detach() if old_logprobs_BT is None else old_logprobs_BT,
        advantages_BT=advantages_BT,
        mask_BT=mask_BT,
        ref_logprobs_BT=stream(batch.ref_logprobs),
        rollout_logprobs_BT=stream(batch.rollout_logprobs),
        entropy_BT=None if entropy_N is None else unflatten(entropy_N),
        old_values_BT=stream(batch.values),
        returns_BT=stream(batch.returns),
    )
