"""The watch over Ray's processes: several failures in succession are a loss, single ones are not;
work is broken off, or may still end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rmrl.cluster import watch
from rmrl.cluster.watch import (
    ClusterWatch,
    Listener,
    keep_in_mind,
    loss,
    ray_patience_s,
    unless_lost,
    watching,
)
from rmrl.errors import ClusterLostError, EngineLostError, RewardError
from tests.patience import PATIENCE_S, expires


@dataclass
class Clock:
    """Half a second goes by with each look."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


@dataclass(frozen=True, kw_only=True)
class Scripted(Listener):
    """Answers as the script says, then as its last word."""

    script: Sequence[bool]
    seen: list[bool] = field(default_factory=list)

    def answers(self) -> bool:
        answer = self.script[min(len(self.seen), len(self.script) - 1)]
        self.seen.append(answer)
        return answer


def watch_of(*script: bool, tolerated_s: float = 1.0) -> ClusterWatch:
    head = Scripted(name="the head process", host="10.0.0.1", port=6379, script=script)
    return ClusterWatch(listeners=[head], tolerated_s=tolerated_s, clock=Clock())


def lost_after(watch: ClusterWatch, *, rounds: int = 50) -> int | None:
    """The number of the probe that decided; None when none did."""
    return next((number for number in range(1, rounds + 1) if watch.observe()), None)


def test_the_third_failure_in_succession_is_a_loss() -> None:
    watch = watch_of(True, True, False)
    assert (
        lost_after(watch) == 5
    )  # two answers, then failures at 0.5, 1.0 and 1.5 s: the third is 1.0 s after the first
    assert (
        str(watch.loss) == "the head process at 10.0.0.1:6379 is gone, which ends Ray for this run"
    )


def test_failures_with_answers_between_them_are_none() -> None:
    watch = watch_of(*[False, False, True] * 20)
    assert lost_after(watch, rounds=60) is None
    assert watch.loss is None


def test_a_joined_head_may_be_restarted_meanwhile() -> None:
    back_in_time = watch_of(*[False] * 20, True, tolerated_s=15.0)
    assert lost_after(back_in_time) is None  # 20 failures are 9.5 s
    gone = watch_of(False, tolerated_s=15.0)
    assert lost_after(gone) == 31  # 0.5 s apart: 15.0 s after the first one


def test_the_time_left_counts_from_the_first_failure() -> None:
    watch = watch_of(False)
    lost_after(watch)
    assert watch.clock.now == 1.5  # type: ignore[attr-defined]
    assert watch.seconds_left(0.4) == pytest.approx(0.5 + 0.4 * 60.0 - 2.0)
    assert watch.seconds_left(0.0) == 0.0


def test_a_listening_port_answers_and_a_closed_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = Listener(name="it", host="127.0.0.1", port=server.getsockname()[1])
        assert listener.answers()
        assert all(
            listener.answers() for _ in range(50)
        )  # nobody accepts them: a busy process looks like this
    assert not listener.answers()


def lose(watch: ClusterWatch) -> None:
    watch.lose(watch.listeners[0], watch.clock())


async def lasts(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def test_work_is_broken_off_at_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterWatch, "start", lambda _: None)
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with watching(watch_of(True)) as watch:
        keep_in_mind("the first half is kept")
        asyncio.get_running_loop().call_later(0.05, lose, watch)
        with pytest.raises(
            ClusterLostError,
            match=r"10\.0\.0\.1:6379 is gone, which ends Ray for this run; the first half is kept",
        ):
            await unless_lost(endless())
        assert ended == [True]
        with pytest.raises(ClusterLostError):
            await unless_lost(lasts(600))  # what begins after the loss as well
        assert loss() is watch.loss
    assert loss() is None


async def test_work_that_is_cancelled_otherwise_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it does on its way out, such as closing a file, is done before the one who waits goes
    on."""
    monkeypatch.setattr(ClusterWatch, "start", lambda _: None)
    monkeypatch.setattr("rmrl.cluster.watch._CANCEL_TIMEOUT_S", 0.01)
    ended = []
    begun = asyncio.Event()

    async def closes_slowly() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            ended.append(True)

    with watching(watch_of(True)):
        task = asyncio.create_task(unless_lost(closes_slowly()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == [True]


async def test_work_that_may_still_end_after_the_loss_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterWatch, "start", lambda _: None)
    with watching(watch_of(True)) as watch:
        watch.patience_s = 10 * PATIENCE_S
        lose(watch)
        assert await unless_lost(lasts(0.05), until=0.4) == "done"
        watch.patience_s = expires(0.1)
        with pytest.raises(ClusterLostError):
            await unless_lost(lasts(600), until=0.4)


@pytest.mark.parametrize(
    ("script", "error"), [([False], ClusterLostError), ([True], EngineLostError)]
)
async def test_a_call_that_fails_first_is_the_loss_only_where_the_head_is_gone(
    monkeypatch: pytest.MonkeyPatch, script: list[bool], error: type[Exception]
) -> None:
    monkeypatch.setattr(ClusterWatch, "start", lambda _: None)

    async def dies() -> None:
        raise EngineLostError("the process of train-0.update died")

    with watching(watch_of(*script, tolerated_s=PATIENCE_S)) as watch:
        asyncio.get_running_loop().call_later(0.05, lambda: lose(watch) if not script[0] else None)
        with pytest.raises(error):
            await unless_lost(dies())


async def test_errors_of_the_work_and_runs_without_a_cluster_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterWatch, "start", lambda _: None)

    async def wrong() -> None:
        raise RewardError("a wrong number")

    assert await unless_lost(lasts(0.0)) == "done"
    with watching(watch_of(False)), pytest.raises(RewardError, match="a wrong number"):
        await unless_lost(wrong())


def test_the_driver_ends_before_ray_ends_it_and_has_saved_by_then() -> None:
    shares = [watch.TOLERATED, watch.UPDATES_END, watch.CHECKPOINTS_END, watch.DRIVER_ENDS]
    assert shares == sorted(shares)
    assert 0 < watch.TOLERATED <= 0.25
    assert watch.DRIVER_ENDS <= 0.85


def test_rays_patience_is_that_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s", raising=False)
    assert ray_patience_s() == 60.0
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    assert ray_patience_s() == 600.0
