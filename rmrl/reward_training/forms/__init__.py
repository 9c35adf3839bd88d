"""Layouts for rows with labels. To add one: a file with a `Form`, and its line in this table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rmrl.data.column_names import ColumnNames
from rmrl.errors import DataError
from rmrl.registry import Registry
from rmrl.reward_training.forms.form import Form

FORMS: Registry[type[Form]] = Registry(
    "data.form",
    {
        "pairs": "rmrl.reward_training.forms.pairs:Pairs",
        "attributes": "rmrl.reward_training.forms.attributes:Attributes",
        "choice": "rmrl.reward_training.forms.choice:Choice",
        "math_shepherd": "rmrl.reward_training.forms.math_shepherd:MathShepherd",
        "prm800k": "rmrl.reward_training.forms.prm800k:Prm800k",
        "processbench": "rmrl.reward_training.forms.processbench:ProcessBench",
        "steps": "rmrl.reward_training.forms.steps:Steps",
        "two_responses": "rmrl.reward_training.forms.two_responses:TwoResponses",
        "ranked": "rmrl.reward_training.forms.ranked:Ranked",
        "rlhflow": "rmrl.reward_training.forms.rlhflow:RLHFlow",
    },
)


def form_of(
    values: Mapping[str, Any], names: ColumnNames, *, place: str, among: Collection[str]
) -> str:
    """Return the form whose columns a row has. Raises DataError where no form fits, with the
    columns that were seen and those that each form in `among` needs."""
    for name in FORMS:
        for columns in FORMS[name].columns:
            if names.has(values, columns):
                return name
    needs = "; ".join(
        f"{name}: {' or '.join(map(', '.join, FORMS[name].columns))}" for name in among
    )
    saw = ", ".join(map(str, values)) or "(none)"
    raise DataError(
        f"{place}: saw the columns {saw}; need those of one form ({needs}); name yours with"
        " data.columns={prompt: question, chosen: better, rejected: worse}"
    )
