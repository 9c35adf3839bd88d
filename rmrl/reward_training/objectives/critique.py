"""Critique: Bradley-Terry on scores that are read behind a critique on each response, which a model
writes before the training (Critique-out-Loud reward models, arXiv:2408.11791).

`loss.critic` names and instructs the critic, in `critique` entries.
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.reward_training.objectives.bradley_terry import BradleyTerry
from rmrl.reward_training.readings.critique_turn import CritiqueTurn
from rmrl.reward_training.readings.reading import Reading


class CritiqueBradleyTerry(BradleyTerry):
    """Targets, loss and figures are Bradley-Terry's."""

    reads: ClassVar[type[Reading]] = CritiqueTurn
    loss_keys: ClassVar[tuple[str, ...]] = (*BradleyTerry.loss_keys, "critic")

    @property
    def reading(self) -> Reading:
        """The reading, which knows the critic."""
        return CritiqueTurn(self.outputs, self.score_weights, self._settings.critic)
