"""Destinations of metrics: the table of sinks, and `Sinks`, which writes to several and survives
the loss of any.

A sink is `factory(context: SinkContext) -> Sink`. A user's own is named as package.module:factory
  in trainer.logger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rmrl.errors import ConfigError
from rmrl.registry import Registry
from rmrl.telemetry.sample_table import SampleTable

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """One destination of metrics. May raise: `Sinks` reports it and switches the sink off."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class TextSink(Protocol):
    """A sink that can also show a block of text."""

    def text(self, step: int, text: str) -> None: ...


@runtime_checkable
class TableSink(Protocol):
    """A sink that can also show a table of scored samples."""

    def table(self, step: int, table: SampleTable) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Facts about the run for sinks."""

    out_dir: Path
    project: str
    experiment: str
    total_steps: int | None = None
    """Steps in all, for the progress bar. None: unknown."""
    resume_step: int | None = None
    """Step of the checkpoint from which this run continues. Later entries are cut away. None: a
    start from nothing, all entries are cut away."""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The resolved configuration as plain values, for trackers that show it."""


SINKS: Registry[Callable[[SinkContext], Sink]] = Registry(
    "trainer.logger",
    {
        "console": "rmrl.telemetry.console:ConsoleSink",
        "jsonl": "rmrl.telemetry.trackers:JsonlSink",
        "tensorboard": "rmrl.telemetry.trackers:TensorBoardSink",
        "wandb": "rmrl.telemetry.remote:wandb",
        "trackio": "rmrl.telemetry.remote:trackio",
        "mlflow": "rmrl.telemetry.remote:mlflow",
        "swanlab": "rmrl.telemetry.remote:swanlab",
    },
)


class Sinks:
    """Several sinks as one. One that raises is reported once as a warning and switched off. The
    run goes on."""

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sinks that still work."""
        return tuple(self._sinks)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass one step's metrics to every sink that still works."""
        self._pass_on(step, lambda sink: sink.log(step, metrics))

    def text(self, step: int, text: str) -> None:
        """Pass a block of text, such as a scored sample, to the sinks that can show one."""

        def write(sink: Sink) -> None:
            if isinstance(sink, TextSink):
                sink.text(step, text)

        self._pass_on(step, write)

    def table(self, step: int, table: SampleTable) -> None:
        """Pass the scored samples of a step to the sinks that can show a table."""

        def write(sink: Sink) -> None:
            if isinstance(sink, TableSink):
                sink.table(step, table)

        self._pass_on(step, write)

    def close(self) -> None:
        """Close every sink. Safe to call twice."""
        for name, sink in list(self._sinks.items()):
            del self._sinks[name]
            try:
                sink.close()
            except Exception as error:  # as in `_pass_on`
                _log.warning(
                    f"the logger {name} failed while closing with {type(error).__name__}: {error}"
                )

    def _pass_on(self, step: int, write: Callable[[Sink], None]) -> None:
        """Call `write` for every sink that still works."""
        for name, sink in list(self._sinks.items()):
            try:
                write(sink)
            # third-party code: it may raise anything, and no log line is worth a run
            except Exception as error:
                self._switch_off(name, step, error)

    def _switch_off(self, name: str, step: int, error: Exception) -> None:
        sink = self._sinks.pop(name)
        _log.warning(
            f"the logger {name} failed at step {step} with {type(error).__name__}: {error}. It is"
            " switched off for the rest of this run; training goes on."
        )
        try:
            sink.close()
        except Exception as second:  # the sink is broken already
            _log.debug("closing %s: %s", name, second)


def open_sinks(names: Sequence[str], context: SinkContext) -> Sinks:
    """Open the sinks of trainer.logger. Raises one ConfigError with every name that is unknown or
    whose package is missing."""
    opened: dict[str, Sink] = {}
    problems: list[str] = []
    for name in dict.fromkeys(names):
        try:
            opened[name] = SINKS[name](context)
        except ConfigError as error:
            problems += error.problems
    sinks = Sinks(opened)
    if problems:
        sinks.close()
        raise ConfigError(problems)
    return sinks
