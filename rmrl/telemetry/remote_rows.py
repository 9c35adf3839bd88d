"""Sample rows of a tracker over resumes: no step has its rows twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from rmrl.telemetry.sample_table import SampleTable

MLFLOW_ROWS = 512
"""Rows of MLflow's table: the newest. It is uploaded whole each time."""
_MLFLOW_FILE = "samples.json"


class StepsShown:
    """Greatest step whose rows a tracker has, in a small file beside the run, for trackers that
    only append. A run that repeats steps after a resume adds none for those."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._step = -1
        if path.exists():
            text = path.read_text(encoding="utf-8").strip()
            self._step = int(text) if text.isdecimal() else -1

    def includes(self, step: int) -> bool:
        return step <= self._step

    def add(self, step: int) -> None:
        """To be called after the tracker has accepted the rows."""
        self._step = step
        self._path.write_text(f"{step}\n", encoding="utf-8")


class MlflowRows:
    """The artifact `samples.json` of an MLflow run, in the form of `mlflow.load_table`.

    `resume_step`: rows of later steps are dropped, as they are in samples.jsonl (None: all rows).
    """

    def __init__(self, client: Any, run_id: str, resume_step: int | None) -> None:
        self._client = client
        self._run_id = run_id
        self._records: list[dict[str, Any]] = []
        if resume_step is not None:
            for record in self._stored():
                if record["step"] <= resume_step:
                    self._records.append(record)

    def add(self, table: SampleTable) -> None:
        """Append rows and store the newest MLFLOW_ROWS."""
        self._records = [*self._records, *table.records()][-MLFLOW_ROWS:]
        rows: list[list[Any]] = []
        for record in self._records:
            rows.append([record.get(column) for column in table.columns])
        # MLflow's own log_table would append to what an abandoned part of the run left.
        content = {"columns": list(table.columns), "data": rows}
        self._client.log_dict(self._run_id, content, _MLFLOW_FILE)
        # the tag by which MLflow knows an artifact as a table
        tag = json.dumps([{"path": _MLFLOW_FILE, "type": "table"}])
        self._client.set_tag(self._run_id, "mlflow.loggedArtifacts", tag)

    def _stored(self) -> list[dict[str, Any]]:
        names = [file.path for file in self._client.list_artifacts(self._run_id)]
        if _MLFLOW_FILE not in names:
            return []
        with tempfile.TemporaryDirectory() as folder:
            path = self._client.download_artifacts(self._run_id, _MLFLOW_FILE, folder)
            table = json.loads(Path(path).read_text(encoding="utf-8"))
        return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
