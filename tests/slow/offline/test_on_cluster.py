"""score.engine=ray_data: the rows and the numbers of the local engine, on a real cluster of two
nodes (two raylets on this machine)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.cluster_of_two import cluster_of_two
from tests.inputs import rule
from tests.trainer.job import still_running, wait_for

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 600.0
ROWS = 400
RULE = """
import os, time
from collections import Counter
from pathlib import Path

LOG = Path(__file__).with_name("scored.log")
HELD = LOG.with_name("held").read_text()

def held(raylet, row):
    if HELD == "both":  # no node goes far ahead of the other
        calls = Counter(line.split()[0] for line in LOG.read_text().splitlines())
        return calls[raylet] > 100 and sum(count > 20 for count in calls.values()) < 2
    return HELD.isdigit() and row.isdigit() and int(row) >= int(HELD)

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    # the worker's parent is an actor, and that one's the raylet of its node
    stat = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    with LOG.open("a") as log:
        log.write(f"{stat[1]} {os.getpid()} {solution_str[-4:]}\\n")
    time.sleep(0.01)
    while held(stat[1], solution_str[-4:]):
        time.sleep(0.05)
    if solution_str == "silent":
        return None
    return {"score": len(solution_str) / 7, "first": solution_str[:1]}
"""
RAISES = rule("return 1.0 if len(solution_str) < 9 else None")
KILLS = """
import os, signal

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str.endswith("0399"):
        os.kill(os.getppid(), signal.SIGKILL)
    return 1.0
"""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """Address of a cluster with two CPUs on each of its two nodes."""
    with cluster_of_two(num_cpus=2, object_store_memory=100 * 2**20) as address:
        yield address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cluster")
    (made / "functions").mkdir()
    (made / "functions" / "slow.py").write_text(RULE)
    (made / "functions" / "raises.py").write_text(RAISES)
    (made / "functions" / "kills.py").write_text(KILLS)
    rows = [
        {"prompt": f"q{i % 7}", "response": f"{'é' * (i % 13)} {i:04d}", "n": i / 3}
        for i in range(ROWS)
    ]
    rows[5]["response"] = "silent"
    lines = [json.dumps(row) for row in rows]
    lines[3:3] = ["{", '{"prompt": "q"}']
    (made / "rows.jsonl").write_text("\n".join(lines))
    return made


def start(folder: Path, out: str, *keys: str, held: str = "") -> subprocess.Popen[str]:
    """The command; `held`: the rule waits from this row on, or "both": until it was called on both
    nodes."""
    arguments = [
        f"data.files={folder}/rows.jsonl",
        f"out={folder}/{out}",
        f"reward.functions_dir={folder}/functions",
        "reward.models=[slow]",
        f"reward.rule_timeout_s={2 * LIMIT_S}",
        "data.batch_size=20",
        "data.on_bad_row=quarantine",
        "trainer.device=cpu",
        "overwrite=true",
        *keys,
    ]
    (folder / "functions" / "held").write_text(held)
    scored_log(folder).unlink(missing_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "rmrl.main_score", *arguments],
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def scored_log(folder: Path) -> Path:
    """Raylet, worker and row of each call since the last start."""
    return folder / "functions" / "scored.log"


def workers(folder: Path) -> list[psutil.Process]:
    """The processes that ran the rule since the last start, as far as they are there."""
    lines = scored_log(folder).read_text().splitlines()
    found: list[psutil.Process] = []
    for pid in sorted({int(line.split()[1]) for line in lines}):
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def wait_for_part(folder: Path, out: str, process: subprocess.Popen[str]) -> Path:
    """The manifest of a job, once it has a part."""
    manifest = folder / f"{out}.parts" / "manifest.json"
    wait_for(lambda: manifest.exists() or process.poll() is not None, what="the first part")
    return manifest


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    printed, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, printed[-3000:]
    return printed


def numbers(printed: str) -> str:
    """Return the tables of a job's output without its times."""
    return re.sub(r"where [\d.]+ s went\n(  .*\n)+", "", printed[printed.index("scores\n") :])


