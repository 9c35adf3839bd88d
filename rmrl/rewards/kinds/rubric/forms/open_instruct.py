"""open-instruct: `rubrics`: [{"description": text, "weight": number, "title": text}] in the JSON of
the ground truth, beside `query`; also the form of the data sets of "Rubrics as Rewards" (arXiv
2507.17746).

The text may stand in `rubric_item` or `Ingredient` instead, and a weight that is absent is 1
(RubricVerifier in open_instruct/ground_truth_utils.py of allenai/open-instruct at 9bf051e, which
divides by the sum of the absolute weights: `combine: signed_mean`; its judge answers 0, 1 or 2).
"""

from __future__ import annotations

from rmrl.rewards.kinds.rubric.criteria import Criterion, Entry
from rmrl.rewards.kinds.rubric.forms.form import Form

_TEXTS = ("description", "rubric_item", "Ingredient")


def matches(entry: Entry) -> bool:
    """Whether the fields are those of this form."""
    if entry.key not in ("", FORM.key) or entry.fields.get("type") is not None:
        return False
    return any(entry.fields.get(name) is not None for name in _TEXTS)


def criterion(entry: Entry) -> Criterion:
    """The criterion of an entry. Raises CriteriaError."""
    return Criterion(
        text=entry.text(*_TEXTS),
        weight=entry.number("weight", 1.0),
        name=entry.text("title", default=""),
    )


FORM = Form(key="rubrics", matches=matches, criterion=criterion)
