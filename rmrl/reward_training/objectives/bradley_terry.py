"""Bradley-Terry: a pair's better response has the higher score.

    loss = -(1 - e) log sigmoid(d) - e log sigmoid(-d) + k (c + r)^2,    d = c - r - margin

with the better response's score c and the worse one's r, the share e that is taken to be wrong
among the labels (`loss.label_smoothing`, as in conservative DPO, arXiv:2403.00409) and the
coefficient k that keeps scores around 0 (`loss.center`, arXiv:2312.09244). Bradley and Terry 1952;
for reward models arXiv:1706.03741 and arXiv:2203.02155; margins arXiv:2307.09288 eq. 2. A longer
list counts as the mean over its pairs (arXiv:2203.02155 eq. 1).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.objectives.objective import Objective, Targets, pairs_by_rank


class BradleyTerry(Objective):
    """A row's target: its rank, and its item's margin."""

    forms: ClassVar[tuple[str, ...]] = ("pairs", "two_responses", "ranked")
    loss_keys: ClassVar[tuple[str, ...]] = ("center", "label_smoothing")

    def targets(self, example: Example) -> Targets:
        """Return each response's rank and margin."""
        return tuple((float(rank), example.margin) for rank in example.ranks)

    def weight(self, batch: LabelledBatch) -> float:
        """Return how many items have a better and a worse response."""
        return float(pairs_by_rank(batch)[2].sum())

    def loss(self, batch: LabelledBatch, outputs_Nn: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum over items, and sums for accuracy, margin and the scores' spread."""
        better, worse, weights = pairs_by_rank(batch)
        scores_R = outputs_Nn.reshape(-1)
        device = scores_R.device
        margins = torch.tensor([float(batch.targets.rows()[row][-1]) for row in better])
        weights_P = torch.from_numpy(weights).float().to(device)
        chosen_P = scores_R[torch.from_numpy(better).to(device)]
        rejected_P = scores_R[torch.from_numpy(worse).to(device)]
        difference_P = chosen_P - rejected_P - margins.float().to(device)
        wrong = self._settings.label_smoothing
        loss_P = -(1 - wrong) * logsigmoid(difference_P) - wrong * logsigmoid(-difference_P)
        if self._settings.center:
            loss_P = loss_P + self._settings.center * (chosen_P + rejected_P) ** 2
        return (loss_P * weights_P).sum(), order_sums(batch, scores_R)


@torch.no_grad()
def order_sums(batch: LabelledBatch, scores_R: Tensor) -> dict[str, Tensor]:
    """Return sums over items: the share in the right order (equal scores count half),
    the margin, the score and its square."""
    better, worse, weights = pairs_by_rank(batch)
    device = scores_R.device
    weights_P = torch.from_numpy(weights).float().to(device)
    chosen_P = scores_R[torch.from_numpy(better).to(device)]
    rejected_P = scores_R[torch.from_numpy(worse).to(device)]
    gap_P = chosen_P - rejected_P
    right_P = (gap_P > 0).float() + 0.5 * (gap_P == 0).float()
    return {
        "accuracy": (right_P * weights_P).sum(),
        "margin": (gap_P * weights_P).sum(),
        "score": ((chosen_P + rejected_P) * weights_P).sum() / 2,
        "score_squared": ((chosen_P**2 + rejected_P**2) * weights_P).sum() / 2,
    }
