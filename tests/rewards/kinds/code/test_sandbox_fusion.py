"""The wire of SandboxFusion against a fake of the service, whose answers have the form of
`RunCodeResponse` in its sandbox/server/sandbox_api.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.code.sandbox_fusion import SandboxFusionWire
from rmrl.rewards.remote.spec import HTTPSpec
from tests.faults.injections import ran_tests
from tests.patience import PATIENCE_S
from tests.rewards.kinds.code.sandboxes import asserts, failure, request, stdio
from tests.rewards.remote.server import Reply, Seen, Server, serving

DOUBLE = stdio(("2", "4\n"), ("3", "6\n"), ("4", "8\n"))


def answered(status: str, run: Any = None, compiled: Any = None, message: str = "") -> Reply:
    return Reply(
        {
            "status": status,
            "message": message,
            "compile_result": compiled,
            "run_result": run,
            "executor_pod_name": None,
            "files": {},
        }
    )


def ran(stdout: str, code: int | None = 0, status: str = "Finished", stderr: str = "") -> Any:
    return {
        "status": status,
        "execution_time": 0.02,
        "return_code": code,
        "stdout": stdout,
        "stderr": stderr,
    }


def doubled(seen: Seen) -> Reply:
    return answered("Success", ran(f"{2 * int(seen.body['stdin'])}\n"))


async def judge(
    answer: Any, tests: Any = DOUBLE, code: str = "code", **more: Any
) -> tuple[ValueOutput, Server]:
    tries = more.pop("max_tries", 1)
    with serving(answer) as server:
        wire = SandboxFusionWire(
            HTTPSpec(
                url=f"{server.url}/run_code",
                wire="sandbox_fusion",
                timeout_s=PATIENCE_S,
                max_tries=tries,
                extra_body={"memory_limit_MB": 512},
            )
        )
        try:
            [output] = await wire.submit("reward", [request(code, tests, **more)])
            return output, server
        finally:
            await wire.aclose()


async def test_a_pair_is_one_post_and_the_expected_output_is_not_sent() -> None:
    output, server = await judge(doubled, time_s=3.0, language="cpp")
    assert (output.value, dict(output.extra)) == (1.0, {"tests": 3, "passed": 3})
    assert [seen.body["stdin"] for seen in server.seen] == ["2", "3", "4"]
    assert server.seen[0].path == "/run_code"
    assert server.seen[0].body == {
        "code": "code",
        "language": "cpp",
        "stdin": "2",
        "compile_timeout": 3.0,
        "run_timeout": 3.0,
        "files": {},
        "fetch_files": [],
        "memory_limit_MB": 512,
    }


WRONG = [
    (answered("Success", ran("7\n")), "wrong output '7\\n'"),
    (
        answered("Failed", ran("", 1, stderr="Traceback\nNameError: x")),
        "ended with exit code 1: NameError: x",
    ),
    (answered("Failed", ran("", None, "TimeLimitExceeded")), "ran out of time"),
    (answered("Failed", None, ran("", 1, stderr="main.cpp: error")), "exit code 1: main.cpp"),
    (answered("Failed", None, ran("", None, "TimeLimitExceeded")), "ran out of time"),
]


@pytest.mark.parametrize(("reply", "part"), WRONG)
async def test_a_program_that_fails_scores_0_and_says_why(reply: Reply, part: str) -> None:
    output, server = await judge(lambda seen: doubled(seen) if seen.number == 1 else reply)
    assert (output.value, output.failure) == (0.0, "")
    assert failure(output).startswith("test 2 of 3: ")
    assert part in failure(output)
    assert len(server.seen) == 2  # the third pair can change nothing
    output, server = await judge(
        lambda seen: reply if seen.body["stdin"] == "3" else doubled(seen), score="share"
    )
    assert output.value == pytest.approx(2 / 3)
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        (answered("SandboxError", message="no container left"), "SandboxError: no container left"),
        (answered("Failed"), "'Failed' without a result"),
        (Reply({"detail": "unknown language"}, 422), "422 Unprocessable Entity: unknown language"),
        (Reply({}, 504), "504 Gateway Timeout"),
        (Reply({"result": 1}), "without a 'status'"),
        (Reply([]), "without a 'status'"),
        (Reply(b"<html>"), "no JSON"),
    ],
)
async def test_a_service_that_fails_is_never_a_0(reply: Reply, part: str) -> None:
    for tests in (DOUBLE, asserts("assert f(1) == 2")):
        output, _ = await judge(lambda _: reply, tests)
        assert output.failure == "provider_error"
        assert part in output.detail


async def test_one_failed_post_of_many_leaves_no_share() -> None:
    broken = answered("SandboxError")
    output, _ = await judge(
        lambda seen: broken if seen.body["stdin"] == "3" else doubled(seen), score="share"
    )
    assert output.failure == "provider_error"


async def test_a_failed_post_is_tried_again() -> None:
    output, server = await judge(
        lambda seen: Reply({}, 503) if seen.number == 1 else doubled(seen), max_tries=2
    )
    assert output.value == 1.0
    assert len(server.seen) == 4


async def test_assertions_are_one_post_with_the_tester_as_the_program() -> None:
    tests = asserts("assert f(1) == 2", "assert f(2) == 3", prompt="import math\ndef f(x):")
    output, server = await judge(
        lambda seen: ran_tests(seen, [[True, ""], [False, "assertion failed"]]),
        tests,
        code="    return 2",
        score="share",
    )
    assert output.value == 0.5
    assert failure(output) == "test 2 of 2: assertion failed"
    [seen] = server.seen
    job = json.loads(seen.body["stdin"])
    assert job["candidate"] == ["import math\ndef f(x):\n    return 2"]
    assert job["tests"] == ["assert f(1) == 2", "assert f(2) == 3"]
    assert "f(1)" not in seen.body["code"]
    assert seen.body["run_timeout"] == 25.0  # twice the 10 s of the program, and 5


@pytest.mark.parametrize(
    "stdout",
    ['[[true, ""]]\n', '0000 [[true, ""]]\n', "all tests passed\n", ""],
)
async def test_a_verdict_that_is_not_signed_does_not_count(stdout: str) -> None:
    def answer(seen: Seen) -> Reply:
        job = json.loads(seen.body["stdin"])
        return answered("Success", ran(f"{job['ready']}\n{stdout}"))

    output, _ = await judge(answer, asserts("assert f(1) == 2"))
    assert (output.value, output.failure) == (0.0, "")
    assert "ended the tests" in failure(output)


async def test_a_tester_that_did_not_start_is_no_verdict() -> None:
    reply = answered("Failed", ran("", 127, stderr="python: not found"))
    output, _ = await judge(lambda _: reply, asserts("assert f(1) == 2"))
    assert output.failure == "worker_lost"
    assert "python: not found" in output.detail
