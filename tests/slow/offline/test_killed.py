"""`rmrl score` under signals: what is scored stays scored, the same command goes on, and the output
is that of one clean run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmrl.assemble.preflight import TRIAL_ROWS
from tests.inputs import write_lines
from tests.trainer.job import descendants, still_running, wait_for

pytestmark = pytest.mark.fresh

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 600.0
ROWS = 800
RULE = """
import os, time
from pathlib import Path

LOG = Path(os.environ["SCORED_LOG"])
HELD = LOG.with_suffix(".held")
AT_MOST = int(HELD.read_text()) if HELD.exists() else 0  # rows that are scored while it is there

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    with LOG.open("a") as log:
        log.write(f"{extra_info['row']}\\n")
    time.sleep(0.01)
    while HELD.exists() and len(LOG.read_text().splitlines()) > AT_MOST:
        time.sleep(0.01)
    return {"score": (extra_info["row"] * 7919 % 101) / 7, "first": solution_str[:3]}
"""
RUN = (
    "import sys, rmrl.offline.job as job; job.PART_SECONDS = 0.3; from rmrl.main_score import main;"
    " sys.exit(main(sys.argv[1:]))"
)
"""The command with parts of a third of a second."""
RUNNING = ("reward.transforms.slow={kind: standardize, by: running, decay: 0.9}",)
BY_GROUP = ("reward.transforms.slow={kind: standardize, by: group}",)


@dataclass(slots=True)
class Command:
    """`rmrl score` over `ROWS` rows with a rule that notes every row that it scores."""

    folder: Path
    suffix: str
    settings: tuple[str, ...]
    runs: int = 0
    printed: list[str] = field(default_factory=list)

    def start(self, out: str, *, held_after: int | None = None) -> subprocess.Popen[str]:
        """The command; `held_after`: it scores so many rows, the trial calls counted, and waits
        then."""
        self.runs += 1
        if held_after is not None:
            self.held().write_text(str(held_after))
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *self._keys(out)],
            cwd=REPOSITORY,
            env={**os.environ, "SCORED_LOG": str(self.log())},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _keys(self, out: str) -> list[str]:
        return [
            f"data.files={self.folder}/rows.jsonl",
            f"out={self.folder}/{out}.{self.suffix}",
            f"reward.functions_dir={self.folder}/functions",
            "reward.models=[slow]",
            "reward.rule_workers=2",
            f"reward.rule_timeout_s={2 * LIMIT_S}",
            "data.batch_size=16",
            "trainer.device=cpu",
            *self.settings,
        ]

    def log(self) -> Path:
        return self.folder / f"scored-{self.runs}.log"

    def held(self) -> Path:
        """Removed, a run that waits goes on."""
        return self.log().with_suffix(".held")

    def scored(self) -> list[int]:
        """Rows that the last run scored, as far as it got, without the trial calls before them."""
        lines = self.log().read_text().splitlines() if self.log().exists() else []
        return [int(line) for line in lines[TRIAL_ROWS:]]

    def wait_for_rows(self, process: subprocess.Popen[str], *, more_than: int = 0) -> None:
        """Until the run has scored so many, or has ended."""
        wait_for(
            lambda: len(self.scored()) > more_than or process.poll() is not None,
            what=f"more than {more_than} scored rows",
        )

    def done(self, out: str) -> int:
        """Rows in finished parts."""
        manifest = self.folder / f"{out}.{self.suffix}.parts" / "manifest.json"
        if not manifest.exists():
            return 0
        parts = json.loads(manifest.read_text())["parts"]
        return parts[-1]["rows_done"] if parts else 0

    def finish(self, job: subprocess.Popen[str]) -> str:
        printed, _ = job.communicate(timeout=LIMIT_S)
        assert job.returncode == 0, printed[-3000:]
        return printed

    def bytes_of(self, out: str) -> bytes:
        return (self.folder / f"{out}.{self.suffix}").read_bytes()


def command(folder: Path, suffix: str, settings: tuple[str, ...]) -> Command:
    """Rows of 100 prompts, those of one prompt far apart."""
    (folder / "functions").mkdir()
    (folder / "functions" / "slow.py").write_text(RULE)
    rows = [
        {"prompt": f"q{i % 100}", "response": f"answer {i}", "extra_info": {"row": i}}
        for i in range(ROWS)
    ]
    write_lines(folder / "rows.jsonl", rows)
    return Command(folder, suffix, settings)


def kill_at_random(job: Command, *, kills: int, seed: int, longest_s: float = 0.8) -> int:
    """Start the command and kill it `kills` times, each up to `longest_s` after it has begun to
    score and before it can have scored all; then let it end.

    Returns how many rows were scored more than once. Fails where a row of a finished part is scored
    again.
    """
    draw = random.Random(seed)
    order = (
        list(range(ROWS))
        if "running" in job.settings[0]
        else [row for q in range(100) for row in range(q, ROWS, 100)]
    )
    place = {row: position for position, row in enumerate(order)}
    times = dict.fromkeys(range(ROWS), 0)
    share = ROWS // (kills + 1)
    for run in range(kills + 1):
        before = job.done("killed")
        process = job.start("killed", held_after=share if run < kills else None)
        if run < kills:
            job.wait_for_rows(process)
            time.sleep(draw.uniform(0.0, longest_s))
            process.kill()
            process.communicate(timeout=LIMIT_S)
            assert process.returncode == -signal.SIGKILL
        else:
            job.finish(process)
        assert all(place[row] >= before for row in job.scored())
        for row in job.scored():
            times[row] += 1
    assert min(times.values()) >= 1
    return sum(count > 1 for count in times.values())


@pytest.mark.parametrize(
    ("suffix", "settings"),
    [
        ("parquet", RUNNING),
        ("jsonl", RUNNING),
        ("jsonl", BY_GROUP),
        ("parquet", BY_GROUP),
        ("csv", RUNNING),
    ],
)
@pytest.mark.parametrize("kills", [3, pytest.param(6, marks=pytest.mark.nightly)])
def test_killed_at_random_points_the_output_is_that_of_a_clean_run(
    tmp_path: Path, suffix: str, settings: tuple[str, ...], kills: int
) -> None:
    job = command(tmp_path, suffix, settings)
    job.finish(job.start("clean"))
    assert len(job.scored()) == ROWS
    job.runs = 0
    for log in tmp_path.glob("scored-*.log"):
        log.unlink()
    again = kill_at_random(job, kills=kills, seed=11)
    print(f"{again} of {ROWS} rows were scored again")
    assert job.bytes_of("killed") == job.bytes_of("clean")
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_at_random_points_with_exports_and_quarantine_the_files_are_those_of_a_clean_run(
    tmp_path: Path, kills: int
) -> None:
    further = ("select=best", "export=dpo", "data.on_bad_row=quarantine")
    job = command(tmp_path, "jsonl", (*RUNNING, *further))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"prompt": "cut off\n[]\n')
    job.finish(job.start("clean"))
    job.runs = 0
    for log in tmp_path.glob("scored-*.log"):
        log.unlink()
    again = kill_at_random(job, kills=kills, seed=23, longest_s=0.25)
    print(f"{again} of {ROWS} rows were scored again")
    assert job.bytes_of("killed") == job.bytes_of("clean")
    for file in ("{}.best.jsonl", "{}.dpo.jsonl", "{}.jsonl.quarantine.jsonl"):
        content = (tmp_path / file.format("killed")).read_bytes()
        assert content == (tmp_path / file.format("clean")).read_bytes()
        assert content
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_keeps_what_is_scored_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    job = command(tmp_path, "parquet", RUNNING)
    process = job.start("stopped", held_after=200)
    job.wait_for_rows(process, more_than=100)
    family = descendants(process.pid)
    os.kill(process.pid, number)
    printed, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, printed[-3000:]
    done = job.done("stopped")
    assert (
        f"{done} of {ROWS} rows are scored and kept in {tmp_path}/stopped.parquet.parts; the same"
        " command goes on from there" in printed
    )
    assert f"[rmrl] interrupted by {number.name}" in printed
    assert "Traceback" not in printed
    # every finished batch is kept, the one at work is given up
    assert 64 < done <= len(job.scored()) < ROWS
    assert len(job.scored()) - done <= 16
    assert still_running(family) == []
    said = job.finish(job.start("stopped"))
    assert f"resuming: {done} of {ROWS} rows were scored before" in said
    assert sorted(job.scored()) == list(range(done, ROWS))


def test_under_nohup_a_hangup_is_ignored(tmp_path: Path) -> None:
    job = command(tmp_path, "jsonl", RUNNING)
    before = signal.signal(
        signal.SIGHUP, signal.SIG_IGN
    )  # what nohup does; a started process inherits it
    try:
        process = job.start("nohup", held_after=200)
    finally:
        signal.signal(signal.SIGHUP, before)
    job.wait_for_rows(process)
    os.kill(process.pid, signal.SIGHUP)
    job.held().unlink()
    job.finish(process)
    assert len(job.scored()) == ROWS


def test_two_processes_at_one_output(tmp_path: Path) -> None:
    job = command(tmp_path, "jsonl", RUNNING)
    first = job.start("same", held_after=200)
    hold = job.held()
    job.wait_for_rows(first)
    second = job.start("same")
    printed, _ = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 2, printed[-3000:]
    assert f"is being written by another process (process {first.pid} on " in printed
    assert "Traceback" not in printed
    assert not job.scored()
    hold.unlink()
    job.finish(first)
