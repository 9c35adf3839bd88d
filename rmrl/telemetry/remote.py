"""Sinks of trackers that may talk to a server: W&B, trackio, MLflow, SwanLab. Each works behind a
thread (background.py).

Nothing leaves the machine unless the user has allowed it in the tracker itself: by its login or its
own environment variables. A package is imported when its sink is opened. A missing package is a
ConfigError before the run starts.
"""

from __future__ import annotations

import logging
import netrc
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from rmrl.telemetry import jsonl
from rmrl.telemetry.background import CLOSE_S, BackgroundSink
from rmrl.telemetry.remote_rows import MlflowRows, StepsShown
from rmrl.telemetry.sample_table import SampleTable
from rmrl.telemetry.sinks import Sink, SinkContext
from rmrl.telemetry.trackers import finite, package

_log = logging.getLogger(__name__)

SAMPLES = "samples"
"""Name of the scored samples' table in every tracker."""


class WandbSink:
    """Weights & Biases. A resumed run continues the same W&B run, whose id is stored in
    `<out_dir>/wandb_id.txt`.

    Without a login, an API key or WANDB_MODE it writes to `<out_dir>/wandb` only (`wandb sync`
    uploads that later).
    """

    def __init__(self, context: SinkContext, module: ModuleType) -> None:
        settings: dict[str, Any] = {}
        if "finish_timeout" in getattr(module.Settings, "model_fields", {}):
            # W&B's own hook at the interpreter's end would otherwise wait for a server without a
            # limit; older versions lack the setting.
            settings["finish_timeout"] = CLOSE_S
        self._run = module.init(
            project=context.project,
            name=context.experiment,
            dir=str(context.out_dir),
            config=jsonl.plain(context.config),
            id=_kept_id(context.out_dir / "wandb_id.txt", lambda: uuid.uuid4().hex[:8]),
            resume="allow",
            mode=None if _wandb_login() else "offline",
            settings=module.Settings(**settings),
        )
        self._run.define_metric("*", step_metric="step")
        self._table = module.Table
        self._shown = StepsShown(context.out_dir / "wandb_samples.txt")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # The step is logged as a value: W&B drops entries that go back to an earlier step, as those
        # of a resumed run do.
        self._run.log({"step": step, **finite(metrics)})

    def table(self, step: int, table: SampleTable) -> None:
        """Log the step's rows as a table of their own: W&B shows one table per step."""
        if not self._shown.includes(step):
            rows = [list(row) for row in table.rows]
            content = self._table(columns=list(table.columns), data=rows)
            self._run.log({"step": step, SAMPLES: content})
            self._shown.add(step)

    def close(self) -> None:
        self._run.finish()


class TrackioSink:
    """Trackio, a local database (`trackio show` opens it). A resumed run continues the run of the
    same name."""

    def __init__(self, context: SinkContext, module: ModuleType) -> None:
        self._run = module.init(
            project=context.project,
            name=context.experiment,
            config=jsonl.plain(context.config),
            resume="allow",
        )
        self._table = _part(module, "Table")
        self._shown = StepsShown(context.out_dir / "trackio_samples.txt")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(finite(metrics), step=step)

    def table(self, step: int, table: SampleTable) -> None:
        """Log the step's rows as a table of their own."""
        if self._table is not None and not self._shown.includes(step):
            rows = [list(row) for row in table.rows]
            content = self._table(columns=list(table.columns), data=rows)
            self._run.log({SAMPLES: content}, step=step)
            self._shown.add(step)

    def close(self) -> None:
        self._run.finish()


