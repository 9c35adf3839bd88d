"""A list of texts, each a criterion of weight 1 with the answers No and Yes."""

from __future__ import annotations

from rmrl.rewards.kinds.rubric.criteria import Criterion, Entry
from rmrl.rewards.kinds.rubric.forms.form import Form

TEXT = "the text"
"""Field under which a bare text is handed to a form."""


def matches(entry: Entry) -> bool:
    """Whether the fields are those of this form."""
    return TEXT in entry.fields


def criterion(entry: Entry) -> Criterion:
    """The criterion of an entry. Raises CriteriaError."""
    return Criterion(text=entry.text(TEXT))


FORM = Form(key="criteria", matches=matches, criterion=criterion)
