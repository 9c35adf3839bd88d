"""Calls of a user's function on all rows at once, where an exception on one row costs that row
only."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import describe_exception
from rmrl.rewards.dropins.verdict import RowError

QUOTED_CHARACTERS = 80
"""Characters of a response that an error quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A user's function, as errors name it."""

    function: Callable[..., Any]
    what: str
    """Name in error texts: "rm_preprocess of reward 'judge'"."""
    file: str
    """The user's file."""
    noun: str = "input"
    """One entry of the list that it returns: "input", "score"."""

    def seen_on(self, response: str | Sequence[str]) -> str:
        """The function's first line and the response it was called with: the end of a sentence on
        its return value."""
        function = inspect.unwrap(self.function)
        code = getattr(function, "__code__", None)
        line = "" if code is None else f":{code.co_firstlineno} in {code.co_name}"
        return f"({self.file}{line}, on {quoted(response)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched:
    """One function and the rows it has to be called with."""

    call: Callable[[Sequence[int]], Any]
    """Call of the function with the rows at some positions, for a list of as many entries."""
    responses: Sequence[str | Sequence[str]]
    """Each row's response, as the policy wrote it. Several where a row compares them."""
    what: str
    """Name in error texts: "rm_preprocess of reward 'judge'"."""
    noun: str
    """One entry of the returned list: "input", "score"."""
    file: str
    """The user's file, so that an error names one of its lines."""
    row: str = "response"
    """Name of a row in error texts: "response", "comparison"."""

    def rows(self) -> list[Any]:
        """The returned entry of each row. A `RowError` where the call raised on that row alone.

        There is one call with all rows. Where it raises, there is one call per row, then one with
        all rows that did not raise: an entry may depend on the other rows. Raises
        RewardFunctionError where the first call returns no list of one entry per row, since the
        entries cannot be assigned to rows.
        """
        everything = range(len(self.responses))
        try:
            returned = self.call(everything)
        except (Exception, SystemExit) as error:
            return self._one_by_one(error)
        return self._checked(returned, len(self.responses))

    def _checked(self, returned: Any, expected: int) -> list[Any]:
        return checked_length(returned, expected, what=self.what, noun=self.noun, row=self.row)

    def _one_by_one(self, whole: BaseException) -> list[Any]:
        count = len(self.responses)
        if count == 1:
            return [self._error(whole, 0)]
        alone: list[Any] = []
        fine: list[int] = []
        for row in range(count):
            try:
                (entry,) = self._checked(self.call([row]), 1)
                fine.append(row)
            except RewardFunctionError as error:
                detail = (
                    f"was called with one {self.row} alone, as it raises on all of them: {error}"
                )
                entry = RowError(self.what, detail)
            except (Exception, SystemExit) as error:
                entry = self._error(error, row)
            alone.append(entry)

        if len(fine) == count:
            detail = (
                f"raised {describe_exception(whole, self.file)} on {count} {self.row}s together,"
                " and on none of them alone"
            )
            return [RowError(self.what, detail)] * count
        if fine:
            # Where the joint call raises or miscounts again, the single entries remain.
            with contextlib.suppress(Exception, SystemExit):
                together = self._checked(self.call(fine), len(fine))
                for i, entry in zip(fine, together, strict=True):
                    alone[i] = entry
        return alone

    def _error(self, error: BaseException, row: int) -> RowError:
        cause = describe_exception(error, self.file)
        return RowError(self.what, f"raised {cause} on {quoted(self.responses[row])}")


def quoted(response: str | Sequence[str]) -> str:
    """The beginning of a response, or of each of several, for the end of a sentence."""
    if isinstance(response, str):
        return f"the response {_beginning(response)!r}"
    return f"the responses {' and '.join(repr(_beginning(each)) for each in response)}"


def _beginning(response: str) -> str:
    return response if len(response) <= QUOTED_CHARACTERS else response[:QUOTED_CHARACTERS] + "..."


def checked_length(
    returned: Any, expected: int, *, what: str, noun: str, row: str = "response"
) -> list[Any]:
    """`returned` as a list of `expected` entries. Never broadcast, never cut."""
    if isinstance(returned, str | bytes | Mapping) or not hasattr(returned, "__len__"):
        raise RewardFunctionError(
            f"{what} returned {type(returned).__name__}; a list with one {noun} per {row} is needed"
        )
    if len(returned) != expected:
        raise RewardFunctionError(
            f"{what} returned {len(returned)} {noun}s for {expected} {row}s; return exactly one"
            f" per {row}, in order"
        )
    return list(returned)
