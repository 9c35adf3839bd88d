"""Which texts of courier-support replies are compared, and the curve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds.shared.rendering import preprocess
from rmrl.types import ScoreItem

SIMILARITY = load_dropin(
    Path(__file__).parents[2] / "reward_functions" / "rider_similarity.py", "rider_similarity"
)
REFERENCE = json.dumps({"Response": "参考", "ResponseSolution": "无"}, ensure_ascii=False)


@pytest.mark.parametrize(
    ("response", "truth", "compared"),
    [
        ('{"Response": "您好"}', REFERENCE, ("您好", "参考")),
        ('```json\n{"Response": "您好"}\n```', REFERENCE, ("您好", "参考")),
        ("您好", "参考", ("您好", "参考")),
        ('{"Response": ""}', REFERENCE, ('{"Response": ""}', "参考")),
        ('{"Response": 1}', REFERENCE, ('{"Response": 1}', "参考")),
        ("}{", REFERENCE, ("}{", "参考")),
        ('{"Response": "您好"}', None, "您好"),
    ],
)
def test_the_texts(response: str, truth: str | None, compared: object):
    item = ScoreItem(
        prompt_id="a:0", messages=[], response=response, rm_prompt="", ground_truth=truth
    )
    assert preprocess(SIMILARITY, [item], None) == [compared]


def test_the_curve():
    assert SIMILARITY.postprocess is not None
    # Half way between 0.65 and 0.85 the exponential is at 0.1 * 10 ** 0.5.
    assert SIMILARITY.postprocess([-1.0, 0.65, 0.75, 0.85, 1.0]) == pytest.approx(
        [0.1, 0.1, 0.1 * 10**0.5, 1.0, 1.0]
    )
