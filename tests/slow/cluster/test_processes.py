"""Real processes: results and our errors come through, death and silence are told apart, nothing is
left."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from rmrl.cluster import processes
from rmrl.cluster.processes import RayHost, RayProcess
from rmrl.cluster.session import ray_session
from rmrl.cluster.stacks import ProcessStacks
from rmrl.cluster.worker_group import WorkerGroup, allocate_ranks
from rmrl.errors import (
    ConfigError,
    EngineLostError,
    InfrastructureError,
    RewardFunctionError,
    StallError,
)
from tests.cluster.looks import Progress, looks_of, risen_above
from tests.cluster.process_parts import at_the_gate
from tests.patience import PATIENCE_S, expires

pytestmark = pytest.mark.alone
PARTS = "tests.cluster.process_parts"


@pytest.fixture(scope="module", autouse=True)
def ray_here() -> Iterator[None]:
    with ray_session({"num_cpus": 2}, processes=1):
        yield


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may take long to end, and to say where it stands."""
    monkeypatch.setattr(processes, "_KILL_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(processes, "_STACKS_TIMEOUT_S", PATIENCE_S)


def look_when(monkeypatch: pytest.MonkeyPatch, places: Mapping[str, str]) -> None:
    """Let the stacks of a stalled process be those of the moment in which it stands at its place:
    a call may reach it later than its deadline passes."""
    stacks = RayProcess.stacks

    async def stacks_there(process: RayProcess) -> ProcessStacks | None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                stack = await stacks(process)
                if stack is not None and places[process.name] in stack.short():
                    return stack
                await asyncio.sleep(0.01)

    monkeypatch.setattr(RayProcess, "stacks", stacks_there)


async def fallen_to(count: int, look: Progress) -> None:
    """Return when a call is at that count: it has begun, after others that got further."""
    async with asyncio.timeout(PATIENCE_S):
        while await look() != count:
            await asyncio.sleep(0.01)


async def counter(start: int = 0, **host: object) -> RayProcess:
    return await RayHost(**host).spawn(f"{PARTS}:Counter", {"start": start}, name="counter")  # type: ignore[arg-type]


async def stream() -> RayProcess:
    return await RayHost(asynchronous=True).spawn(f"{PARTS}:Stream", {}, name="stream")


async def pid_of(process: RayProcess) -> int:
    return await asyncio.wrap_future(process.actor.pid.remote().future())


async def test_calls_keep_state_and_see_their_environment() -> None:
    process = await counter(3, environment={"RMRL_TEST_WORD": "here"})
    assert await process.call("add", 2, timeout_s=30) == 5
    assert await process.call("add", 1, twice=True, timeout_s=30) == 7
    assert await process.call("environment", "RMRL_TEST_WORD", timeout_s=30) == "here"
    await process.kill()


async def test_errors_keep_their_class_and_sentence() -> None:
    process = await counter()
    with pytest.raises(RewardFunctionError, match="the function 'f' returned nothing"):
        await process.call("ours", timeout_s=30)
    with pytest.raises(
        InfrastructureError, match=r"counter\.theirs failed: ValueError: not of ours"
    ):
        await process.call("theirs", timeout_s=30)
    with pytest.raises(
        InfrastructureError, match=r"counter\.times_out failed: TimeoutError: inside the method"
    ):
        await process.call("times_out", timeout_s=30)
    assert await process.call("add", 1, timeout_s=30) == 1  # it lives on
    await process.kill()


async def test_an_error_of_the_constructor_comes_through_as_well() -> None:
    with pytest.raises(ConfigError, match="start=-1: must not be negative"):
        await counter(-1)


async def test_death_and_the_calls_after_it_are_engine_lost() -> None:
    process = await counter()
    with pytest.raises(EngineLostError, match=r"the process of counter\.die died"):
        await process.call("die", timeout_s=30)
    with pytest.raises(EngineLostError, match=r"the process of counter\.add died"):
        await process.call("add", 1, timeout_s=30)
    await process.kill()  # of a dead process: nothing to do, no error


async def test_past_the_deadline_is_a_stall() -> None:
    process = await counter()
    started = time.monotonic()
    with pytest.raises(StallError, match=r"counter\.sleep did not finish within 0\.5 s"):
        await process.call("sleep", 600, timeout_s=expires(0.5))
    assert time.monotonic() - started < 300
    await process.kill()


async def test_a_call_that_advances_is_seen_to_and_one_that_does_not_is_a_stall(
    tmp_path: Path,
) -> None:
    process = await RayHost().spawn(f"{PARTS}:GatedSteps", {"folder": str(tmp_path)}, name="steps")
    with pytest.MonkeyPatch.context() as patch:
        looks = looks_of(patch, "rmrl.cluster.processes")
        first = asyncio.ensure_future(process.call("work_at_the_gate", 3, timeout_s=PATIENCE_S))
        second = asyncio.ensure_future(process.call("work_at_the_gate", 2, timeout_s=PATIENCE_S))
        while len(looks) < 2:
            await asyncio.sleep(0)
        assert await looks[0]() == 0
        for item in (1, 2):
            (tmp_path / str(item)).touch()
            assert await risen_above(item - 1, looks[0]) == item
        (tmp_path / "3").touch()
        assert await first == 3
        # The three items before are no progress of the second call.
        await fallen_to(0, looks[1])
        (tmp_path / "4").touch()
        assert await risen_above(0, looks[1]) == 1
        (tmp_path / "5").touch()
        assert await second == 2
    with pytest.raises(StallError, match=r"steps\.work did not finish within 0\.6 s"):
        await process.call("work", 1, 600.0, timeout_s=expires(0.6))
    await process.kill()


async def test_a_stall_says_where_the_process_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await RayHost(stack_folder=tmp_path).spawn(f"{PARTS}:Stuck", {}, name="train-0")
    look_when(monkeypatch, {"train-0": "wait_at_the_gate"})
    with pytest.raises(StallError) as caught:
        await process.call("on", "actor", "wait_at_the_gate", timeout_s=expires(0.5))
    first, where, file = str(caught.value).splitlines()
    assert (
        first
        == "train-0.actor.wait_at_the_gate did not finish within 0.5 s; it stands in (innermost"
        " first):"
    )
    assert re.search(
        r"train-0 \(pid \d+\): tests/cluster/process_parts\.py:\d+ wait_at_the_gate < ", where
    )
    assert file == f"all stacks: {tmp_path / 'train-0.actor.wait_at_the_gate-1.txt'}"
    assert "self.gate.acquire()" in (tmp_path / "train-0.actor.wait_at_the_gate-1.txt").read_text(
        encoding="utf-8"
    )
    await process.kill()


async def test_a_group_that_stalls_says_where_every_rank_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = [
        await RayHost().spawn(f"{PARTS}:Stuck", {}, name=f"train-{rank}") for rank in range(2)
    ]
    group = WorkerGroup(workers)
    look_when(monkeypatch, {"train-0": "wait_at_the_gate", "train-1": "waits for a call"})
    with pytest.raises(StallError) as caught:
        await group.call(
            "on",
            [("actor", "wait_on_rank", 0), ("actor", "wait_on_rank", 1)],
            timeout_s=expires(0.5),
        )
    first, *ranks = str(caught.value).splitlines()
    assert first.startswith("train.actor.wait_on_rank did not finish within 0.5 s on every rank")
    assert "wait_at_the_gate < " in ranks[0]
    assert re.fullmatch(r"  train-1 \(pid \d+\): waits for a call", ranks[1])
    await group.kill()


async def test_a_stalled_engine_shows_its_threads_and_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = await RayHost(asynchronous=True).spawn(f"{PARTS}:StuckEngine", {}, name="engine")
    places = {"engine": "wait_for_nothing"}
    look_when(monkeypatch, places)
    with pytest.raises(StallError, match=r"process_parts\.py:\d+ wait_for_nothing"):
        await process.call("wait_for_nothing", timeout_s=expires(0.5))
    places["engine"] = "generate"
    with pytest.raises(
        StallError,
        match=r"engine\.generate gave nothing for 0\.5 s[^$]*process_parts\.py:\d+ generate",
    ):
        async for _ in process.stream("generate", timeout_s=expires(0.5)):
            pass
    places["engine"] = "block_the_loop"
    with pytest.raises(StallError, match=r"process_parts\.py:\d+ block_the_loop"):
        # Nothing else would be answered now.
        await process.call("block_the_loop", timeout_s=expires(0.5))
    await process.kill()


async def test_calls_side_by_side_may_take_long_as_long_as_one_of_them_advances(
    tmp_path: Path,
) -> None:
    process = await RayHost(asynchronous=True).spawn(
        f"{PARTS}:StepsBeside", {"folder": str(tmp_path)}, name="engine"
    )
    with pytest.MonkeyPatch.context() as patch:
        looks = looks_of(patch, "rmrl.cluster.processes")
        long = asyncio.ensure_future(process.call("work", "long", 3, timeout_s=PATIENCE_S))
        short = asyncio.ensure_future(process.call("work", "short", 1, timeout_s=PATIENCE_S))
        while len(looks) < 2:
            await asyncio.sleep(0)
        for item in (1, 2):  # which are progress of the one that waits for its first item as well
            (tmp_path / f"long-{item}").touch()
            counts = [await risen_above(item - 1, look) for look in looks]
            assert counts == [item, item]
        (tmp_path / "short-1").touch()
        assert await short == 1
        assert await looks[0]() == 3
        (tmp_path / "long-3").touch()
        assert await long == 3
        # The four items before are no progress of the next call.
        third = asyncio.ensure_future(process.call("work", "third", 1, timeout_s=PATIENCE_S))
        while len(looks) < 3:
            await asyncio.sleep(0)
        await fallen_to(0, looks[2])
        (tmp_path / "third-1").touch()
        assert await third == 1
    with pytest.raises(StallError, match=r"engine\.work did not finish within 0\.5 s"):
        await process.call("work", "never", 1, timeout_s=expires(0.5))
    await process.kill()


async def test_kill_ends_the_process_even_in_the_middle_of_a_call(tmp_path: Path) -> None:
    process = await counter()
    pid = await pid_of(process)
    begun = tmp_path / "begun"
    busy = asyncio.ensure_future(process.call("sleep", 600, str(begun), timeout_s=600))
    await at_the_gate(begun)
    await process.kill()
    with pytest.raises(EngineLostError):
        await busy
    assert not living(pid)


async def test_kill_ends_the_children_too() -> None:
    process = await counter()
    child = await process.call("start_child", timeout_s=30)
    assert living(child)
    await process.kill()
    assert not living(child)


async def test_kill_ends_the_children_of_a_process_that_has_died() -> None:
    process = await counter()
    child = await process.call("start_child", timeout_s=30)
    process.remember_family()
    await process.alive(timeout_s=30)
    with pytest.raises(EngineLostError):
        await process.call("die", timeout_s=30)
    with pytest.raises(EngineLostError, match=r"the process of counter\.alive died"):
        await process.alive(timeout_s=30)
    await process.kill()
    assert not living(child)


def living(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_a_stream_comes_part_by_part(tmp_path: Path) -> None:
    process = await stream()
    (tmp_path / "0").touch()
    numbers = []
    async for number in process.stream("numbers", 3, str(tmp_path), timeout_s=PATIENCE_S):
        numbers.append(number)
        (tmp_path / str(number + 1)).touch()  # without which the next one does not come
    assert numbers == [0, 1, 2]
    with pytest.raises(StallError, match=r"stream\.numbers gave nothing for 0\.3 s"):
        async for _ in process.stream("numbers", 1, "/nowhere", timeout_s=expires(0.3)):
            pass
    await process.kill()


async def test_a_stream_that_breaks_or_dies_says_so_after_what_it_gave() -> None:
    process = await stream()
    parts = process.stream("breaks", timeout_s=30)
    got = [await anext(parts)]
    with pytest.raises(RewardFunctionError, match="after the first"):
        await anext(parts)
    with pytest.raises(EngineLostError, match=r"the process of stream\.dies died"):
        async for _ in process.stream("dies", timeout_s=30):
            pass
    assert got == [1]
    await process.kill()


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_stream_that_is_left_early_is_closed_in_its_process(how: str) -> None:
    process = await stream()
    parts = process.stream("endless", timeout_s=PATIENCE_S)
    assert await anext(parts) == 0
    assert await process.call("closed", timeout_s=PATIENCE_S) == 0
    if how == "closed":
        await parts.aclose()
    else:
        waiting = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await process.call("closed", timeout_s=PATIENCE_S) == 1
    assert await process.call("double", 2, together=1, timeout_s=PATIENCE_S) == 4
    await process.kill()


async def test_coroutines_of_one_process_run_side_by_side() -> None:
    process = await stream()
    calls = [process.call("double", n, together=100, timeout_s=PATIENCE_S) for n in range(100)]
    assert await asyncio.gather(*calls) == list(range(0, 200, 2))
    await process.kill()


async def test_ranks_are_reserved_shared_and_released() -> None:
    allocation = await allocate_ranks(2, device="cpu", nnodes=1)
    assert len({location.node_id for location in allocation.locations}) == 1
    assert allocation.init_method.startswith("tcp://")
    workers = [
        await allocation.host(rank, {}).spawn(f"{PARTS}:Counter", {"start": rank}, name=f"w{rank}")
        for rank in range(2)
    ]
    group = WorkerGroup(workers)
    assert await group.call("add", [(10,), (20,)], timeout_s=30) == [10, 21]
    await group.kill()
    await allocation.release()
    again = await allocate_ranks(2, device="cpu", nnodes=1)  # the slots are free again
    await again.release()


async def test_a_cluster_of_too_few_machines_is_told_with_what_each_has() -> None:
    with pytest.raises(
        InfrastructureError,
        match=r"asks for 2 processes on 2 machine\(s\), 1 on each; the cluster has 1 machine\(s\)",
    ):
        await allocate_ranks(2, device="cpu", nnodes=2, timeout_s=expires(1.0))
