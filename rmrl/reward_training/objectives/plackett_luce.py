"""Plackett-Luce: the probability that a whole order has, for lists with any length.

    loss = mean over the places i but the last of  log sum_j exp s_j - s_i,  j not better than i

The best response is chosen among all, the next among the rest, and so on (Luce
1959, Plackett 1975; for reward models arXiv:2305.18290 appendix A.3). Responses that share a place
are each chosen among all that are not better, their equals included (Breslow 1974).

A pair has Davidson's probabilities (1970), with `loss.tie_strength` as v:

    P(i better), P(j better), P(tie)  are as  exp s_i, exp s_j, v exp((s_i + s_j) / 2)

v = 0 is Bradley-Terry, and leaves pairs with a tie out.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.objectives.bradley_terry import order_sums
from rmrl.reward_training.objectives.objective import Objective, Targets, rows_of_items


class PlackettLuce(Objective):
    """A row's target: its rank."""

    forms: ClassVar[tuple[str, ...]] = ("pairs", "two_responses", "ranked")
    loss_keys: ClassVar[tuple[str, ...]] = ("tie_strength",)

    def targets(self, example: Example) -> Targets:
        """Return each response's rank."""
        return tuple((float(rank),) for rank in example.ranks)

    def weight(self, batch: LabelledBatch) -> float:
        """Return how many items have an order that says something."""
        ranks_R = batch.targets.values
        return float(sum(self._counts(ranks_R[rows]) for rows in rows_of_items(batch)))

    def loss(self, batch: LabelledBatch, outputs_Nn: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum over items, and sums for accuracy, margin and the scores' spread."""
        scores_R = outputs_Nn.reshape(-1)
        ranks_R = batch.targets.values
        total = scores_R.sum() * 0
        for rows in rows_of_items(batch):
            if self._counts(ranks_R[rows]):
                total = total + self._item(scores_R[torch.as_tensor(rows)], ranks_R[rows])
        return total, order_sums(batch, scores_R)

    def _counts(self, ranks_K: np.ndarray) -> bool:
        tied = len(set(ranks_K.tolist())) == 1
        return not tied or (len(ranks_K) == 2 and self._settings.tie_strength > 0)

    def _item(self, scores_K: Tensor, ranks_K: np.ndarray) -> Tensor:
        if len(ranks_K) == 2 and self._settings.tie_strength > 0:
            tie = scores_K.mean() + math.log(self._settings.tie_strength)
            outcome = 2 if ranks_K[0] == ranks_K[1] else int(ranks_K[1] < ranks_K[0])
            return -torch.log_softmax(torch.cat([scores_K, tie[None]]), 0)[outcome]
        places = [place for place in range(len(ranks_K)) if ranks_K[place] < ranks_K.max()]
        terms = [
            scores_K[torch.from_numpy(ranks_K >= ranks_K[place])].logsumexp(0) - scores_K[place]
            for place in places
        ]
        return torch.stack(terms).mean()
