"""One training process: its engines by role (the policy, its frozen reference, the critic), as many
as are placed there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.inference.weights.sender import TransferLink, WeightSender
from rmrl.interfaces import TrainEngine


class TrainWorker:
    """Built inside its own process. Every process of the group is called with its own rows, at the
    same time."""

    def __init__(self, engines: Mapping[str, TrainSettings], process: ProcessSettings) -> None:
        """`engines`: role -> settings, in the order in which they are built."""
        self._engines: dict[str, TrainEngine] = {}
        for role, settings in engines.items():
            build = TRAIN_ENGINES[settings.trained.strategy]
            self._engines[role] = build(settings, process)

    def on(self, role: str, method: str, *args: Any) -> Any:
        """Call a method of the role's engine (rmrl.interfaces.TrainEngine)."""
        return getattr(self._engines[role], method)(*args)

    def open_transfer(self, link: TransferLink) -> None:
        """Connect the policy with the rollout engines, where weights are published without a
        file."""
        self._sender = WeightSender(cast(Any, self._engines["actor"]), link)

    def send_weights(self, version: int) -> int:
        """Send the policy's weights to the rollout engines; returns their bytes."""
        return self._sender.send(version)

    def offload(self) -> None:
        """Free device memory between training phases (CUDA)."""
        for engine in self._engines.values():
            engine.offload()

    def onload(self) -> None:
        for engine in self._engines.values():
            engine.onload()
