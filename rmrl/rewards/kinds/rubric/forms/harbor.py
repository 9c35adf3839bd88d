"""Harbor's Reward Kit: a TOML file with [[criterion]] tables of `description`, `type` (binary,
likert with `points`, numeric with `min` and `max`), `weight`, `name`, `negate`, `optional`.

binary is no or yes; likert 1 .. points is worth (raw - 1) / (points - 1), numeric (raw - min) /
(max - min); `negate` turns a value v into 1 - v, `optional` criteria may fail
(packages/rewardkit/src/rewardkit/models.py at 05b6a61, and
https://www.harborframework.com/docs/rewardkit/judge-criteria). Answers are one token each here, so
a numeric criterion needs whole numbers, at most ten of them. Of the other tables [judge] and
[scoring], which name its judge and its aggregation, nothing is read.
"""

from __future__ import annotations

from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion, Entry
from rmrl.rewards.kinds.rubric.forms.form import Form

_POINTS = 5
_ANSWERS = 10


def matches(entry: Entry) -> bool:
    """Whether the fields are those of this form."""
    if entry.fields.get("description") is None:
        return False
    return entry.key == FORM.key or entry.fields.get("type") is not None


def _choices(entry: Entry) -> tuple[tuple[str, float], ...]:
    """The answers of the entry's type, before `negate`."""
    kind = entry.text("type", default="binary")
    if kind == "binary":
        return (("no", 0.0), ("yes", 1.0))
    if kind == "likert":
        low = 1.0
        high = entry.number("points", _POINTS)
    elif kind == "numeric":
        low = entry.number("min", 0.0)
        high = entry.number("max", 1.0)
    else:
        raise CriteriaError(
            f"{entry.where}.type={kind!r}: not a type; known: binary, likert, numeric"
        )
    if low % 1 or high % 1 or not 1 <= high - low < _ANSWERS:
        raise CriteriaError(
            f"{entry.where}: {kind} from {low:g} to {high:g} cannot be judged by the probability of"
            f" one token; give whole numbers, at most {_ANSWERS} of them (type likert with points)"
        )
    answers: list[tuple[str, float]] = [
        (str(number), (number - low) / (high - low)) for number in range(int(low), int(high) + 1)
    ]
    return tuple(answers)


def criterion(entry: Entry) -> Criterion:
    """The criterion of an entry. Raises CriteriaError."""
    choices = _choices(entry)
    if entry.flag("negate"):
        choices = tuple((text, 1.0 - value) for text, value in choices)
    return Criterion(
        text=entry.text("description"),
        weight=entry.number("weight", 1.0),
        choices=choices,
        name=entry.text("name", default=""),
        optional=entry.flag("optional"),
    )


FORM = Form(key="criterion", matches=matches, criterion=criterion)
