"""A tracker that waits, fails or hangs does not hold up a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import pytest

from rmrl.telemetry.background import BackgroundSink
from rmrl.telemetry.sinks import Sink, Sinks
from tests.patience import PATIENCE_S, expires


class Slow:
    """Takes a step only when `gate` is open; raises at step `fails_at`."""

    def __init__(self, gate: threading.Event | None = None, fails_at: int = 10**9) -> None:
        self.gate, self.fails_at = gate, fails_at
        self.steps: list[int] = []
        self.threads: set[str] = {threading.current_thread().name}
        self.closed = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.gate is not None:
            self.gate.wait(600)
        if step == self.fails_at:
            raise ConnectionError("no route")
        self.threads.add(threading.current_thread().name)
        self.steps.append(step)

    def close(self) -> None:
        self.closed += 1


def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_every_step_arrives_in_order_in_one_other_thread() -> None:
    made: list[Slow] = []

    def make() -> Sink:
        made.append(Slow())
        return made[0]

    sink = BackgroundSink("slow", make)
    for step in range(50):
        sink.log(step, {})
    sink.close()
    sink.close()
    assert made[0].steps == list(range(50))
    assert made[0].threads == {"logger-slow"}
    assert made[0].closed == 1


def test_a_sink_that_hangs_costs_the_run_nothing_and_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = threading.Event()
    sinks = Sinks(
        {"hangs": BackgroundSink("hangs", lambda: Slow(gate), waiting_steps=3, close_s=600.0)}
    )
    began = time.monotonic()
    for step in range(1, 10):
        sinks.log(step, {})
    sinks.close()
    assert time.monotonic() - began < 300
    assert len(caplog.messages) == 1
    assert "the logger hangs failed at step" in caplog.messages[0]
    assert "it does not answer, 3 steps wait for it. It is switched off" in caplog.messages[0]
    gate.set()


def test_one_that_hangs_at_the_end_has_a_deadline(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    sinks = Sinks({"hangs": BackgroundSink("hangs", lambda: Slow(gate), close_s=expires(0.2))})
    for step in (1, 2, 3):
        sinks.log(step, {})
    sinks.close()
    assert len(caplog.messages) == 1
    # the first is in its hands, two wait
    assert (
        "failed while closing with TimeoutError: it did not finish within 0.2 s, 2 steps still wait"
        " for it" in caplog.messages[0]
    )
    gate.set()


def test_one_that_takes_its_time_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    made = Slow(gate)
    sinks = Sinks({"slow": BackgroundSink("slow", lambda: made, close_s=30.0)})
    sinks.log(1, {})
    threading.Timer(0.2, gate.set).start()
    sinks.close()
    assert (made.steps, made.closed, caplog.messages) == ([1], 1, [])


def test_what_it_raises_is_reported_once_and_it_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    made = Slow(fails_at=2)
    sinks = Sinks({"bad": BackgroundSink("bad", lambda: made)})
    sinks.log(1, {})
    sinks.log(2, {})
    until(lambda: made.closed)
    for step in (3, 4):
        sinks.log(step, {})
    sinks.close()
    assert caplog.messages == [
        "the logger bad failed at step 3 with ConnectionError: no route. It is switched off for the"
        " rest of this run; training goes on."
    ]
    assert (made.steps, made.closed) == ([1], 1)


def test_a_failure_nobody_saw_is_reported_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    sinks = Sinks({"bad": BackgroundSink("bad", lambda: Slow(fails_at=1))})
    sinks.log(1, {})
    sinks.close()
    assert caplog.messages == ["the logger bad failed while closing with ConnectionError: no route"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionError("no login"), "with ConnectionError: no login"),
        (SystemExit(1), "with RuntimeError: it left with SystemExit(1)"),
    ],
)
def test_one_that_cannot_be_opened_does_not_stop_the_run(
    error: BaseException, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Sink:
        raise error

    sinks = Sinks({"bad": BackgroundSink("bad", make)})
    sinks.log(1, {})
    sinks.close()
    assert len(caplog.messages) == 1
    assert words in caplog.messages[0]
