"""Metrics about responses that an environment played."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rmrl.telemetry.turn_metrics import turn_metrics
from rmrl.turns import Branch, ResponseTurn
from rmrl.types import Conversation, Prompt, Response

PROMPT = Prompt(id="p", messages=[{"role": "user", "content": "Q"}], token_ids=(1,))


def response(mask: list[bool], *, stop: str, **changes: object) -> Response:
    talk = Conversation(messages=PROMPT.messages, first=1, stop=stop)
    return dataclasses.replace(
        Response(
            prompt=dataclasses.replace(PROMPT, conversation=dataclasses.replace(talk)),
            text="",
            token_ids=np.zeros(len(mask)),
            logprobs=None,
            finish_reason="stop",
            policy_version=0,
            mask=mask,
        ),
        **changes,
    )


def test_by_hand():
    """3 turns in 2 responses, 2 holes of 6 tokens, 3 branches, one of two stopped at a limit."""
    turn = ResponseTurn(start=0, end=1, role="assistant")
    tool = ResponseTurn(start=1, end=2, role="tool")
    first = response([True, False, True, True], stop="max turns!", turns=(turn, tool, turn))
    second = response(
        [True, False],
        stop="abandoned",
        turns=(turn,),
        branches=(Branch(prompt_ids=(1,), length=1), Branch(prompt_ids=(1,), length=1)),
    )
    assert turn_metrics([first, second]) == {
        "rollout/turns": 1.5,
        "rollout/hole_fraction": pytest.approx(2 / 6),
        "rollout/branches": 1.5,
        "rollout/failed": 0.0,
        "rollout/abandoned": 0.5,
        "rollout/stop/max_turns_": 0.5,
    }


def test_failures_are_counted():
    failed = response([], stop="")
    talk = Conversation(messages=PROMPT.messages, first=1, status="timeout")
    prompt = dataclasses.replace(PROMPT, conversation=talk)
    assert turn_metrics([dataclasses.replace(failed, prompt=prompt)])["rollout/failed"] == 1.0


def test_single_turns_have_none():
    plain = response([True], stop="")
    assert turn_metrics([dataclasses.replace(plain, prompt=PROMPT)]) == {}
