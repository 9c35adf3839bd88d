"""Several transforms in order, made from the typed entries, with one state for the checkpoint.

typed -> parse_transforms -> entries (plain mappings, kept in the spec) -> chain_of -> Chain (holds
running statistics)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from rmrl.config.plain_checks import field_problems
from rmrl.errors import CheckpointError, ConfigError
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.values import known_entries
from rmrl.rewards.transforms.table import TRANSFORMS


class Transform(Protocol):
    """A dataclass: its fields are the entries a user types besides `kind`; fields without a default
    are required.

    It may state two more facts, as class attributes or properties:
        compares      whose scores decide a result: "group", "batch" (all of the step), "running"
                      (this and earlier steps) or "" (its own alone); not stated: "" where
                      `per_value` and nothing is learnt, else the entry `by`, else unknown
        reads_length  True: results depend on the response's number of tokens
    """

    @property
    def example(self) -> str:
        """An example of the entries a user types."""
        ...

    @property
    def per_value(self) -> bool:
        """True if each result depends on its own score alone, so that it may be applied to the
        steps of a response too."""
        ...

    def problems(self) -> list[str]:
        """Problems of the entries, beyond their names and types."""
        ...

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        """float64 [N] -> float64 [N]; the verdicts that exist, never NaN, and their rows."""
        ...


_COMPARISONS = ("group", "batch", "running")


@runtime_checkable
class Stateful(Protocol):
    """A transform that learns from scores. `apply` reads the state, only `observe` changes it."""

    def observe(self, values_N: np.ndarray, rows: Rows) -> None:
        """Learn from a batch: the verdicts that exist and their rows, as `apply` gets them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """JSON, empty where it learns nothing."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """Transforms of one component, each applied to the result of the one before it."""

    kinds: tuple[str, ...] = ()
    transforms: tuple[Transform, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of the transforms, e.g. ("standardize(group)", "clip")."""
        labels: list[str] = []
        for kind, transform in zip(self.kinds, self.transforms, strict=True):
            entries = dataclasses.asdict(cast("Any", transform)).values()
            variants = [entry for entry in entries if isinstance(entry, str)]
            labels.append(f"{kind}({', '.join(variants)})" if variants else kind)
        return tuple(labels)

    @property
    def per_value(self) -> bool:
        """True if every transform depends on one score alone."""
        return all(transform.per_value for transform in self.transforms)

    def apply(
        self, values_B: np.ndarray, rows: Rows, present_B: np.ndarray, *, learn: bool = True
    ) -> np.ndarray:
        """Transform the values where `present_B`. All others become NaN. The argument is not
        changed.

        Without `learn` running statistics stay as they are: validation must not move the statistics
        of training.
        """
        if not self.transforms:
            return np.where(present_B, values_B, np.nan)
        out_B = np.full(len(values_B), np.nan)
        index = np.flatnonzero(present_B)
        values_N = np.asarray(values_B, dtype=np.float64)[index]
        rows_N = rows.select(index)
        for transform in self.transforms:
            if learn and isinstance(transform, Stateful):
                transform.observe(values_N, rows_N)
            values_N = transform.apply(values_N, rows_N)
        out_B[index] = values_N
        return out_B

    def state_dict(self) -> dict[str, Any]:
        """Return running statistics by position and kind, e.g. {"0:standardize": {...}}, as JSON;
        {} where nothing is learnt."""
        states: dict[str, Any] = {}
        for key, transform in self._stateful().items():
            state = transform.state_dict()
            if state:
                states[key] = state
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`. Raises CheckpointError where it belongs to other
        transforms."""
        current = self.state_dict()
        if set(state) != set(current):
            raise CheckpointError(
                f"the checkpoint has running statistics of {_listed(state)} but the transforms now"
                f" are {', '.join(self.names) or 'none'}, which keep {_listed(current)}: use the"
                " transforms it was written with, or start a new run"
            )
        for key, transform in self._stateful().items():
            if key in current:
                transform.load_state_dict(state[key])

    def _stateful(self) -> dict[str, Stateful]:
        stateful: dict[str, Stateful] = {
            f"{i}:{self.kinds[i]}": transform
            for i, transform in enumerate(self.transforms)
            if isinstance(transform, Stateful)
        }
        return stateful


def compared(entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the rows that the transforms of checked entries compare a score with: "group",
    "batch", "running", and "unknown" where a transform does not state it."""
    comparisons: set[str] = set()
    for transform in chain_of(entries, "").transforms:
        stated = getattr(transform, "compares", None)
        by = getattr(transform, "by", "")
        if stated is not None:
            comparisons.add(str(stated))
        elif isinstance(transform, Stateful) or not transform.per_value:
            comparisons.add(by if by in _COMPARISONS else "unknown")
    return comparisons - {""}


def reads_length(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a transform of checked entries reads the response's number of tokens."""
    transforms = chain_of(entries, "").transforms
    return any(getattr(transform, "reads_length", False) for transform in transforms)


def parse_transforms(raw: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    """Read entries from {kind: scale, factor: 2}, from a name ("sigmoid"), or from a list of these.
    None: no transforms.

    Raises ConfigError with all problems; `where` is the key that was typed.
    """
    typed: list[Any] = [raw]
    if raw is None:
        typed = []
    elif isinstance(raw, list | tuple):
        typed = list(raw)
    entries: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for i, each in enumerate(typed):
        if isinstance(each, str):
            entries.append({"kind": each})
        elif isinstance(each, Mapping) and isinstance(each.get("kind"), str):
            entries.append({str(key): value for key, value in each.items()})
        else:
            problems.append(
                f"{_place(where, i, len(typed))}={each!r}: give a name or entries with a kind, e.g."
                f" {{kind: clip, low: -1, high: 1}}; known kinds: {', '.join(TRANSFORMS)}"
            )
    if problems:
        raise ConfigError(problems)
    chain_of(entries, where)
    return tuple(entries)


def chain_of(entries: Sequence[Mapping[str, Any]], where: str) -> Chain:
    """Build a chain with empty statistics. Raises ConfigError with the problems of all transforms;
    `where` names the key."""
    transforms: list[Transform] = []
    problems: list[str] = []
    for i, entry in enumerate(entries):
        try:
            transforms.append(_transform_of(entry, _place(where, i, len(entries))))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    kinds = tuple(str(entry["kind"]) for entry in entries)
    return Chain(kinds=kinds, transforms=tuple(transforms))


def _transform_of(entry: Mapping[str, Any], where: str) -> Transform:
    kind = str(entry["kind"])
    try:
        cls = TRANSFORMS[kind]
    except ConfigError as error:
        raise ConfigError([f"{where}: {problem}" for problem in error.problems]) from None
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ConfigError(
            f"{where}: '{kind}' is not a transform: give a dataclass with `problems` and `apply`"
        )
    typed = {key: value for key, value in entry.items() if key != "kind"}
    values = known_entries(typed, cls, where, example=cast("Any", cls).example)
    transform = cast("Transform", cls(**values))
    problems = list(field_problems(transform, f"{where}."))
    problems += [f"{where}.{problem}" for problem in transform.problems()]
    if problems:
        raise ConfigError(problems)
    return transform


def _place(where: str, i: int, count: int) -> str:
    return where if count == 1 else f"{where}[{i}]"


def _listed(state: Mapping[str, Any]) -> str:
    return ", ".join(sorted(state)) or "nothing"
