"""The value function's loss with PPO's value clip (arXiv:1707.06347 gives the square; the clip is
its released code's).

    loss = 1/2 max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2),        c =
      critic.cliprange_value

R are the returns that the advantage estimator gave, v_old the values before the step's first
update. A value that has moved further than c towards its return has no gradient. Means over tokens
are `aggregate`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rmrl.algorithms.losses.ratio import counted_sum, keep_counted
from rmrl.algorithms.masking import rounding_floor
from rmrl.config.schema.actor import CriticConfig
from rmrl.types import ValueLossInputs

LEAST_VARIANCE = 1e-8
"""Returns that vary by less have nothing to explain."""


def value_loss(
    inputs: ValueLossInputs, *, settings: CriticConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens (scalars without
    gradient).

    Keys: `value_loss`, `value_clip_fraction`, `value`, `return`, and `return_squared`,
    `value_error_squared`, from which, divided by the token count, `explained_variance` is computed.
    """
    mask_BT = inputs.mask_BT
    values_BT = keep_counted(inputs.values_BT, mask_BT)
    old_BT = keep_counted(inputs.old_values_BT, mask_BT)
    returns_BT = keep_counted(inputs.returns_BT, mask_BT)
    bound = settings.cliprange_value
    # leaves a value within the bound as it is, to the last bit
    near_BT = values_BT.clamp(old_BT - bound, old_BT + bound)
    free_BT = (values_BT - returns_BT).square()
    clipped_BT = (near_BT - returns_BT).square()
    loss_BT = 0.5 * torch.maximum(free_BT, clipped_BT)
    # squares in float64: their means are subtracted from each other, which costs float32 all digits
    # for returns far from 0
    exact_BT = returns_BT.double()
    errors_BT = values_BT.detach().double() - exact_BT
    sums = {
        "value_loss": counted_sum(loss_BT, mask_BT),
        "value_clip_fraction": counted_sum(clipped_BT > free_BT, mask_BT),
        "value": counted_sum(values_BT, mask_BT),
        "return": counted_sum(returns_BT, mask_BT),
        "return_squared": counted_sum(exact_BT.square(), mask_BT),
        "value_error_squared": counted_sum(errors_BT.square(), mask_BT),
    }
    return loss_BT, sums


def explained_variance(means: Mapping[str, float]) -> float:
    """1 - Var(R - v) / Var(R) from the means per token of `value_loss`'s sums: 1 is perfect, 0 no
    better than a constant.

    The means must be float64's. 0 where the returns vary by no more than rounding.
    """
    variance = means["return_squared"] - means["return"] ** 2
    error_variance = means["value_error_squared"] - (means["return"] - means["value"]) ** 2
    floor = float(rounding_floor(torch.tensor(abs(means["return"]), dtype=torch.float64)))
    if variance > max(floor**2, LEAST_VARIANCE):
        return 1 - error_variance / variance
    return 0.0
