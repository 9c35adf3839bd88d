"""Sinks that keep numbers in the output folder: JSON lines and TensorBoard; and what the trackers of remote.py share with them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from types import ModuleType
from typing import ClassVar

from rmrl.errors import ConfigError
from rmrl.telemetry import jsonl
from rmrl.telemetry.sinks import SinkContext

METRICS_FILE = "metrics.jsonl"


class JsonlSink:
    """`<out_dir>/metrics.jsonl`: one object a step, {"step": 3, "reward/mean": 0.4, ...}; complete after every step."""

    def __init__(self, context: SinkContext) -> None:
        self._file = jsonl.open_at(context.out_dir / METRICS_FILE, context.resume_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        jsonl.append(self._file, [{"step": step, **metrics}])

    def close(self) -> None:
        self._file.close()


class TensorBoardSink:
    """Scalars under `<out_dir>/tensorboard`."""

    package: ClassVar[str] = "tensorboard"

    def __init__(self, context: SinkContext) -> None:
        package("torch", "tensorboard")
        tensorboard = package("torch.utils.tensorboard", "tensorboard", install="tensorboard")
        purge = 0 if context.resume_step is None else context.resume_step + 1
        self._writer = tensorboard.SummaryWriter(str(context.out_dir / "tensorboard"), purge_step=purge)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in finite(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def package(module: str, logger: str, *, install: str = "") -> ModuleType:
    """`module`, imported for the sink `logger`. ConfigError says what to type where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = install or module.partition(".")[0]
        seen = f"trainer.logger names '{logger}', but the package {name} cannot be imported ({error})"
        raise ConfigError(f"{seen}: pip install {name} or drop it from trainer.logger") from error


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without NaN and infinities, which trackers draw or store in ways of their own."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