@pytest.mark.alone
class TestOnTwoNodes:
    def test_rows_and_numbers_are_those_of_the_local_engine(
        self, folder: Path, two_nodes: str
    ) -> None:
        """The next job reads what one has written, so each format is read once and written once."""
        cluster = ("score.engine=ray_data", f"ray_kwargs.ray_init.address={two_nodes}")
        files = f"data.files={folder}/rows.jsonl"
        for suffix in ("parquet", "csv", "jsonl"):
            keys = ("columns=[raw]", "select=best", files)
            local = finish(start(folder, f"local.{suffix}", *keys))
            printed = finish(start(folder, f"ray.{suffix}", *keys, *cluster))
            for name in (suffix, "best.jsonl"):
                content = (folder / f"ray.{name}").read_bytes()
                assert content == (folder / f"local.{name}").read_bytes()
            assert numbers(printed) == numbers(local)
            if suffix == "parquet":
                content = (folder / "ray.parquet.quarantine.jsonl").read_bytes()
                assert content == (folder / "local.parquet.quarantine.jsonl").read_bytes()
                assert "402 rows read = 400 scored + 2 quarantined" in printed
            files = f"data.files={folder}/local.{suffix}"

    def test_both_nodes_score(self, folder: Path, two_nodes: str) -> None:
        address = f"ray_kwargs.ray_init.address={two_nodes}"
        finish(start(folder, "nodes.jsonl", "score.engine=ray_data", address, held="both"))
        raylets = [line.split()[0] for line in scored_log(folder).read_text().splitlines()]
        # the trial calls of the checks were made by processes of no raylet
        assert sum(raylets.count(raylet) > 20 for raylet in set(raylets)) == 2

    def test_a_killed_job_goes_on_and_scores_no_finished_row_again(
        self, folder: Path, two_nodes: str
    ) -> None:
        keys = ("score.engine=ray_data", f"ray_kwargs.ray_init.address={two_nodes}")
        finish(start(folder, "clean.parquet"))
        process = start(folder, "killed.parquet", *keys, held="200")
        manifest = wait_for_part(folder, "killed.parquet", process)
        process.kill()
        process.communicate()
        done = json.loads(manifest.read_text())["parts"][-1]["rows_done"]
        assert 0 < done < ROWS
        # the cluster ends the actors of the lost driver
        assert still_running(workers(folder)) == []
        printed = finish(start(folder, "killed.parquet", *keys))
        assert f"resuming: {done} of {ROWS} rows were scored before" in printed
        assert (folder / "killed.parquet").read_bytes() == (folder / "clean.parquet").read_bytes()
        scored = [line.split()[2:] for line in scored_log(folder).read_text().splitlines()]
        numbers = {int(words[0]) for words in scored if words and words[0].isdigit()}
        # the trial calls of the checks take the first rows
        assert not {number for number in numbers if 8 < number < done}

    def test_an_engine_of_one_process_is_in_every_actor(
        self, folder: Path, two_nodes: str, tiny_reward_llama: Path
    ) -> None:
        model = (
            "reward.models=[quality]",
            f"reward.specs.quality.path={tiny_reward_llama}",
            "reward.specs.quality.kind=bradley_terry",
            "reward.specs.quality.engine.name=hf",
            "data.max_rows=60",
        )
        cluster = ("score.engine=ray_data", f"ray_kwargs.ray_init.address={two_nodes}")
        finish(start(folder, "local-model.jsonl", *model))
        finish(start(folder, "ray-model.jsonl", *model, *cluster, "score.actors=2"))
        pairs = []
        for name in ("local", "ray"):
            lines = (folder / f"{name}-model.jsonl").read_text().splitlines()
            pairs.append([json.loads(line)["reward"] for line in lines])
        assert len(pairs[0]) == 58
        # float32: rounding by the size of a batch alone
        assert pairs[1] == pytest.approx(pairs[0], abs=1e-5)

    def test_an_error_of_an_actor_keeps_its_type(self, folder: Path, two_nodes: str) -> None:
        printed = finish(
            start(
                folder,
                "error.jsonl",
                "reward.models=[raises]",
                "reward.on_missing=fail",
                "score.engine=ray_data",
                f"ray_kwargs.ray_init.address={two_nodes}",
            ),
            code=3,
        )
        assert "reward 'raises'" in printed
        assert "Traceback" not in printed

    def test_sigterm_ends_it_as_ctrl_c_does(self, folder: Path, two_nodes: str) -> None:
        keys = ("score.engine=ray_data", f"ray_kwargs.ray_init.address={two_nodes}")
        process = start(folder, "ended.jsonl", *keys, held="200")
        wait_for_part(folder, "ended.jsonl", process)
        process.send_signal(signal.SIGTERM)
        assert "interrupted by SIGTERM" in finish(process, code=130)

    def test_a_batch_that_ends_its_actor_ends_the_job(self, folder: Path, two_nodes: str) -> None:
        printed = finish(
            start(
                folder,
                "kills.jsonl",
                "reward.models=[kills]",
                "score.engine=ray_data",
                f"ray_kwargs.ray_init.address={two_nodes}",
            ),
            code=4,
        )
        assert "Ray Data could not finish the job" in printed

    def test_an_actor_larger_than_any_node_is_a_sentence(
        self, folder: Path, two_nodes: str
    ) -> None:
        keys = ("score.engine=ray_data", f"ray_kwargs.ray_init.address={two_nodes}")
        # two nodes of 2 CPUs
        printed = finish(start(folder, "large.jsonl", *keys, "reward.rule_workers=3"), code=2)
        assert "an actor needs 3 CPUs on one node" in printed
