"""Stand-ins for trackers' packages that may be missing: they take the calls that the real ones take
and keep them.

The signatures are those of wandb 0.31, trackio 0.43, mlflow 3.17 and swanlab 0.10; a call that
these would refuse is a TypeError here.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar


class Table:
    """`wandb.Table` and `trackio.Table`: W&B refuses rows of another length and columns that are
    no list."""

    def __init__(
        self, columns: list[str] | None = None, data: list[list[Any]] | None = None
    ) -> None:
        assert isinstance(columns, list)
        assert isinstance(data, list)
        assert all(len(row) == len(columns) for row in data)
        self.columns, self.data = columns, data


class _EchartsTable:
    """`swanlab.echarts.Table`."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.data: list[list[Any]] = []

    def add(self, headers: list[str], rows: list[list[Any]]) -> _EchartsTable:
        self.columns, self.data = headers, rows
        return self


@dataclass
class RecordedRun:
    """What `init` returned."""

    settings: dict[str, Any]
    logged: list[tuple[int | None, dict[str, float]]] = field(default_factory=list)
    metrics: list[tuple[str, str]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    finished: int = 0

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, str(step_metric)))

    def log(self, data: dict[str, float], step: int | None = None) -> None:
        self.threads.add(threading.current_thread().name)
        self.logged.append((step, data))

    def finish(self) -> None:
        self.finished += 1


class _WandbSettings:
    model_fields: ClassVar = {"finish_timeout": float}

    def __init__(self, **settings: Any) -> None:
        assert set(settings) <= set(self.model_fields)
        self.settings = settings


class Wandb:
    """`import wandb`."""

    Settings = _WandbSettings
    Table = Table

    def __init__(self) -> None:
        self.runs: list[RecordedRun] = []

    def init(
        self,
        *,
        project: str,
        name: str,
        dir: str,
        config: dict,
        id: str,
        resume: str,
        mode: str | None,
        settings: Any,
    ) -> RecordedRun:
        self.runs.append(
            RecordedRun(
                {
                    "project": project,
                    "name": name,
                    "dir": dir,
                    "config": config,
                    "id": id,
                    "resume": resume,
                    "mode": mode,
                }
            )
        )
        return self.runs[-1]


class Trackio:
    """`import trackio`."""

    Table = Table

    def __init__(self) -> None:
        self.runs: list[RecordedRun] = []

    def init(
        self,
        project: str,
        name: str | None = None,
        *,
        config: dict | None = None,
        resume: str = "never",
    ) -> RecordedRun:
        self.runs.append(
            RecordedRun({"project": project, "name": name, "config": config, "resume": resume})
        )
        return self.runs[-1]


class SwanLab:
    """`import swanlab`."""

    echarts = SimpleNamespace(Table=_EchartsTable)

    def __init__(self) -> None:
        self.runs: list[RecordedRun] = []

    def init(
        self,
        *,
        project: str,
        experiment_name: str,
        logdir: str,
        config: dict,
        mode: str | None,
        **again: str,
    ) -> RecordedRun:
        assert set(again) <= {"id", "resume"}
        settings = {
            "project": project,
            "experiment_name": experiment_name,
            "logdir": logdir,
            "config": config,
            "mode": mode,
        }
        self.runs.append(RecordedRun({**settings, **again}))
        return self.runs[-1]


@dataclass
class Metric:
    """`mlflow.entities.Metric`."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass
class Param:
    """`mlflow.entities.Param`."""

    key: str
    value: str


class Mlflow:
    """`import mlflow`, its entities and the store behind its client."""

    entities = SimpleNamespace(Metric=Metric, Param=Param)

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.artifact_locations: list[str | None] = []
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}

    def MlflowClient(self, tracking_uri: str | None = None) -> Mlflow:
        self.uris.append(str(tracking_uri))
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        return (
            SimpleNamespace(experiment_id=self.experiments[name])
            if name in self.experiments
            else None
        )

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        self.artifact_locations.append(artifact_location)
        self.experiments[name] = str(len(self.experiments) + 1)
        return self.experiments[name]

    def create_run(self, experiment_id: str, *, run_name: str | None = None) -> Any:
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = {
            "experiment": experiment_id,
            "name": run_name,
            "metrics": [],
            "params": {},
            "artifacts": {},
            "tags": {},
            "status": "RUNNING",
        }
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def log_batch(self, run_id: str, metrics: list[Metric] = [], params: list[Param] = []) -> None:  # noqa: B006
        assert len(metrics) <= 1000
        assert len(params) <= 100
        self.runs[run_id]["metrics"] += [
            (metric.key, metric.value, metric.step) for metric in metrics
        ]
        self.runs[run_id]["params"] |= {param.key: param.value for param in params}

    def update_run(self, run_id: str, status: str | None = None) -> None:
        self.runs[run_id]["status"] = status

    def log_dict(self, run_id: str, dictionary: dict[str, Any], artifact_file: str) -> None:
        self.runs[run_id]["artifacts"][artifact_file] = json.dumps(dictionary)

    def list_artifacts(self, run_id: str, path: str | None = None) -> list[Any]:
        return [SimpleNamespace(path=name) for name in self.runs[run_id]["artifacts"]]

    def download_artifacts(self, run_id: str, path: str, dst_path: str | None = None) -> str:
        target = Path(str(dst_path)) / path
        target.write_text(self.runs[run_id]["artifacts"][path], encoding="utf-8")
        return str(target)

    def set_tag(self, run_id: str, key: str, value: Any) -> None:
        assert len(value) <= 5000
        self.runs[run_id]["tags"][key] = value

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id]["status"] = "FINISHED"
