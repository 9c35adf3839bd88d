"""Requests of the kind `code` and the local sandbox for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.code.bubblewrap import Bubblewrap
from rmrl.rewards.kinds.code.judge import judged
from rmrl.rewards.kinds.code.local import local_sandbox, run_locally
from rmrl.rewards.kinds.code.request import CodeRequest, Outcome, Program


def sandbox(python: str = "") -> Bubblewrap:
    """The sandbox of this machine; the test is skipped where there is none."""
    made = local_sandbox(python)
    if isinstance(made, str):
        pytest.skip(made)
    return made


def asserts(*tests: str, **more: Any) -> dict[str, Any]:
    return {"form": "asserts", "tests": list(tests), **more}


def stdio(*cases: tuple[str, str]) -> dict[str, Any]:
    return {"form": "stdio", "cases": [list(case) for case in cases]}


def request(code: str, tests: dict[str, Any], **more: Any) -> CodeRequest:
    return CodeRequest(code=code, tests=json.dumps(tests), **more)


async def run(program: Program) -> Outcome:
    return await run_locally(program, sandbox(), workers=2)


async def judge(code: str, tests: dict[str, Any], **more: Any) -> ValueOutput:
    return await judged(request(code, tests, **more), run)


def failure(output: ValueOutput) -> str:
    """Why the first test failed."""
    return str(dict(output.extra).get("first_failure", ""))
