"""One training process: its engines by role (the policy, its frozen reference, the critic), as many
as are placed there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch.profiler import ProfilerActivity, profile

from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.memory import PhaseMemory, phase_memory
from rmrl.inference.weights.sender import Sent, TransferLink, WeightSender
from rmrl.interfaces import TrainEngine


class TrainWorker:
    """Built inside its own process. Every process in the group is called with its own rows, at the
    same time."""

    def __init__(self, engines: Mapping[str, TrainSettings], process: ProcessSettings) -> None:
        """`engines`: role -> settings, in the order in which they are built."""
        self._engines: dict[str, TrainEngine] = {}
        for role, settings in engines.items():
            build = TRAIN_ENGINES[settings.trained.strategy]
            self._engines[role] = build(settings, process)

    def on(self, role: str, method: str, *args: Any) -> Any:
        """Call a method on the role's engine (rmrl.interfaces.TrainEngine)."""
        return getattr(self._engines[role], method)(*args)

    def open_transfer(self, link: TransferLink) -> None:
        """Connect the policy with the rollout engines, where weights are published without a
        file."""
        self._sender = WeightSender(cast(Any, self._engines["actor"]), link)

    def send_weights(self, version: int) -> Sent:
        """Send the policy's weights to the rollout engines."""
        return self._sender.send(version)

    def phase_memory(self) -> PhaseMemory:
        return phase_memory()

    def start_profile(self) -> None:
        """Begin a trace with torch's profiler: operators on the CPU, and kernels where there is a
        GPU."""
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities)
        self._profile.start()

    def write_profile(self, path: str) -> None:
        """End the trace and write it for chrome://tracing or https://ui.perfetto.dev."""
        self._profile.stop()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._profile.export_chrome_trace(path)

    def offload(self) -> None:
        """Free device memory between training phases (CUDA)."""
        for engine in self._engines.values():
            engine.offload()

    def onload(self) -> None:
        for engine in self._engines.values():
            engine.onload()
