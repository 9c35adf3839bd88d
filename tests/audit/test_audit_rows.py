from __future__ import annotations

import pytest

from rmrl.audit.audit_rows import Row
from rmrl.data.json_text import StructuredReference
from rmrl.types import Prompt


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("so 3\n#### 4", "4"),
        ("4", "4"),
        (None, ""),
        (StructuredReference({"target": ["Paris", "Lutèce"]}), "Paris"),
        (StructuredReference([]), ""),
    ],
)
def test_the_answer_that_a_golden_response_states(reference: str | None, answer: str):
    prompt = Prompt(id="a:0", messages=(), token_ids=(), ground_truth=reference)
    assert Row(prompt=prompt, responses=(), labels=()).answer == answer
