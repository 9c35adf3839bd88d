"""Scored rows as wires read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmrl.api import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """One row of a request, scored."""

    index: int
    """Position in the request."""
    several: bool
    """Whether the row holds a list of responses. Each column is then a list too."""
    columns: Mapping[str, Any]
    """The columns that `rmrl score` adds: reward, score_<name>, status_<name>, detail_<name>,
    extra_<name>, and the further `columns`."""

    def values(self, column: str) -> list[Any]:
        """Return the column with one value per response."""
        value = self.columns[column]
        return list(value) if self.several else [value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """All rows in a request, or a part of them, in the request's order."""

    names: Sequence[str]
    """The components, in reward.models' order."""
    rows: Sequence[ScoredRow]
    summary: Summary = field(default_factory=Summary)


def in_numbers(summary: Summary) -> dict[str, Any]:
    """Return a summary for a client: counts, means, and missing verdicts by reward and status."""
    missing: dict[str, dict[str, int]] = {}
    means: dict[str, float | None] = {}
    for name, counts in summary.verdicts.items():
        missing[name] = dict(counts.without_number())
        moments = summary.components[name]
        means[name] = moments.mean if moments.count else None
    return {
        "responses": summary.rows,
        "with_reward": summary.kept,
        "mean_reward": summary.reward.mean if summary.reward.count else None,
        "mean_scores": means,
        "missing": missing,
    }
