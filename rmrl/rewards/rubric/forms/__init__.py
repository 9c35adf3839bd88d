"""Forms of criteria. To add one: a file with a `Form`, and one line here."""

from __future__ import annotations

from rmrl.registry import Registry
from rmrl.rewards.rubric.forms.form import Form

FORMS: Registry[Form] = Registry(
    "form of criteria",
    {
        "own": "rmrl.rewards.rubric.forms.own:FORM",
        "texts": "rmrl.rewards.rubric.forms.texts:FORM",
        "healthbench": "rmrl.rewards.rubric.forms.healthbench:FORM",
        "open_instruct": "rmrl.rewards.rubric.forms.open_instruct:FORM",
        "verifiers": "rmrl.rewards.rubric.forms.verifiers:FORM",
        "harbor": "rmrl.rewards.rubric.forms.harbor:FORM",
    },
)
