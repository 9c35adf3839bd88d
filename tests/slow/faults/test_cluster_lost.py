"""Ray's own processes are killed in the middle of offline scoring: it ends with code 4 and a
sentence, keeps what is scored and leaves no process. Of training see test_resume_job.py."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.slow.test_main_score import fake_judge, start
from tests.test_main_score import write_files
from tests.trainer.job import daemon, descendants, still_running, wait_for

pytestmark = [pytest.mark.alone(forks=True), pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_offline_scoring_keeps_what_is_scored_and_ends_with_code_4(
    tmp_path: Path, name: str
) -> None:
    write_files(tmp_path)
    started = start(tmp_path, {**fake_judge(tmp_path, delay_s=5.0), "out": "{tmp}/lost.jsonl"})
    wait_for(lambda: rows_on_disk(tmp_path) or started.poll() is not None, what="the first row")
    family = descendants(started.pid)
    daemon(started, name).kill()
    printed, _ = started.communicate(timeout=120)
    assert started.returncode == 4, printed[-3000:]
    assert "ClusterLostError" in printed
    assert "rows scored until then stay on disk" in printed
    assert "Traceback" not in printed
    assert 1 <= rows_on_disk(tmp_path) < 4
    assert still_running(family) == []


def rows_on_disk(folder: Path) -> int:
    """Of the parts that are closed."""
    return sum(parquet.read_metadata(path).num_rows for path in folder.rglob("part-*.parquet"))
