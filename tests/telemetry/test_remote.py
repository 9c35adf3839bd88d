"""Trackers that may talk to a server: what they are told, where it goes by default, and what a
missing package says."""

from __future__ import annotations

import importlib.util
import json
import math
import sqlite3
import sys
from pathlib import Path

import pytest

from rmrl.errors import ConfigError
from rmrl.telemetry.remote_rows import MLFLOW_ROWS
from rmrl.telemetry.sample_table import SampleTable
from rmrl.telemetry.sinks import SinkContext, Sinks, open_sinks
from tests.telemetry import stand_ins

pytestmark = pytest.mark.usefixtures("nothing_logged")

NAMES = ("wandb", "trackio", "mlflow", "swanlab")
CONFIG = {
    "trainer": {"seed": 1, "folder": Path("/data"), "logger": ["a"]},
    "many": {f"key{i}": i for i in range(150)},
    "none": {},
}
METRICS = {"reward/mean": 0.5, "val/reward/best@4/mean": 0.75, "policy/kl": math.nan}
KEPT = {"reward/mean": 0.5, "val/reward/best@4/mean": 0.75}


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "WANDB_MODE",
        "WANDB_API_KEY",
        "WANDB_BASE_URL",
        "WANDB_IDENTITY_TOKEN_FILE",
        "MLFLOW_TRACKING_URI",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("SWANLAB_MODE", "SWANLAB_API_KEY", "SWANLAB_SAVE_DIR", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SWANLAB_ROOT", str(tmp_path / "home" / ".swanlab"))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Stand-ins in place of the packages, installed or not."""
    made = {
        "wandb": stand_ins.Wandb(),
        "trackio": stand_ins.Trackio(),
        "mlflow": stand_ins.Mlflow(),
        "swanlab": stand_ins.SwanLab(),
    }
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "mlflow.entities", stand_ins.Mlflow.entities)  # type: ignore[arg-type]
    return made  # type: ignore[return-value]


def opened(name: str, out_dir: Path, **more: object) -> Sinks:
    context = SinkContext(out_dir=out_dir, project="p", experiment="e", config=CONFIG, **more)  # type: ignore[arg-type]
    return open_sinks([name], context)


def two_steps(name: str, out_dir: Path, **more: object) -> None:
    sinks = opened(name, out_dir, **more)
    for step in (1, 2):
        sinks.log(step, METRICS)
    sinks.close()


def test_wandb_stays_offline_and_keeps_its_run(
    tmp_path: Path, modules: dict[str, stand_ins.Wandb]
) -> None:
    two_steps("wandb", tmp_path)
    two_steps("wandb", tmp_path, resume_step=1)
    first, second = modules["wandb"].runs
    assert first.settings["mode"] == "offline"
    assert first.settings["config"]["trainer"] == {"seed": 1, "folder": "/data", "logger": ["a"]}
    assert (
        first.settings["id"]
        == second.settings["id"]
        == (tmp_path / "wandb_id.txt").read_text().strip()
    )
    assert first.logged == [(None, {"step": 1, **KEPT}), (None, {"step": 2, **KEPT})]
    assert (first.finished, first.metrics, first.threads) == (1, [("*", "step")], {"logger-wandb"})


