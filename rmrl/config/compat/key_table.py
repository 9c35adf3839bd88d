"""The table for the older section `reward_model`, read from keys_of_reward_model.yaml: each entry
is translated, without effect here, or refused with what to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmrl.config.compat.yaml_tables import read_rows
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

_ROWS = read_rows("keys_of_reward_model")


def _keys(fate: str) -> tuple[str, ...]:
    return tuple(head + name for head, names in _ROWS[fate].items() for name in names)


FORK_KEYS: tuple[str, ...] = tuple(_ROWS["of the fork"])
SAMPLING: tuple[str, ...] = tuple(_ROWS["sampling"])
ENGINE: Mapping[str, str] = _ROWS["engine"]
IDLE = _keys("no effect")
ONLY: Mapping[str, tuple[list[Any], str]] = {
    key: (row["accepts"], row["use"]) for row in _ROWS["refused"] for key in row["keys"]
}
"""Entry (or a section of entries) -> the values that match the only behaviour there is, and the
advice for any other value."""
_ALL = (*_keys("translated"), *IDLE, *ONLY)


def leaves(section: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key and value for every entry that is set, e.g. ("model.path", value), in order. A list
    or a table is one entry."""
    for name, value in section.items():
        key = f"{where}{name}"
        if isinstance(value, Mapping) and not _entry_of(key, _ALL):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def problems(section: Mapping[str, Any]) -> list[str]:
    """Return one sentence per entry that is unknown, not a section, or not supported."""
    sentences: list[str] = []
    for key, value in leaves(section):
        entry = _entry_of(key, tuple(ONLY))
        head = f"{key}."
        below = [each.removeprefix(head) for each in _ALL if each.startswith(head)]
        if entry and value not in ONLY[entry][0]:
            sentences.append(f"reward_model.{key}={value}: {ONLY[entry][1]}")
        elif _entry_of(key, _ALL):
            continue
        elif not below:
            parent, _, name = key.rpartition(".")
            siblings = [
                each.rpartition(".")[2] for each in _ALL if each.rpartition(".")[0] == parent
            ]
            suggestion = did_you_mean(name, siblings or list(_ALL))
            sentences.append(f"reward_model.{key}: no such key{suggestion}")
        elif value is not None:
            names = ", ".join(dict.fromkeys(each.partition(".")[0] for each in below))
            sentences.append(
                f"reward_model.{key}={value!r}: give entries, e.g."
                f" reward_model.{key}.{below[0]}=...; known: {names}"
            )
    return sentences


def idle(section: Mapping[str, Any]) -> list[str]:
    """Return the entries that are set and have no effect here, in IDLE's order."""
    entries = {_entry_of(key, IDLE) for key, _ in leaves(section)}
    return [entry for entry in IDLE if entry in entries]


def is_of_the_fork(section: Mapping[str, Any]) -> bool:
    """Return whether the section has an entry that only VeRL-with-RMs has."""
    model = section.get("model")
    if isinstance(model, Mapping) and "tensor_model_parallel_size" in model:
        return True
    return not section.keys().isdisjoint(FORK_KEYS)


def subsection(section: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a subsection's entries, {} where it is not set. Raises ConfigError for another
    value."""
    value = section.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(problems({key: value}))
    return value


def _entry_of(key: str, entries: tuple[str, ...]) -> str:
    """Return the entry that is `key` or a section around it, "" where there is none."""
    return next((entry for entry in entries if key == entry or key.startswith(f"{entry}.")), "")
