"""The rule on the form of a courier-support reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmrl.rewards.dropins.dropin import load_dropin

FILE = Path(__file__).parents[2] / "reward_functions" / "rider_format.py"
RULE = load_dropin(FILE, "rider_format").compute_score
ROW = {"rules": 3, "knowledge": 2, "solutions": ["延长时限", "无"]}
REPLY = {
    "Response": "您好，已为您延长配送时限。",  # noqa: RUF001
    "ResponseSolution": "延长时限",
    "DialogueAgreeSolution": "同意",
    "RelevantConstraintRuleNumber": [3, 1],
    "RelevantKnowledgeNumber": [],
}


def judged(text: str, extra_info: Any = ROW) -> dict[str, Any]:
    assert RULE is not None
    return RULE(data_source="rider", solution_str=text, ground_truth=None, extra_info=extra_info)


def written(**changed: Any) -> str:
    return json.dumps({**REPLY, **changed}, ensure_ascii=False)


@pytest.mark.parametrize(
    "text",
    [
        written(),
        f"\n {json.dumps(REPLY, indent=2)}\n",  # escapes and white space are JSON's own affair
        f"```json\n{written()}\n```",
        f"```\n{written()}\n```\n",
        written(Response="```json\n{}\n```"),
        written(Response="\ud800"),
    ],
)
def test_right_forms(text: str):
    assert judged(text) == {"score": 1.0, "problem": ""}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON"),
        ("您好", "no JSON"),
        (f"好的：{written()}", "no JSON"),  # noqa: RUF001
        (f"{written()} 谢谢", "no JSON"),
        (f"好的\n```json\n{written()}\n```", "no JSON"),
        (f"```json\n{written()}\n```\n```json\n{written()}\n```", "no JSON"),
        (written()[:-1], "no JSON"),
        (written().replace('"', "'"), "no JSON"),
        (written()[:-1] + ",}", "no JSON"),
        (written()[:-1] + ', "Response": "b"}', "the key 'Response' occurs twice"),
        (written(RelevantKnowledgeNumber=[float("nan")]), "NaN is no JSON number"),
        ("[" * 100_000, "no JSON"),
        (f'{{"Response": {"9" * 5000}}}', "no JSON"),
        ("[]", "a JSON list instead of an object"),
        ("null", "a JSON NoneType instead of an object"),
        (
            json.dumps({k: v for k, v in REPLY.items() if k != "Response"}),
            "missing: Response; that do not belong: none",
        ),
        (written(Score=10), "missing: none; that do not belong: Score"),
        (written(Response=" "), 'Response is " " instead of a text'),
        (written(Response=None), "Response is null instead of a text"),
        (
            written(ResponseSolution="赔钱"),
            'ResponseSolution is "赔钱" instead of one of 延长时限, 无',
        ),
        (written(ResponseSolution=["无"]), 'ResponseSolution is ["无"] instead of a text'),
        (
            written(DialogueAgreeSolution="yes"),
            'DialogueAgreeSolution is "yes" instead of one of 同意, 不同意, 未表态',
        ),
        (
            written(RelevantConstraintRuleNumber="3"),
            'RelevantConstraintRuleNumber is "3" instead of a list of whole numbers',
        ),
        (written(RelevantConstraintRuleNumber=[True]), "[true] instead of a list of whole numbers"),
        (written(RelevantConstraintRuleNumber=[1.0]), "[1.0] instead of a list of whole numbers"),
        (written(RelevantConstraintRuleNumber=[4]), "there are numbers from 1 to 3 only"),
        (written(RelevantConstraintRuleNumber=[0]), "there are numbers from 1 to 3 only"),
        (written(RelevantKnowledgeNumber=[3]), "there are numbers from 1 to 2 only"),
        (written(RelevantKnowledgeNumber=[2, 2]), "names a number twice"),
    ],
)
def test_wrong_forms_are_told(text: str, problem: str):
    verdict = judged(text)
    assert verdict["score"] == 0.0
    assert problem in verdict["problem"]


@pytest.mark.parametrize(
    "extra_info", [None, {}, {"rules": None, "knowledge": None, "solutions": None}]
)
def test_what_the_row_does_not_count_is_not_checked(extra_info: Any):
    free = written(RelevantConstraintRuleNumber=[99], ResponseSolution="赔钱")
    assert judged(free, extra_info)["score"] == 1.0
    assert judged(written(RelevantConstraintRuleNumber=[0]), extra_info)["problem"].endswith(
        "numbers from 1 only"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*REPLY, "x"]), inner, max_size=5)
    ),
    max_leaves=8,
)


@given(st.text() | st.text(alphabet='{}[]":,0123truefalsn` \n'))
def test_no_text_raises_or_passes_by_chance(text: str):
    verdict = judged(text)
    assert verdict["score"] == 0.0
    assert verdict["problem"]


@given(JSON)
def test_no_json_raises(value: Any):
    verdict = judged(json.dumps(value))
    assert verdict["score"] == float(not verdict["problem"])


@given(
    st.text(min_size=1).filter(str.strip),
    st.sampled_from(ROW["solutions"]),
    st.sampled_from(["同意", "不同意", "未表态"]),
    st.lists(st.integers(1, 3), unique=True),
    st.lists(st.integers(1, 2), unique=True),
    st.booleans(),
)
def test_every_right_reply_passes_and_no_cut_of_it(
    said: str, solution: str, agreed: str, rules: list, facts: list, ascii_only: bool
):
    reply = dict(zip(REPLY, (said, solution, agreed, rules, facts), strict=True))
    text = json.dumps(reply, ensure_ascii=ascii_only)
    assert judged(text)["problem"] == ""
    assert all(judged(text[:end])["score"] == 0.0 for end in range(0, len(text), 7))


def test_a_thought_belongs_to_the_form_where_the_reference_has_one():
    assert RULE is not None

    def problem(text: str, truth: str | None) -> str:
        return RULE(data_source="rider", solution_str=text, ground_truth=truth, extra_info=ROW)[
            "problem"
        ]

    thinking = written(Thought="先安抚")
    assert problem(thinking, thinking) == ""
    assert problem(written(Thought=""), thinking) == ""
    assert "keys that are missing: Thought" in problem(written(), thinking)
    assert "that do not belong: Thought" in problem(thinking, written())
    assert "Thought is 1 instead of a text" in problem(written(Thought=1), thinking)
