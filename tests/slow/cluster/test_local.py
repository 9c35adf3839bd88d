"""Real processes without Ray: results and our errors come through, death and silence are told
apart, nothing is left."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rmrl.cluster.local import LocalHost, LocalProcess
from rmrl.errors import (
    ConfigError,
    EngineLostError,
    InfrastructureError,
    RewardFunctionError,
    StallError,
)
from tests.cluster.process_parts import at_the_gate
from tests.patience import expires
from tests.trainer.job import wait_for

PARTS = "tests.cluster.process_parts"


async def counter(start: int = 0, **environment: str) -> LocalProcess:
    return await LocalHost(environment).spawn(f"{PARTS}:Counter", {"start": start}, name="counter")


@pytest.mark.alone
async def test_calls_keep_state_and_see_their_environment() -> None:
    process = await counter(3, RMRL_TEST_WORD="here")
    assert await process.call("add", 2, timeout_s=30) == 5
    assert await process.call("add", 1, twice=True, timeout_s=30) == 7
    assert await process.call("environment", "RMRL_TEST_WORD", timeout_s=30) == "here"
    await process.kill()


@pytest.mark.alone
async def test_errors_keep_their_class_and_sentence() -> None:
    process = await counter()
    with pytest.raises(RewardFunctionError, match="the function 'f' returned nothing"):
        await process.call("ours", timeout_s=30)
    with pytest.raises(InfrastructureError, match="theirs failed: ValueError: not of ours"):
        await process.call("theirs", timeout_s=30)
    with pytest.raises(InfrastructureError, match="TimeoutError: inside the method"):
        await process.call("times_out", timeout_s=30)
    await process.kill()
    with pytest.raises(ConfigError, match="start=-1"):
        await counter(-1)


@pytest.mark.alone
async def test_death_and_the_calls_after_it_are_engine_lost() -> None:
    process = await counter()
    for method in ("die", "sleep"):
        with pytest.raises(EngineLostError, match=f"the process of counter.{method} died"):
            await process.call(method, timeout_s=30)
    await process.kill()


@pytest.mark.alone
async def test_a_call_past_its_deadline_is_a_stall_and_its_answer_is_nobody_elses(
    tmp_path: Path,
) -> None:
    process = await counter()
    gate = tmp_path / "gate"
    with pytest.raises(StallError, match=r"counter.wait_for_file did not finish within 0.2 s"):
        await process.call("wait_for_file", str(gate), timeout_s=expires(0.2))
    gate.touch()
    assert await process.call("add", 5, timeout_s=30) == 5
    await process.kill()


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.alone
async def test_kill_ends_process_and_children_in_the_middle_of_a_call(tmp_path: Path) -> None:
    process = await counter()
    child = await process.call("start_child", timeout_s=30)
    begun = tmp_path / "begun"
    running = asyncio.ensure_future(process.call("sleep", 600, str(begun), timeout_s=600))
    await at_the_gate(begun)
    started = time.monotonic()
    await process.kill()
    assert time.monotonic() - started < 300
    with pytest.raises(EngineLostError):
        await running
    assert not psutil.pid_exists(process.pid)
    assert not _alive(child)


@pytest.mark.alone
@pytest.mark.parametrize("call", ["", "await process.call('sleep', 600, timeout_s=600)"])
def test_it_ends_when_its_parent_is_killed_even_in_the_middle_of_a_call(call: str) -> None:
    program = (
        "import asyncio, os, signal\n"
        "from rmrl.cluster.local import LocalHost\n"
        "async def go():\n"
        f"    process = await LocalHost().spawn('{PARTS}:Counter', {{}}, name='c')\n"
        "    print(process.pid, flush=True)\n"
        "    asyncio.get_running_loop().call_later(1, os.kill, os.getpid(), signal.SIGKILL)\n"
        f"    {call or 'await asyncio.sleep(600)'}\n"
        "asyncio.run(go())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).resolve().parents[3],
    )
    pid = int(done.stdout)
    wait_for(lambda: not _alive(pid), what="the end of the process")


@pytest.mark.alone
async def test_the_children_of_a_process_that_has_died_are_ended() -> None:
    process = await counter()
    child = psutil.Process(await process.call("start_child", timeout_s=30))
    process.remember_family()
    with pytest.raises(EngineLostError):
        await process.call("die", timeout_s=30)
    assert child.is_running()
    await process.kill()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
