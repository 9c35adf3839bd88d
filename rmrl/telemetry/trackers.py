"""Sinks that store numbers in the output folder: JSON lines and TensorBoard; and functions they
share with the trackers of remote.py."""

from __future__ import annotations

import importlib
import math
import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from rmrl.errors import ConfigError
from rmrl.telemetry import jsonl
from rmrl.telemetry.sinks import SinkContext

METRICS_FILE = "metrics.jsonl"


class JsonlSink:
    """`<out_dir>/metrics.jsonl`: one object a step, {"step": 3, "reward/mean": 0.4, ...}; complete
    after every step."""

    def __init__(self, context: SinkContext) -> None:
        self._file = jsonl.open_at(context.out_dir / METRICS_FILE, context.resume_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        jsonl.append(self._file, [{"step": step, **metrics}])

    def close(self) -> None:
        self._file.close()


class TensorBoardSink:
    """Scalars, one scored sample now and then, and the configuration as hyperparameters, under
    `<out_dir>/tensorboard`."""

    package: ClassVar[str] = "tensorboard"

    def __init__(self, context: SinkContext) -> None:
        package("torch", "tensorboard")
        tensorboard = package("torch.utils.tensorboard", "tensorboard", install="tensorboard")
        purge = 0 if context.resume_step is None else context.resume_step + 1
        self._writer = tensorboard.SummaryWriter(
            str(context.out_dir / "tensorboard"), purge_step=purge
        )
        if context.resume_step is None and context.config:
            self._writer.add_hparams(_hparams(context.config), {}, run_name=".")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in finite(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def text(self, step: int, text: str) -> None:
        """Add the text, unchanged, under the tag "sample"."""
        # Markdown leaves indented lines unchanged
        indented = textwrap.indent(text, "    ", lambda _: True)
        self._writer.add_text("sample", "\n".join(indented.splitlines()), step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _hparams(config: Mapping[str, Any], head: str = "") -> dict[str, bool | str | float]:
    """Return the configuration's values by dotted key; lists and empty values as text."""
    flat: dict[str, bool | str | float] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _hparams(value, f"{head}{key}.")
        elif isinstance(value, bool | int | float | str):
            flat[f"{head}{key}"] = value
        else:
            flat[f"{head}{key}"] = str(value)
    return flat


def package(module: str, logger: str, *, install: str = "") -> ModuleType:
    """Import `module` for the sink `logger`. A ConfigError names the package to install where it is
    missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = install or module.partition(".")[0]
        raise ConfigError(
            f"trainer.logger names '{logger}', but the package {name} cannot be imported ({error}):"
            f" pip install {name} or drop it from trainer.logger"
        ) from error


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Drop NaN and infinities, which trackers draw or store in different ways."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
