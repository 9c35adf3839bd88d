"""Several transforms in order, made from what the user typed, with one state for the checkpoint.

typed -> parse_transforms -> entries (plain mappings, kept in the spec) -> chain_of -> Chain (holds
  running statistics)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from rmrl.errors import CheckpointError, ConfigError
from rmrl.rewards.scoring.rows import Rows
from rmrl.rewards.specs.entries import known_entries
from rmrl.rewards.transforms.table import TRANSFORMS


class Transform(Protocol):
    """A dataclass: its fields are the entries a user types besides `kind`; fields without a default
    are required.

    It may state two more facts, as class attributes or properties:
        compares      whose scores decide a result: "group", "batch" (all of the step), "running"
                      (this and earlier steps) or "" (its own alone); not stated: "" where `per_value` and nothing
                      is learnt, else the entry `by`, else unknown
        reads_length  True: results depend on the response's number of tokens
    """

    @property
    def example(self) -> str:
        """What a user may type."""
        ...

    @property
    def per_value(self) -> bool:
        """Whether each result depends on its own score alone, so that it may be applied to the
        steps of a response too."""
        ...

    def problems(self) -> list[str]:
        """What is wrong with the entries, beyond their names and types."""
        ...

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        """float64 [N] -> float64 [N]; the verdicts that exist, never NaN, and their rows."""
        ...


_COMPARISONS = ("group", "batch", "running")


@runtime_checkable
class Stateful(Protocol):
    """A transform that learns from the scores it sees. `apply` reads the state, only `observe`
    changes it."""

    def observe(self, values_N: np.ndarray) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """JSON; empty where it learns nothing."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """Transforms of one component; each sees what the one before it made."""

    kinds: tuple[str, ...] = ()
    transforms: tuple[Transform, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """For people, e.g. ("standardize(group)", "clip")."""
        return tuple(
            _label(kind, transform)
            for kind, transform in zip(self.kinds, self.transforms, strict=True)
        )

    @property
    def per_value(self) -> bool:
        """Whether every transform looks at one score alone."""
        return all(transform.per_value for transform in self.transforms)

    def apply(
        self, values_B: np.ndarray, rows: Rows, present_B: np.ndarray, *, learn: bool = True
    ) -> np.ndarray:
        """Transform the values where `present_B`; all others become NaN. The argument is not
        changed.

        Without `learn` running statistics stay as they are: validation must not move what training
        standardizes by.
        """
        out_B = np.full(len(values_B), np.nan)
        index = np.flatnonzero(present_B)
        values_N, seen = np.asarray(values_B, dtype=np.float64)[index], rows.select(index)
        for transform in self.transforms:
            if learn and isinstance(transform, Stateful):
                transform.observe(values_N)
            values_N = transform.apply(values_N, seen)
        out_B[index] = values_N
        return out_B

    def state_dict(self) -> dict[str, Any]:
        """Running statistics by position and kind, e.g. {"0:standardize": {...}}; JSON; {} where
        nothing is learnt."""
        states = {key: transform.state_dict() for key, transform in self._stateful().items()}
        return {key: state for key, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`. Raises CheckpointError where it belongs to other
        transforms."""
        mine = self.state_dict()
        if set(state) != set(mine):
            raise CheckpointError(
                f"the checkpoint has running statistics of {_listed(state)} but the transforms now"
                f" are {', '.join(self.names) or 'none'}, which keep {_listed(mine)}: use the"
                " transforms it was written with, or start a new run"
            )
        for key, transform in self._stateful().items():
            if key in mine:
                transform.load_state_dict(state[key])

    def _stateful(self) -> dict[str, Stateful]:
        pairs = zip(self.kinds, self.transforms, strict=True)
        return {
            f"{i}:{kind}": transform
            for i, (kind, transform) in enumerate(pairs)
            if isinstance(transform, Stateful)
        }


