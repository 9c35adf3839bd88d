"""Parts of a job beside its output: who may go on with them, what is refused, and what is said when
they are damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmrl.errors import DataError, OutputDirError
from rmrl.offline import job as job_module
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.offline.job import Job, claim
from tests.offline.conftest import Bench

STOPS = """
from pathlib import Path
from typing import Any
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    with Path({log!r}).open("a") as log:
        log.write(solution_str + "\\n")
    if solution_str == "stop" and not Path({mended!r}).exists():
        raise SystemExit
    return len(solution_str) / 10
"""
RESPONSES = ("a", "bb", "ccc", "stop", "eeeee")


class Broken:
    """A job whose fourth response ends it with exit code 3 until it is mended; batches of one."""

    def __init__(self, bench: Bench, suffix: str = "parquet") -> None:
        self.bench = bench
        self.out = bench.folder / f"s.{suffix}"
        self.parts = bench.folder / f"s.{suffix}.parts"
        self.mended = bench.folder / "mended"
        self.log = bench.folder / "log"
        self.write_rule()
        self.data = bench.rows(*RESPONSES)

    def write_rule(self, more: str = "") -> None:
        code = STOPS.format(log=str(self.log), mended=str(self.mended)) + more
        (self.bench.folder / "functions" / "stops.py").write_text(code)

    def checked(self, *overrides: str) -> CheckedScoring:
        base = (
            f"data.files={self.data}",
            f"out={self.out}",
            "data.batch_size=1",
            "reward.models=[stops]",
            "reward.on_missing=fail",
        )
        before = self.log.read_text() if self.log.exists() else None
        checked = self.bench.checked(*base, *overrides)
        self.log.unlink(missing_ok=True)  # the trial calls of the check are not part of the job
        if before is not None:
            self.log.write_text(before)
        return checked

    def run(self, *overrides: str) -> None:
        self.bench.score(self.checked(*overrides))

    def break_off(self) -> None:
        with pytest.raises(Exception, match="stops"):
            self.run()
        assert self.manifest()["parts"][-1]["rows_done"] == 3

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.parts / "manifest.json").read_text())

    def asked(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        self.log.unlink()
        return lines

    def said(self) -> str:
        return "\n".join(self.bench.notices)


@pytest.fixture
def broken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Broken:
    monkeypatch.setattr(job_module, "PART_SECONDS", 0.0)  # a part per batch
    made = Broken(bench)
    made.break_off()
    made.asked()
    made.mended.touch()
    return made


def test_the_same_command_goes_on_and_settings_of_the_place_may_differ(broken: Broken) -> None:
    broken.run(
        "reward.rule_workers=2",
        "reward.max_missing=1",
        "trainer.memory_budget_gb=1",
        "over_budget=fail",
    )
    assert broken.asked() == ["stop", "eeeee"]
    assert pq.read_table(broken.out)["reward"].to_pylist() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert "resuming: 3 of 5 rows were scored before" in broken.said()
    assert not broken.parts.exists()


def test_rows_moved_elsewhere_are_the_same_rows(broken: Broken) -> None:
    moved = broken.bench.folder / "moved.jsonl"
    broken.data.rename(moved)
    os.utime(moved)
    broken.data = moved
    broken.run()
    assert broken.asked() == ["stop", "eeeee"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("reward.weights=[2.0]", r"reward\.weights: null there, \[2\.0\] here"),
        ("data.batch_size=2", r"data\.batch_size: 1 there, 2 here"),
        ("columns=[raw]", r'columns: \[\] there, \["raw"\] here'),
        ("data.max_rows=4", r"data\.max_rows: -1 there, 4 here"),
        ("reward.specs.stops.gate=[]", r"reward\.specs\.stops"),
    ],
)
def test_another_configuration_is_refused_with_what_differs(
    broken: Broken, override: str, words: str
) -> None:
    with pytest.raises(OutputDirError, match=words) as caught:
        broken.run(override)
    for part in ("s.parquet.parts holds 3 scored rows", "another out=", "overwrite=true"):
        assert part in str(caught.value)
    assert broken.manifest()["parts"]
    assert not broken.log.exists()


def test_other_code_and_other_rows_are_refused(broken: Broken) -> None:
    broken.write_rule("# another word\n")
    with pytest.raises(OutputDirError, match="reward 'stops': its code"):
        broken.run()
    broken.write_rule()
    broken.bench.rows(*RESPONSES[:-1], "fffff")
    with pytest.raises(OutputDirError, match=r"data\.files: .* \d+ bytes .* \d+ other bytes"):
        broken.run()
    broken.bench.rows(*RESPONSES)
    broken.run()
    assert broken.asked() == ["stop", "eeeee"]


def test_overwrite_discards_the_rows_of_another_job_and_keeps_those_of_the_same(
    broken: Broken,
) -> None:
    broken.run("overwrite=true")
    assert broken.asked() == ["stop", "eeeee"]
    broken.out.unlink()
    broken.mended.unlink()
    broken.break_off()
    broken.mended.touch()
    broken.asked()
    broken.run("overwrite=true", "reward.weights=[2.0]")
    assert broken.asked() == list(RESPONSES)
    assert "discarded 3 rows of another job" in broken.said()


def test_an_output_that_appeared_meanwhile_is_left_alone(broken: Broken) -> None:
    broken.out.write_text("precious")
    with pytest.raises(DataError, match=r"exists already and was left alone; .*overwrite=true"):
        broken.run()
    assert broken.out.read_text() == "precious"
    broken.run("overwrite=true")
    assert broken.asked() == ["stop", "eeeee"]


def test_a_torn_manifest_is_a_sentence(broken: Broken) -> None:
    (broken.parts / "manifest.json").write_text('{"version": 1, "parts": [')
    with pytest.raises(OutputDirError, match=r"manifest\.json .*overwrite=true.* out="):
        broken.run()
    broken.run("overwrite=true")
    assert broken.asked() == list(RESPONSES)


def test_a_damaged_part_and_all_behind_it_are_scored_again(broken: Broken) -> None:
    part = broken.parts / "part-00001.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    broken.run()
    assert broken.asked() == ["bb", "ccc", "stop", "eeeee"]
    assert "part-00001.parquet is missing or damaged" in broken.said()
    assert pq.read_table(broken.out)["reward"].to_pylist() == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_a_process_that_died_before_it_tidied_up_has_nothing_left_to_do(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(job: Job) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rmrl.offline.score.discard", dies)
        with pytest.raises(KeyboardInterrupt):
            broken.run()
    assert broken.out.exists()
    assert broken.parts.exists()
    broken.asked()
    broken.run()
    assert not broken.log.exists()
    assert not broken.parts.exists()


def test_only_one_process_at_a_time(broken: Broken) -> None:
    checked = broken.checked()
    another = pytest.raises(OutputDirError, match=rf"another process \(process {os.getpid()} on")
    with claim(checked), another, claim(checked):
        pass
    with claim(checked) as job:
        assert job.rows_done == 3


def test_a_folder_of_somebody_else_is_left_alone(bench: Bench) -> None:
    folder = bench.folder / "s.jsonl.parts"
    folder.mkdir()
    (folder / "thesis.tex").write_text("precious")
    with pytest.raises(OutputDirError, match=r"s\.jsonl\.parts .*thesis\.tex"):
        bench.score(bench.checked(f"data.files={bench.rows('a')}", f"out={bench.folder}/s.jsonl"))
    assert (folder / "thesis.tex").read_text() == "precious"


def test_a_disk_that_is_full_is_a_sentence_and_costs_no_finished_row(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(table: object, where: Path) -> None:
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(job_module.pq, "write_table", full)
        with pytest.raises(DataError, match=r"cannot be written .*No space left.*same command"):
            broken.run()
    assert broken.manifest()["parts"][-1]["rows_done"] == 3
    with monkeypatch.context() as patched:
        patched.setattr("rmrl.data.table_writer.pq.ParquetWriter", full_writer)
        broken.asked()
        with pytest.raises(DataError, match=r"s\.parquet cannot be written .*No space left"):
            broken.run()
    assert broken.asked() == ["stop", "eeeee"]
    assert "5 of 5 rows are scored and kept" in broken.said()
    broken.run()
    assert not broken.log.exists()
    assert pq.read_table(broken.out)["reward"].to_pylist() == [0.1, 0.2, 0.3, 0.4, 0.5]


def full_writer(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_place_that_cannot_be_written_is_a_sentence_before_anything_is_scored(
    bench: Bench,
) -> None:
    (bench.folder / "file").write_text("x")
    checked = bench.checked(f"data.files={bench.rows('a')}", f"out={bench.folder}/file/s.jsonl")
    with pytest.raises(DataError, match=r"cannot be written .*correct the permissions"):
        bench.score(checked)
