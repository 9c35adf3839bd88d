"""What a form of criteria states about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmrl.rewards.kinds.rubric.criteria import Criterion, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form."""

    key: str
    """Field of an object around the list of criteria, such as a whole file. "": a list alone."""
    matches: Callable[[Entry], bool]
    """Whether a list's first entry is of this form. At most one form may match."""
    criterion: Callable[[Entry], Criterion]
    """Raises CriteriaError."""
