"""Scored rows in memory: the rows with `rmrl.offline.score_columns`' columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmrl.offline.summary import Summary

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, repr=False)
class ScoreTable:
    """Scored rows: one per prompt, in the order in which they were given. In rows that hold several
    responses the added columns are lists as well."""

    columns: Mapping[str, Sequence[Any]]
    """Name -> one value per row: the columns of the rows (None where a row lacks one), then those
    that `rmrl score` adds."""
    summary: Summary
    """Mean, standard deviation and missing verdicts of the reward and of each component."""
    transformed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Component -> its scores after transforms and before weights, one value per row as in
    `columns`; None without a verdict and where a gate is closed."""

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.columns["reward"])

    def __getitem__(self, column: str) -> Sequence[Any]:
        """A column's values, one per row. Raises KeyError with the columns that are there."""
        if column not in self.columns:
            raise KeyError(f"no column '{column}'; there are {', '.join(self.columns)}")
        return self.columns[column]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Row after row, as a dict column -> value."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def __repr__(self) -> str:
        """The scores' means and what is missing."""
        return f"{len(self)} rows with {self.summary.rows} responses\n{self.summary.table()}"

    def to_list(self) -> list[dict[str, Any]]:
        """All rows, each a dict column -> value."""
        return list(self)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with the same columns. Needs the package pandas."""
        import pandas

        return pandas.DataFrame({name: list(values) for name, values in self.columns.items()})
