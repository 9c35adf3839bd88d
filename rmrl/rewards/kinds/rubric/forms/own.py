"""rmrl's own form: [{text, weight, choices, name, tags, must_have}]. All but `text` may be left
out."""

from __future__ import annotations

from rmrl.registry import did_you_mean
from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion, Entry
from rmrl.rewards.kinds.rubric.forms.form import Form

_FIELDS = ("text", "weight", "choices", "name", "tags", "must_have", "optional")


def matches(entry: Entry) -> bool:
    """Whether the fields are those of this form."""
    # With a name, an object's `criteria` are those of verifiers, whose answers differ.
    return entry.fields.get("text") is not None and (
        not entry.key or entry.fields.get("name") is None
    )


def criterion(entry: Entry) -> Criterion:
    """The criterion of an entry. Raises CriteriaError."""
    for name, value in entry.fields.items():
        if name not in _FIELDS and value is not None:
            hint = did_you_mean(str(name), list(_FIELDS))
            raise CriteriaError(f"{entry.where}.{name}: no such field{hint}")
    return Criterion(
        text=entry.text("text"),
        weight=entry.number("weight", 1.0),
        choices=entry.choices("choices"),
        name=entry.text("name", default=""),
        tags=entry.texts("tags"),
        must_have=entry.flag("must_have"),
        optional=entry.flag("optional"),
    )


FORM = Form(key="", matches=matches, criterion=criterion)
