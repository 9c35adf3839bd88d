"""Stand-ins for trackers' packages that may be missing: they take the calls that the real ones take
and keep them.

The signatures are those of wandb 0.31, trackio 0.43, mlflow 3.17 and swanlab 0.10; a call that
these would refuse is a TypeError here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar


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

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = str(len(self.experiments) + 1)
        return self.experiments[name]

    def create_run(self, experiment_id: str, *, run_name: str | None = None) -> Any:
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = {
            "experiment": experiment_id,
            "name": run_name,
            "metrics": [],
            "params": {},
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

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id]["status"] = "FINISHED"
