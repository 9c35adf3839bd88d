"""A server's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rmrl.types import RewardBatch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_STATES = ("awake", "asleep", "unloaded", "lost")
_EVENTS = ("loads", "wakes", "sleeps", "unloads", "evictions")


class ServerMetrics:
    """One server's counters, in their own registry."""

    def __init__(self, *, queue_rows: Callable[[], float]) -> None:
        """`queue_rows` returns the queue's present length."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "rmrl_requests", "Answered requests", ["route", "code"], registry=self._registry
        )
        self._request_seconds = Histogram(
            "rmrl_request_seconds",
            "Seconds from a request's first byte to the end of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._responses = Counter("rmrl_rows", "Scored responses", registry=self._registry)
        queue = Gauge(
            "rmrl_queue_rows", "Responses that wait or are being scored", registry=self._registry
        )
        queue.set_function(queue_rows)
        self._reward_seconds = Histogram(
            "rmrl_reward_seconds",
            "Seconds of a verdict; those of a batch are computed at the same time",
            ["reward", "status"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._engine_events = Counter(
            "rmrl_engine_events",
            "Loads, wakes, sleeps, unloads and evictions of engines",
            ["engine", "event"],
            registry=self._registry,
        )
        self._engine_seconds = Counter(
            "rmrl_engine_event_seconds",
            "Seconds of loads, wakes, sleeps and unloads",
            ["engine", "event"],
            registry=self._registry,
        )
        self._engine_state = Gauge(
            "rmrl_engine_state",
            "1 for the present state of an engine",
            ["engine", "state"],
            registry=self._registry,
        )

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)

    def answered(self, route: str, code: int, seconds: float) -> None:
        """Count an answer. `route`: the route's pattern, never the path that a client typed."""
        self._requests.labels(route, str(code)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def scored(self, rewards: RewardBatch) -> None:
        """Count a batch's responses and the seconds for its verdicts."""
        self._responses.inc(len(rewards.rewards_B))
        scores = rewards.scores
        for name, results in zip(scores.names, scores.results, strict=True):
            for result in results:
                if result.status != "skipped":
                    timing = self._reward_seconds.labels(name, result.status)
                    timing.observe(result.latency_s)

    def engines(self, metrics: Mapping[str, Any]) -> None:
        """Add the figures from `Scorer.take_metrics`."""
        for key, value in metrics.items():
            prefix, _, rest = key.partition("/")
            label, _, what = rest.rpartition("/")
            if prefix != "engine":
                continue
            if what in _EVENTS:
                self._engine_events.labels(label, what).inc(value)
            elif what.endswith("_s") and f"{what[:-2]}s" in _EVENTS:
                self._engine_seconds.labels(label, f"{what[:-2]}s").inc(value)

    def states(self, table: Sequence[Mapping[str, Any]]) -> None:
        """Show each engine's state."""
        for row in table:
            for state in _STATES:
                shown = 1.0 if row["state"] == state else 0.0
                self._engine_state.labels(row["name"], state).set(shown)
