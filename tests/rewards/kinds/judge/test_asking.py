"""What a judge is asked without a drop-in."""

from __future__ import annotations

import pytest

from rmrl.rewards.kinds.judge.asking import (
    answer_form,
    conversation_text,
    fill,
    question_of,
    template,
)


def test_placeholders_are_filled_in_one_pass():
    told = {
        "prompt": "{response}",
        "response": "{prompt} {answer} {0} {x.__class__}",
        "answer": "a",
    }
    assert (
        fill("P {prompt} R {response} {other} {} {{answer}}", told)
        == "P {response} R {prompt} {answer} {0} {x.__class__} {other} {} {a}"
    )
    assert fill("{prompt}", {}) == "{prompt}"


@pytest.mark.parametrize(
    ("name", "places"),
    [("judge", ("prompt", "response", "question", "answer")), ("critique", ("prompt", "response"))],
)
def test_the_shipped_templates_have_their_placeholders(name: str, places: tuple[str, ...]):
    assert all(template(name).count(f"{{{place}}}") == 1 for place in places)


def test_a_conversation_as_text():
    assert conversation_text("Q") == "Q"
    assert conversation_text([{"role": "user", "content": "Q"}]) == "Q"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert conversation_text(turns) == "user: a\n\nassistant: b"


def test_the_form_of_the_answer():
    assert '"Score: <number>", the number being from 1 to 5.' in answer_form(scale=[1, 5])
    assert "your score" in answer_form(scale=[])
    assert (
        answer_form(scale=[0, 10], choices=("Yes", "No"))
        == "Answer with one of these and nothing else: Yes, No."
    )
    assert '{"type": "object"}' in answer_form(scale=[0, 10], json_schema='{"type": "object"}')


def test_the_rubric_follows_the_question():
    assert question_of("How good?", " Is it short? ") == "How good?\n\nRubric:\nIs it short?"
    assert question_of("How good?", " ") == "How good?"