class MlflowSink:
    """MLflow: the server of MLFLOW_TRACKING_URI, else `<out_dir>/mlflow.db` (`mlflow ui
    --backend-store-uri sqlite:///...` shows it).

    The project is the MLflow experiment, the run's name its run. A resumed run continues the same
    one, whose id is stored in `<out_dir>/mlflow_id.txt`. MLflow allows no `@`: best@4 becomes
    best_at_4.
    """

    def __init__(self, context: SinkContext, module: ModuleType) -> None:
        self._entities = package("mlflow.entities", "mlflow")
        database = (context.out_dir / "mlflow.db").resolve()
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{database}"
        self._client = module.MlflowClient(tracking_uri=uri)
        self._run_id = _kept_id(context.out_dir / "mlflow_id.txt", lambda: self._new_run(context))
        self._client.update_run(self._run_id, status="RUNNING")
        self._rows = MlflowRows(self._client, self._run_id, context.resume_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        entries: list[Any] = [
            self._entities.Metric(_mlflow_key(name), value, now_ms, step)
            for name, value in finite(metrics).items()
        ]
        for start in range(0, len(entries), 1000):  # MLflow takes no more at once
            self._client.log_batch(self._run_id, metrics=entries[start : start + 1000])

    def table(self, step: int, table: SampleTable) -> None:
        """Add the step's rows to the artifact samples.json."""
        del step
        self._rows.add(table)

    def close(self) -> None:
        self._client.set_terminated(self._run_id)

    def _new_run(self, context: SinkContext) -> str:
        experiment = self._client.get_experiment_by_name(context.project)
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            place = None
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                # A server has a place of its own; the default of a database is the working folder.
                place = (context.out_dir / "mlflow_artifacts").resolve().as_uri()
            experiment_id = self._client.create_experiment(context.project, place)
        run = self._client.create_run(experiment_id, run_name=context.experiment)
        run_id = str(run.info.run_id)
        params: list[Any] = [
            self._entities.Param(_mlflow_key(key), str(value)[:500])
            for key, value in _flat(jsonl.plain(context.config))
        ]
        for start in range(0, len(params), 100):  # as above
            self._client.log_batch(run_id, params=params[start : start + 100])
        return run_id


class SwanLabSink:
    """SwanLab. Without a login, an API key or SWANLAB_MODE it writes to `<out_dir>/swanlab` only
    (`swanlab sync` uploads that later).

    Online, a resumed run continues the same SwanLab run, whose id is stored in
    `<out_dir>/swanlab_id.txt`; offline it is a new one.
    """

    def __init__(self, context: SinkContext, module: ModuleType) -> None:
        folder = context.out_dir / "swanlab"
        folder.mkdir(parents=True, exist_ok=True)
        online = bool(os.environ.get("SWANLAB_MODE") or os.environ.get("SWANLAB_API_KEY"))
        if not online:
            root = os.environ.get("SWANLAB_ROOT") or os.environ.get("SWANLAB_SAVE_DIR")
            online = (Path(root or Path.home() / ".swanlab") / ".netrc").is_file()
        identity: dict[str, Any] = {}
        if online:
            # SwanLab requires 21 characters.
            run_id = _kept_id(context.out_dir / "swanlab_id.txt", lambda: uuid.uuid4().hex[:21])
            identity = {"id": run_id, "resume": "allow"}
        self._run = module.init(
            project=context.project,
            experiment_name=context.experiment,
            logdir=str(folder),
            config=dict(_flat(jsonl.plain(context.config))),
            mode=None if online else "offline",
            **identity,
        )
        self._echarts = _part(module, "echarts")
        # An offline run that was resumed is a new run without rows.
        self._shown = StepsShown(context.out_dir / "swanlab_samples.txt") if online else None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(finite(metrics), step=step)

    def table(self, step: int, table: SampleTable) -> None:
        """Log the step's rows as a table of their own."""
        if self._echarts is None or (self._shown is not None and self._shown.includes(step)):
            return
        content = self._echarts.Table()
        content.add(list(table.columns), [list(row) for row in table.rows])
        self._run.log({SAMPLES: content}, step=step)
        if self._shown is not None:
            self._shown.add(step)

    def close(self) -> None:
        self._run.finish()


@dataclass(frozen=True, slots=True)
class Tracker:
    """Factory of a sink that works behind a thread. Raises ConfigError where its package is
    missing."""

    package: str
    """Import name, and the name that trainer.logger lists."""
    sink: Callable[[SinkContext, ModuleType], Sink]

    def __call__(self, context: SinkContext) -> Sink:
        module = package(self.package, self.package)
        return BackgroundSink(self.package, lambda: self.sink(context, module))


wandb = Tracker("wandb", WandbSink)
trackio = Tracker("trackio", TrackioSink)
mlflow = Tracker("mlflow", MlflowSink)
swanlab = Tracker("swanlab", SwanLabSink)


def _kept_id(path: Path, make: Callable[[], str]) -> str:
    """Return the run's id in the tracker: created once, then read."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make() + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _part(module: ModuleType, name: str) -> Any | None:
    """Return the part of a package that has tables, None where an old version lacks it."""
    part = getattr(module, name, None)
    if part is None:
        _log.warning(
            f"the installed {module.__name__} has no tables ({name}): scored samples are not shown"
            f" there; pip install --upgrade {module.__name__}"
        )
    return part


def _wandb_login() -> bool:
    """Whether W&B has a server and a key, so that it does not prompt on the terminal of a running
    job."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE"):
        if os.environ.get(name):
            return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _mlflow_key(name: str) -> str:
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", "_at_"), flags=re.ASCII)


def _flat(tree: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    """{"a": {"b": 1}} -> ("a.b", 1)."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flat(cast("dict[str, Any]", value), f"{head}{key}.")
        else:
            yield f"{head}{key}", value
