"""Rewards that a process shares: one scorer per configuration, whichever adapter and callable reads
its scores. Engines are loaded once, and put away after each batch."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.api import Rewards, RewardSpec, ScoreTable, to_tokens
from rmrl.config.yaml_file import Configuration as Config
from rmrl.config.yaml_file import content_of
from rmrl.errors import ConfigError

Row = Mapping[str, Any]
"""A row as in a file of `rmrl score`, with one response."""

_SHARED: dict[tuple[int, str], SharedRewards] = {}
_BY_PATH: dict[tuple[int, str], SharedRewards] = {}
_LOCK = threading.Lock()


class SharedRewards:
    """One configuration's rewards, for callers on any thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises ConfigError with all that is wrong in the configuration, and for rewards that no
        other trainer takes: scores for a response's parts (`to_tokens`)."""
        self.rewards = Rewards(config, in_training=True)
        self._budget_is_typed = "over_budget" in config
        to_parts = [spec.name for spec in self.components if to_tokens(spec)]
        if to_parts:
            raise ConfigError(
                f"{', '.join(to_parts)}: scores go to parts of a response (to_tokens, per: {{turn:"
                " each}}), and reward functions of other trainers return one number per response;"
                " leave the entry out"
            )
        self._lock = threading.Lock()
        self._digest = b""
        self._readers: set[str] = set()
        self._table: ScoreTable | None = None
        self._closed = False

    @property
    def components(self) -> tuple[RewardSpec, ...]:
        """The entries in `reward.models`, in order."""
        return tuple(spec for spec in self.rewards.checked.specs if not spec.part_of)

    @property
    def reads_prompts(self) -> bool:
        """Whether some reward cannot do without the prompt."""
        checked = self.rewards.checked
        return checked.whole_groups or any(spec.needs_model for spec in checked.specs)

    def score(self, rows: Sequence[Row], *, within_budget: bool = True) -> ScoreTable:
        """Score a batch, and leave the engines awake. Errors as in `Rewards.score_rows`. Without
        `within_budget` more missing verdicts than allowed are a warning, unless `over_budget` is in
        the configuration."""
        over_budget = None if within_budget or self._budget_is_typed else "warn"
        with self._lock:
            return self.rewards.score_rows(rows, over_budget=over_budget)

    def rest(self) -> None:
        """Put the engines away until the next batch; nothing after `close`."""
        with self._lock:
            if not self._closed:
                self.rewards.rest()

    def read(self, rows: Sequence[Row], *, reader: str) -> ScoreTable:
        """Return a batch's scores, and put the engines away.

        Readers with different names share one scoring if rows are equal. A reader that comes again
        has a new step, which is scored anew. Errors as in `Rewards.score_rows`.
        """
        digest = _digest(rows)
        with self._lock:
            known = digest == self._digest and reader not in self._readers
            if self._table is not None and known:
                self._readers.add(reader)
                return self._table
            self._table = None
            self._table = self.rewards.score_rows(rows)
            self.rewards.rest()
            self._digest = digest
            self._readers = {reader}
            return self._table

    def close(self) -> None:
        """End engines, workers and connections."""
        self._closed = True
        self.rewards.close()


def shared_rewards(config: Config) -> SharedRewards:
    """Return a configuration's rewards, the same object for equal configurations in a process.

    A file is read once, so that editing it during a run changes no reward. Engines and workers end
    with this process, or with `close_all`. Raises ConfigError where the configuration cannot be
    read or has problems.
    """
    name = str(Path(config).expanduser().resolve()) if isinstance(config, str | Path) else ""
    with _LOCK:
        path = os.getpid(), name
        if name and path in _BY_PATH:
            return _BY_PATH[path]
        settings = settings_of(config)
        key = os.getpid(), json.dumps(settings, sort_keys=True, default=_as_text)
        if key not in _SHARED:
            _SHARED[key] = SharedRewards(settings)
        if name:
            _BY_PATH[path] = _SHARED[key]
        return _SHARED[key]


def settings_of(config: Config) -> dict[str, Any]:
    """Return the configuration as plain dicts and lists. A file is read. Raises ConfigError."""
    return dict(_plain(content_of(config)))


def _as_text(value: Any) -> str:
    # Objects with equal texts may score differently, and shared rewards keep theirs alive.
    return f"{value} {id(value)}" if callable(value) else str(value)


def _plain(value: Any) -> Any:
    """Convert other mappings and sequences, such as OmegaConf's."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(map(_plain, value))
    return value


def close_all() -> None:
    """End the engines and workers behind this process's shared rewards."""
    with _LOCK:
        _BY_PATH.clear()
        for pid, text in list(_SHARED):
            rewards = _SHARED.pop((pid, text))
            if pid == os.getpid():
                rewards.close()


def config_from_environment(variable: str, instead: str) -> str:
    """Return the configuration path that an environment variable holds. Raises ConfigError, with
    `instead` as the other way to give it, where it is not set."""
    path = os.environ.get(variable, "")
    if not path:
        raise ConfigError(
            f"no reward configuration: {variable} is not set; type"
            f" export {variable}=reward.yaml before the trainer starts, or {instead}"
        )
    return path


def _digest(rows: Sequence[Row]) -> bytes:
    try:
        text = json.dumps(list(rows), sort_keys=True, default=repr)
    except (TypeError, ValueError):
        # A column that no reward reads may hold mappings with keys of any sort, or itself.
        text = repr(list(rows))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
