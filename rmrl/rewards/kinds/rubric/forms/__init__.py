"""Forms of criteria. To add one: a file with a `Form`, and one line here."""

from __future__ import annotations

from rmrl.registry import Registry
from rmrl.rewards.kinds.rubric.forms.form import Form

FORMS: Registry[Form] = Registry(
    "form of criteria",
    {
        "own": "rmrl.rewards.kinds.rubric.forms.own:FORM",
        "texts": "rmrl.rewards.kinds.rubric.forms.texts:FORM",
        "healthbench": "rmrl.rewards.kinds.rubric.forms.healthbench:FORM",
        "open_instruct": "rmrl.rewards.kinds.rubric.forms.open_instruct:FORM",
        "verifiers": "rmrl.rewards.kinds.rubric.forms.verifiers:FORM",
        "harbor": "rmrl.rewards.kinds.rubric.forms.harbor:FORM",
    },
)