def compared(entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """What the transforms of checked entries compare a score with: "group", "batch", "running", and
    "unknown" where a transform does not state it."""
    comparisons = {_compares(transform) for transform in chain_of(entries, "").transforms}
    return comparisons - {""}


def _compares(transform: Transform) -> str:
    stated = getattr(transform, "compares", None)
    if stated is not None:
        return str(stated)
    if transform.per_value and not isinstance(transform, Stateful):
        return ""
    by = getattr(transform, "by", "")
    return by if by in _COMPARISONS else "unknown"


def reads_length(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a transform of checked entries reads the response's number of tokens."""
    transforms = chain_of(entries, "").transforms
    return any(getattr(transform, "reads_length", False) for transform in transforms)


def parse_transforms(raw: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    """Entries from {kind: scale, factor: 2}, from a name ("sigmoid"), or from a list of these;
    None: no transforms.

    Raises ConfigError with all problems; `where` is the key that was typed.
    """
    given: list[Any] = [] if raw is None else list(raw) if isinstance(raw, list | tuple) else [raw]
    entries: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for i, each in enumerate(given):
        if isinstance(each, str):
            entries.append({"kind": each})
        elif isinstance(each, Mapping) and isinstance(each.get("kind"), str):
            entries.append({str(key): value for key, value in each.items()})
        else:
            problems.append(
                f"{_place(where, i, len(given))}={each!r}: give a name or entries with a kind, e.g."
                f" {{kind: clip, low: -1, high: 1}}; known kinds: {', '.join(TRANSFORMS)}"
            )
    if problems:
        raise ConfigError(problems)
    chain_of(entries, where)
    return tuple(entries)


def chain_of(entries: Sequence[Mapping[str, Any]], where: str) -> Chain:
    """A chain that has seen nothing yet. Raises ConfigError with the problems of all transforms;
    `where` names the key."""
    made: list[Transform] = []
    problems: list[str] = []
    for i, entry in enumerate(entries):
        try:
            made.append(_transform_of(entry, _place(where, i, len(entries))))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Chain(kinds=tuple(str(entry["kind"]) for entry in entries), transforms=tuple(made))


def _transform_of(entry: Mapping[str, Any], where: str) -> Transform:
    kind = str(entry["kind"])
    try:
        made = TRANSFORMS[kind]
    except ConfigError as error:
        raise ConfigError([f"{where}: {problem}" for problem in error.problems]) from None
    if not (isinstance(made, type) and dataclasses.is_dataclass(made)):
        raise ConfigError(
            f"{where}: '{kind}' is not a transform: give a dataclass with `problems` and `apply`"
        )
    given = known_entries(
        {key: value for key, value in entry.items() if key != "kind"}, made, where
    )
    missing = [f.name for f in dataclasses.fields(made) if _required(f) and f.name not in given]
    if missing:
        raise ConfigError(
            f"{where}: {kind} needs {' and '.join(missing)}, e.g. {cast('Any', made).example}"
        )
    wild = [
        key for key, value in given.items() if isinstance(value, float) and not math.isfinite(value)
    ]
    if wild:
        raise ConfigError([f"{where}.{key}={given[key]}: give a finite number" for key in wild])
    transform = cast("Transform", made(**given))
    problems = transform.problems()
    if problems:
        raise ConfigError([f"{where}.{problem}" for problem in problems])
    return transform


def _required(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _label(kind: str, transform: Transform) -> str:
    """The kind, and what was chosen among its variants."""
    chosen = [
        value
        for f in dataclasses.fields(cast("Any", transform))
        if isinstance(value := getattr(transform, f.name), str)
    ]
    return f"{kind}({', '.join(chosen)})" if chosen else kind


def _place(where: str, i: int, count: int) -> str:
    return where if count == 1 else f"{where}[{i}]"


def _listed(state: Mapping[str, Any]) -> str:
    return ", ".join(sorted(state)) or "nothing"
