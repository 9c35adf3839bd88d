"""Name tables: name -> "module:attribute", imported on first use."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from rmrl.errors import ConfigError

T = TypeVar("T")

_LISTED = 40
"""Largest number of names in a hint."""


def did_you_mean(name: str, choices: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    """Return a hint such as "; did you mean 'helpful'? known: format, helpful" (never empty)."""
    names = sorted(choices)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    more = f", ... ({len(names)} names)" if len(names) > _LISTED else ""
    return f"{hint} known: {', '.join(names[:_LISTED]) or '(none)'}{more}"


def load_attribute(path: str) -> object:
    """Import "package.module:attribute". Raises AttributeError as Python does, and ImportError for
    whatever the module raises, a syntax error included."""
    module, _, attribute = path.partition(":")
    try:
        imported = importlib.import_module(module)
    except ImportError:
        raise
    except Exception as error:  # the module is a user's own: it may raise anything
        raise ImportError(
            f"importing {module} failed with {type(error).__name__}: {error}"
        ) from error
    return getattr(imported, attribute)


def missing_package(part: object) -> str:
    """Return the package that `part.package` names if it is not installed, else "".

    The package is looked up, not imported: engines take seconds to import.
    """
    package = getattr(part, "package", "")
    return package if package and importlib.util.find_spec(package) is None else ""


def version_problem(part: object) -> str:
    """Return `part.version_problem()`'s sentence, which refuses an installed version of its
    package, else ""."""
    problem: Callable[[], str] | None = getattr(part, "version_problem", None)
    return problem() if problem is not None else ""


class Registry(Generic[T]):
    """Names for one part kind. `registry[name]` imports and returns the part."""

    def __init__(self, what: str, table: Mapping[str, str]) -> None:
        self.what = what
        self._table = dict(table)

    def __getitem__(self, name: str) -> T:
        if ":" in name and name not in self._table:
            return load_attribute(name)  # type: ignore[return-value]
        if name not in self._table:
            raise ConfigError(self.unknown(name, self.what))
        return load_attribute(self._table[name])  # type: ignore[return-value]

    def unknown(self, name: str, key: str) -> list[str]:
        """Return a sentence for the key that a name stands at where nothing has it, else [].
        Imports nothing."""
        if name in self:
            return []
        return [f"{key}: nothing named '{name}'{did_you_mean(name, self._table)}"]

    def problems(self, name: str, key: str) -> list[str]:
        """Return why a name cannot be looked up, as a sentence for the key that it stands at; []
        where it can."""
        unknown = self.unknown(name, key)
        if not unknown:
            try:
                self[name]
            except (ImportError, AttributeError) as error:
                advice = "give package.module:name of something that can be imported"
                return [f"{key}: {error}; {advice}"]
        return unknown

    def __contains__(self, name: object) -> bool:
        return name in self._table or (isinstance(name, str) and ":" in name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._table))

    def __len__(self) -> int:
        return len(self._table)
