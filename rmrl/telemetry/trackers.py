"""Sinks that keep numbers: JSON lines, TensorBoard, W&B, trackio. Their packages are imported only when one is opened."""

from __future__ import annotations

import importlib
import math
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

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

    def __init__(self, context: SinkContext) -> None:
        _package("torch", "tensorboard")
        tensorboard = _package("torch.utils.tensorboard", "tensorboard", install="tensorboard")
        purge = 0 if context.resume_step is None else context.resume_step + 1
        self._writer = tensorboard.SummaryWriter(str(context.out_dir / "tensorboard"), purge_step=purge)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in _finite(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """Weights & Biases. A resumed run goes on in the same W&B run, whose id is kept in `<out_dir>/wandb_id.txt`."""

    def __init__(self, context: SinkContext) -> None:
        self._wandb = _package("wandb", "wandb")
        self._wandb.init(
            project=context.project,
            name=context.experiment,
            dir=str(context.out_dir),
            config=dict(context.config),
            id=_kept_id(context.out_dir / "wandb_id.txt"),
            resume="allow",
        )
        self._wandb.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # The step travels as a value: W&B drops whatever goes back to a step it has seen, as a resumed run must.
        self._wandb.log({"step": step, **_finite(metrics)})

    def close(self) -> None:
        self._wandb.finish()


class TrackioSink:
    """Trackio, a local database. A resumed run goes on in the run of the same name."""

    def __init__(self, context: SinkContext) -> None:
        self._trackio = _package("trackio", "trackio")
        self._trackio.init(project=context.project, name=context.experiment, config=dict(context.config), resume="allow")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trackio.log(_finite(metrics), step=step)

    def close(self) -> None:
        self._trackio.finish()


def _kept_id(path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:8] + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _package(module: str, logger: str, *, install: str = "") -> ModuleType:
    """Import `module` for the sink `logger`, or say what to type."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = install or module.partition(".")[0]
        seen = f"trainer.logger names '{logger}', but the package {name} cannot be imported ({error})"
        raise ConfigError(f"{seen}: pip install {name} or drop it from trainer.logger") from error


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
