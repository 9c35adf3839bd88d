"""HealthBench: `rubrics`: [{"criterion": text, "points": number, "tags": [text, ...]}].

Points below 0 are for faults. The judge is asked whether the criterion is met, not whether that is
good (healthbench_eval.py of openai/simple-evals at 9e2fafd; arXiv 2505.08775).
"""

from __future__ import annotations

from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion, Entry
from rmrl.rewards.kinds.rubric.forms.form import Form


def matches(entry: Entry) -> bool:
    """Whether the fields are those of this form."""
    return entry.fields.get("criterion") is not None


def criterion(entry: Entry) -> Criterion:
    """The criterion of an entry. Raises CriteriaError."""
    if entry.fields.get("points") is None:
        raise CriteriaError(f"{entry.where} has no points: give a number")
    return Criterion(
        text=entry.text("criterion"),
        weight=entry.number("points", 1.0),
        tags=entry.texts("tags"),
    )


FORM = Form(key="rubrics", matches=matches, criterion=criterion)
