"""verifiers: a file with `criteria`: [{"name": text, "text": text, "weight": number, "choices":
[worst, ..., best]}].

Without `choices` the answers are no and yes. A weight below 0 is refused there, and so here
(RubricJudge in verifiers/v1/judges/rubric.py of PrimeIntellect-ai/verifiers at 02e49f1). The older
JudgeRubric and RubricGroup hold functions instead of criteria: `kind: rule`.
"""

from __future__ import annotations

from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion, Entry
from rmrl.rewards.kinds.rubric.forms.form import Form

_CHOICES = (("no", 0.0), ("yes", 1.0))


def matches(entry: Entry) -> bool:
    """Whether the fields are those of this form."""
    return entry.key == FORM.key and None not in (
        entry.fields.get("text"),
        entry.fields.get("name"),
    )


def criterion(entry: Entry) -> Criterion:
    """The criterion of an entry. Raises CriteriaError."""
    weight = entry.number("weight", 1.0)
    if weight < 0:
        raise CriteriaError(
            f"{entry.where}.weight={weight:g}: verifiers has no weights below 0; state the good"
            " behaviour, or name the form with form=own"
        )
    return Criterion(
        text=entry.text("text"),
        weight=weight,
        choices=entry.choices("choices", _CHOICES),
        name=entry.text("name"),
    )


FORM = Form(key="criteria", matches=matches, criterion=criterion)
