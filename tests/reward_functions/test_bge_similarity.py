"""The similarity of VeRL-with-RMs: its server's curve, and 0.7 * similarity + 0.3."""

from __future__ import annotations

import json

import pytest

from rmrl.config.load import shipped
from rmrl.rewards.dropins.dropin import load_module

FILE = load_module(shipped("reward_functions") / "bge_similarity.py")


def reply(text: str) -> str:
    return json.dumps({"Response": text, "ResponseSolution": "x"}, ensure_ascii=False)


@pytest.mark.parametrize(
    ("cosine", "curve"),
    [
        (-1.0, 0.1),
        (0.65, 0.1),
        (0.85, 1.0),
        (1.0, 1.0),
        (0.75, 0.1 + 1.69811 * (10 ** (-0.6) - 0.1)),
        (0.7, 0.199321),
    ],
)
def test_the_curve_of_the_server(cosine: float, curve: float):
    # 0.7: 10000 ** -0.2 = 0.158489, 0.1 + 1.69811 * 0.058489 = 0.199321;
    assert FILE.curve(cosine) == pytest.approx(curve, abs=1e-5)


def test_the_texts_compared_are_the_responses_inside_the_json():
    pairs = FILE.rm_preprocess(
        ["p"] * 3, [reply("one"), "no json", "plain"], None, [reply("two"), reply("two"), "truth"]
    )
    assert pairs == [("one", "two"), ("no json", "two"), ("plain", "truth")]


def test_a_reply_that_is_no_json_scores_0_and_others_at_least_a_third():
    scores = FILE.rm_postprocess(
        [1.0, 0.0, 1.0], [reply("one"), reply("one"), "no json"], [reply("two")] * 3
    )
    assert scores == pytest.approx([1.0, 0.7 * 0.1 + 0.3, 0.0])
