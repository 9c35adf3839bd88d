"""Real clusters whose driver, head or node process is killed: exit codes, what is left, and the
next start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.trainer.job import LIMIT_S, descendants, still_running

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[3]


def start(name: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster.cluster_jobs", name]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )


@pytest.mark.parametrize("starts", [3, pytest.param(6, marks=pytest.mark.nightly)])
def test_after_a_killed_driver_the_next_start_neither_joins_nor_fails(starts: int) -> None:
    addresses: list[str] = []
    working: list[psutil.Process] = []
    for _ in range(starts):  # the first one, and the others right behind a killed one
        driver = start("busy")
        assert driver.stdout is not None
        addresses.append(driver.stdout.readline().strip())
        if not addresses[-1]:
            raise AssertionError(driver.communicate(timeout=60)[1][-3000:])
        working += [process for process in descendants(driver.pid) if "Agent" not in process.name()]
        driver.kill()
        driver.communicate(timeout=60)
        time.sleep(0.1)
    assert len(set(addresses)) == starts
    assert still_running(working) == []  # engines, their children, Ray's head and node process


@pytest.mark.parametrize(("name", "earliest_s"), [("head_lost", 1.0), ("joined_head_lost", 5.0)])
def test_a_killed_head_is_noticed_long_before_ray_ends_the_driver(
    name: str, earliest_s: float
) -> None:
    """Ray would end it after 100 s, and the watch itself after 85 s."""
    driver = start(name, RAY_gcs_rpc_server_reconnect_timeout_s="100")
    printed, errors = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 4, errors[-3000:]
    raylet, noticed_s = printed.split()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(raylet)).kill()  # of a cluster that the driver had only joined
    assert earliest_s <= float(noticed_s) <= 60
    assert "ClusterLostError: the head process of the Ray cluster (gcs_server)" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("name", "environment", "sentence"),
    [
        ("store_lost", {}, "Ray's node process on this machine (raylet)"),
        (
            "blocked",
            {"RAY_gcs_rpc_server_reconnect_timeout_s": "100"},
            "the head process of the Ray cluster (gcs_server)",
        ),
        pytest.param(
            "blocked_for_long",
            {"RAY_gcs_rpc_server_reconnect_timeout_s": "200"},
            "the head process of the Ray cluster (gcs_server)",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_the_driver_leaves_with_code_4_where_ray_would_end_it_with_code_1(
    name: str, environment: dict[str, str], sentence: str
) -> None:
    driver = start(name, **environment)
    _, errors = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 4, errors[-3000:]
    assert f"ClusterLostError: {sentence}" in errors
    assert "Traceback" not in errors
