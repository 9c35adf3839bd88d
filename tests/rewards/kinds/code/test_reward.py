"""The kind `code`: what is judged at all, its entries, and what the check before a run says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from rmrl.assemble.preflight import reward_preflight
from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Surroundings, resolve_rewards
from rmrl.rewards.kinds.code import reward as kind
from rmrl.rewards.kinds.code.bubblewrap import Bubblewrap
from rmrl.rewards.kinds.code.request import CodeRequest
from rmrl.rewards.kinds.code.reward import CodeReward, Options
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Prompt, ScoreItem, ScoreResult
from tests.rewards.parts import problems_of

URL = "http://127.0.0.1:9/run_code"
CASES: dict[str, Any] = {"inputs": ["1"], "outputs": ["2"]}


class Judged:
    """Calls whose every answer is the same."""

    def __init__(self, output: ValueOutput) -> None:
        self.output = output
        self.requests: list[CodeRequest] = []

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        assert (method, deterministic) == ("reward", True)
        self.requests += requests
        return [self.output] * len(requests)


def item(response: str, **extra_info: Any) -> ScoreItem:
    return ScoreItem(
        prompt_id="0",
        messages=[{"role": "user", "content": "Q"}],
        response=response,
        rm_prompt="Q",
        extra_info=extra_info,
    )


def reward(output: ValueOutput, **options: Any) -> tuple[CodeReward, Judged]:
    made = Options(where="sandbox_fusion", url=URL, **options)
    calls = Judged(output)
    spec = RewardSpec(name="tests", kind="code", weight=1.0, options=made)
    context = KindContext(pool=None, tokenizer=None, calls={"remote": calls})  # type: ignore[arg-type]
    return CodeReward.from_spec(spec, context), calls


async def score(output: ValueOutput, *items: ScoreItem, **options: Any) -> list[ScoreResult]:
    return await reward(output, **options)[0].score(items)


PASSED = ValueOutput(1.0, 0, extra=(("tests", 1), ("passed", 1)))


async def test_a_response_without_code_scores_0_without_a_run() -> None:
    made, calls = reward(PASSED)
    [result] = await made.score([item("The answer is 2.", **CASES)])
    assert (result.value, result.status) == (0.0, "ok")
    assert result.detail == "The response has no block of python code."
    assert calls.requests == []


async def test_a_row_without_tests_has_no_verdict() -> None:
    [result] = await score(PASSED, item("```python\nx\n```"))
    assert (result.value, result.status) == (None, "user_error")
    assert "holds no tests" in result.detail


async def test_functions_are_tested_in_python_only() -> None:
    [result] = await score(PASSED, item("```cpp\nx\n```", fn_name="f", **CASES), language="cpp")
    assert result.status == "user_error"


async def test_equal_code_of_equal_rows_is_judged_once() -> None:
    made, calls = reward(PASSED, time_s=3.0, score="share")
    items = [item(f"So {n}\n```python\nprint(2)\n```", **CASES) for n in range(3)]
    results = await made.score([*items, item("```python\nprint(3)\n```", **CASES)])
    assert [result.value for result in results] == [1.0] * 4
    assert [request.code for request in calls.requests] == ["print(2)", "print(3)"]
    assert {(request.time_s, request.score) for request in calls.requests} == {(3.0, "share")}


async def test_columns_detail_and_the_verdict_in_words() -> None:
    failed = ValueOutput(
        0.0, 0, extra=(("tests", 3), ("passed", 1), ("first_failure", "test 2 of 3: wrong"))
    )
    [result] = await score(failed, item("```python\nx\n```", **CASES))
    assert (result.value, result.detail) == (0.0, "test 2 of 3: wrong")
    assert result.extra == {"tests": 3, "passed": 1}
    assert result.raw_text == "1 of 3 tests passed; test 2 of 3: wrong"
    assert result.rendered == "x"


async def test_a_failure_of_the_sandbox_is_its_status() -> None:
    lost = ValueOutput(float("nan"), 0, failure="provider_error", detail="down")
    [result] = await score(lost, item("```python\nx\n```", **CASES))
    assert (result.value, result.status, result.detail) == (None, "provider_error", "down")


# --- entries


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ({"where": "here"}, "w.where='here': not a choice"),
        ({"score": "most"}, "w.score='most': not a choice"),
        ({"time_s": 0.0}, "w.time_s=0.0: must be greater than 0"),
        ({"memory_mb": 1}, "w.memory_mb=1: give at least 64"),
        ({"processes": 1}, "w.processes=1: give at least 2"),
        ({"tests": "cases"}, "w.tests='cases': give ground_truth"),
        ({"url": URL}, "the local sandbox has no address"),
        ({"language": "cpp"}, "the local sandbox runs python"),
        ({"where": "sandbox_fusion"}, "w.url=''"),
        (
            {"where": "sandbox_fusion", "url": URL, "time_s": 60.0},
            "w.timeout_s=120: a program may take 185 s",
        ),
    ],
)
def test_entries_that_cannot_work(entries: dict[str, Any], part: str) -> None:
    [problem] = problems_of(CodeReward, entries)
    assert part in problem


def resolved(**entries: Any) -> RewardSpec:
    config = RewardConfig(models=["tests"], specs={"tests": {"kind": "code", **entries}})
    found = resolve_rewards(config, Surroundings(device="cpu", threads=1, functions_dirs=[]))
    assert found.problems == []
    return found.specs[0]


def test_a_section_becomes_a_reward_with_or_without_a_server() -> None:
    local = resolved()
    assert (local.remote, local.needs_model) == (None, False)
    assert "a sandbox on this machine" in reward_table([local])
    service = resolved(where="sandbox_fusion", url=URL, max_concurrency=8)
    assert service.remote is not None
    assert (service.remote.wire, service.remote.max_concurrency) == ("sandbox_fusion", 8)
    assert "127.0.0.1:9 (sandbox_fusion)" in reward_table([service])


# --- the check before a run


def rows(**extra_info: Any) -> list[ResponseRow]:
    messages = [{"role": "user", "content": "Q"}]
    prompt = Prompt(id="q", messages=messages, token_ids=(), extra_info=extra_info)
    return [ResponseRow(prompt=prompt, text="```python\nx\n```")]


def test_the_check_refuses_a_machine_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "local_sandbox", lambda _: "bubblewrap (bwrap) is not installed")
    spec = resolved()
    assert reward_preflight([spec], rows(**CASES), device="cpu") == [
        "reward 'tests': bubblewrap (bwrap) is not installed"
    ]
    with pytest.raises(ConfigError, match="reward 'tests': bubblewrap"):
        CodeReward.from_spec(spec, KindContext(pool=None, tokenizer=None))  # type: ignore[arg-type]


def test_the_check_tells_what_programs_run_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = Bubblewrap("/usr/bin/bwrap", "/usr/bin/python3", (), as_root=False)
    monkeypatch.setattr(kind, "local_sandbox", lambda _: made)
    with caplog.at_level(logging.INFO):
        assert reward_preflight([resolved()], rows(**CASES), device="cpu") == []
    assert (
        "reward 'tests': programs run in bubblewrap (/usr/bin/bwrap) with /usr/bin/python3, without"
        " a network, 10 s and 1024 MB each" in caplog.messages
    )


def test_the_check_names_rows_without_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bubblewrap("/usr/bin/bwrap", "/usr/bin/python3", (), as_root=False)
    monkeypatch.setattr(kind, "local_sandbox", lambda _: made)
    [problem] = reward_preflight([resolved()], rows(answer="7"), device="cpu")
    assert problem.startswith("reward 'tests': the row has no tests: ground_truth holds no tests")