@pytest.mark.parametrize("how", ["key", "netrc"])
def test_wandb_goes_online_for_who_is_logged_in(
    tmp_path: Path, modules: dict[str, stand_ins.Wandb], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "key":
        monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    else:
        (tmp_path / "netrc").write_text(
            "machine api.wandb.ai login user password " + "a" * 40 + "\n"
        )
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    two_steps("wandb", tmp_path)
    assert modules["wandb"].runs[0].settings["mode"] is None


def test_trackio(tmp_path: Path, modules: dict[str, stand_ins.Trackio]) -> None:
    two_steps("trackio", tmp_path)
    run = modules["trackio"].runs[0]
    assert (run.settings["project"], run.settings["name"], run.settings["resume"]) == (
        "p",
        "e",
        "allow",
    )
    assert (run.logged, run.finished) == ([(1, KEPT), (2, KEPT)], 1)


def test_mlflow_keeps_a_database_in_the_folder_and_goes_on_in_its_run(
    tmp_path: Path, modules: dict[str, stand_ins.Mlflow]
) -> None:
    two_steps("mlflow", tmp_path)
    two_steps("mlflow", tmp_path, resume_step=1)
    mlflow = modules["mlflow"]
    assert mlflow.uris == [f"sqlite:///{tmp_path}/mlflow.db"] * 2
    (run,) = mlflow.runs.values()
    assert (mlflow.experiments, run["experiment"], run["name"], run["status"]) == (
        {"p": "1"},
        "1",
        "e",
        "FINISHED",
    )
    assert run["params"]["trainer.seed"] == "1"
    assert len(run["params"]) == 3 + 150 + 1
    # @ is no character of an MLflow name
    one = [("reward/mean", 0.5), ("val/reward/best_at_4/mean", 0.75)]
    assert run["metrics"] == [(key, value, step) for step in (1, 2, 1, 2) for key, value in one]


def test_mlflow_uses_the_server_of_its_environment(
    tmp_path: Path, modules: dict[str, stand_ins.Mlflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example")
    two_steps("mlflow", tmp_path)
    assert modules["mlflow"].uris == ["http://tracking.example"]


def test_swanlab_stays_offline(tmp_path: Path, modules: dict[str, stand_ins.SwanLab]) -> None:
    two_steps("swanlab", tmp_path)
    run = modules["swanlab"].runs[0]
    assert (run.settings["mode"], run.settings["logdir"]) == ("offline", str(tmp_path / "swanlab"))
    assert "id" not in run.settings
    assert run.settings["config"]["trainer.folder"] == "/data"
    assert (run.logged, run.finished) == ([(1, KEPT), (2, KEPT)], 1)


def test_swanlab_goes_on_in_its_run_when_online(
    tmp_path: Path, modules: dict[str, stand_ins.SwanLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWANLAB_API_KEY", "key")
    two_steps("swanlab", tmp_path)
    two_steps("swanlab", tmp_path, resume_step=1)
    first, second = modules["swanlab"].runs
    assert first.settings["mode"] is None
    assert first.settings["resume"] == "allow"
    assert len(first.settings["id"]) == 21
    assert first.settings["id"] == second.settings["id"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_a_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        opened(name, tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith(
        f"trainer.logger names '{name}', but the package {name} cannot be imported"
    )
    assert problem.endswith(f"pip install {name} or drop it from trainer.logger")


COLUMNS = ("step", "response", "rule", "rule/status")


def samples(step: int, rows: int = 2) -> SampleTable:
    row = (step, "seven", None, "timeout")
    return SampleTable(COLUMNS, (row,) * rows)


def three_tables_and_a_resume(name: str, out_dir: Path) -> None:
    """Steps 1 to 3; then a run that goes on from step 1, until step 4."""
    for steps, resume in (((1, 2, 3), None), ((2, 3, 4), 1)):
        sinks = opened(name, out_dir, resume_step=resume)
        for step in steps:
            sinks.table(step, samples(step))
        sinks.close()


def tables_of(run: stand_ins.RecordedRun) -> list[object]:
    return [entry["samples"] for _, entry in run.logged if "samples" in entry]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_every_step_has_a_table_and_a_resume_adds_none_twice(
    tmp_path: Path, modules: dict[str, stand_ins.Trackio], name: str
) -> None:
    three_tables_and_a_resume(name, tmp_path)
    first, second = modules[name].runs
    steps = [table.data[0][0] for table in tables_of(first) + tables_of(second)]  # type: ignore[attr-defined]
    assert steps == [1, 2, 3, 4]
    (table,) = tables_of(second)
    assert isinstance(table, stand_ins.Table)
    assert table.columns == list(COLUMNS)
    assert table.data == [[4, "seven", None, "timeout"]] * 2
    if name == "wandb":
        assert [entry["step"] for _, entry in first.logged] == [1, 2, 3]
    else:
        assert [step for step, _ in first.logged] == [1, 2, 3]


def test_mlflows_table_is_cut_back_by_a_resume(
    tmp_path: Path, modules: dict[str, stand_ins.Mlflow]
) -> None:
    """Rows of steps 2 and 3 are those of the run that went on."""
    three_tables_and_a_resume("mlflow", tmp_path)
    mlflow = modules["mlflow"]
    (run,) = mlflow.runs.values()
    table = json.loads(run["artifacts"]["samples.json"])
    assert table["columns"] == list(COLUMNS)
    assert [row[0] for row in table["data"]] == [1, 1, 2, 2, 3, 3, 4, 4]
    tag = json.loads(run["tags"]["mlflow.loggedArtifacts"])
    assert tag == [{"path": "samples.json", "type": "table"}]
    assert mlflow.artifact_locations == [(tmp_path / "mlflow_artifacts").as_uri()]


def test_mlflows_table_holds_the_newest_rows(
    tmp_path: Path, modules: dict[str, stand_ins.Mlflow]
) -> None:
    sinks = opened("mlflow", tmp_path)
    for step in (1, 2, 3):
        sinks.table(step, samples(step, rows=200))
    sinks.close()
    (run,) = modules["mlflow"].runs.values()
    steps = [row[0] for row in json.loads(run["artifacts"]["samples.json"])["data"]]
    # 600 rows, of which 512 are kept: 88 of the first step's 200 are dropped
    assert MLFLOW_ROWS == 512
    assert (len(steps), steps.count(1), steps.count(3)) == (512, 112, 200)


def test_artifacts_of_an_mlflow_server_have_its_own_place(
    tmp_path: Path, modules: dict[str, stand_ins.Mlflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example")
    two_steps("mlflow", tmp_path)
    assert modules["mlflow"].artifact_locations == [None]


@pytest.mark.parametrize("online", [True, False])
def test_swanlab_has_every_step_once_per_run(
    tmp_path: Path,
    modules: dict[str, stand_ins.SwanLab],
    monkeypatch: pytest.MonkeyPatch,
    online: bool,
) -> None:
    """An offline run that was resumed is another run, which has its own steps."""
    if online:
        monkeypatch.setenv("SWANLAB_API_KEY", "key")
    three_tables_and_a_resume("swanlab", tmp_path)
    steps: list[list[int | None]] = []
    for run in modules["swanlab"].runs:
        steps.append([step for step, _ in run.logged])
    assert steps == [[1, 2, 3], [4] if online else [2, 3, 4]]


@pytest.mark.parametrize(("name", "part"), [("trackio", "Table"), ("swanlab", "echarts")])
def test_an_old_package_without_tables_keeps_its_numbers(
    tmp_path: Path,
    modules: dict[str, stand_ins.Trackio],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    part: str,
) -> None:
    monkeypatch.delattr(type(modules[name]), part)
    monkeypatch.setattr(modules[name], "__name__", name, raising=False)
    sinks = opened(name, tmp_path)
    sinks.table(1, samples(1))
    sinks.log(1, METRICS)
    sinks.close()
    assert modules[name].runs[0].logged == [(1, KEPT)]
    assert caplog.messages == [
        f"the installed {name} has no tables ({part}): scored samples are not shown there; pip"
        f" install --upgrade {name}"
    ]
    caplog.clear()


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_that_refuses_a_table_is_switched_off(
    tmp_path: Path,
    modules: dict[str, stand_ins.Wandb],
    caplog: pytest.LogCaptureFixture,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("too large")

    monkeypatch.setattr(stand_ins.RecordedRun, "log", refuse)
    monkeypatch.setattr(stand_ins.Mlflow, "log_dict", refuse)
    sinks = opened(name, tmp_path)
    sinks.table(1, samples(1))
    sinks.close()
    assert caplog.messages == [
        f"the logger {name} failed while closing with ConnectionError: too large"
    ]
    assert not (tmp_path / f"{name}_samples.txt").exists()
    caplog.clear()


@pytest.mark.parametrize("name", NAMES)
def test_the_real_package_takes_it(tmp_path: Path, name: str) -> None:
    """Where the package is installed: opened, logged to, closed and resumed without a network and
    without a complaint."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    two_steps(name, tmp_path)
    two_steps(name, tmp_path, resume_step=1)
    three_tables_and_a_resume(name, tmp_path)
    if name == "mlflow":
        with sqlite3.connect(tmp_path / "mlflow.db") as store:
            rows = store.execute(
                "select key, value, step from metrics where step = 2 order by key"
            ).fetchall()
        assert rows == [("reward/mean", 0.5, 2)] * 2 + [("val/reward/best_at_4/mean", 0.75, 2)] * 2
