"""Calls of a drop-in's functions with the columns of all rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeVar

from rmrl.rewards.dropins.dropin import DropIn, call_with_known_arguments
from rmrl.rewards.kinds.shared.row_errors import Batched, Origin
from rmrl.types import ScoreItem

Entry = TypeVar("Entry")

_COLUMNS: Mapping[str, str] = {
    "ground_truths": "ground_truth",
    "extra_infos": "extra_info",
    "data_sources": "data_source",
    "prompts": "messages",
    "responses": "response",
}
"""Keyword argument of a drop-in's function -> attribute of `ScoreItem`."""


def take(values: Sequence[Entry], positions: Iterable[int]) -> list[Entry]:
    """The entries of `values` at `positions`."""
    return [values[i] for i in positions]


def named_columns(items: Sequence[ScoreItem]) -> dict[str, list[Any]]:
    """Further keyword arguments that a drop-in may name in its signature.

    `responses` are as the policy wrote them, for use outside prompts.
    """
    columns: dict[str, list[Any]] = {
        name: list(map(attrgetter(attribute), items)) for name, attribute in _COLUMNS.items()
    }
    return columns


def origin_of(
    dropin: DropIn, name: Literal["rm_preprocess", "rm_postprocess", "rm_critique"]
) -> Origin:
    """The function `name` of a drop-in that has it, with its names in error texts."""
    function = getattr(dropin, name.removeprefix("rm_"))
    assert function is not None
    return Origin(
        function=function,
        what=f"{name} of reward '{dropin.name}'",
        file=str(dropin.path),
        noun="score" if name == "rm_postprocess" else "input",
    )


def call_dropin(
    origin: Origin,
    columns: Sequence[Sequence[Any]],
    named: Mapping[str, Sequence[Any] | None],
    *,
    responses: Sequence[str | Sequence[str]],
    rest: tuple[Any, ...] = (),
    row: str = "response",
) -> list[Any]:
    """The entry that the function returns for each row. A `RowError` where it raises on that row.

    `columns`: arguments by position, each with one entry per row; `rest`: those that follow them,
    the same for all rows. `named`: keyword arguments, passed where the signature names them. A
    column that is None is passed as None. `responses`, `row`: see `Batched`. Raises
    RewardFunctionError where another number of entries is returned.
    """

    def call(rows: Sequence[int]) -> Any:
        arguments = [take(column, rows) for column in columns]
        optional: dict[str, Any] = {
            name: None if column is None else take(column, rows) for name, column in named.items()
        }
        return call_with_known_arguments(origin.function, (*arguments, *rest), optional)

    return Batched(
        call=call,
        responses=responses,
        what=origin.what,
        noun=origin.noun,
        file=origin.file,
        row=row,
    ).rows()
