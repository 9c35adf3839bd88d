"""From code and tests to programs, and from their outcomes to a verdict, for every sandbox.

A program that is wrong, crashes or runs out of its own time scores 0. A sandbox that fails is a
status, and so is a row whose tests cannot be run.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Sequence
from typing import Any

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.code import inside
from rmrl.rewards.kinds.code.request import CodeRequest, Outcome, Program, Run
from rmrl.rewards.remote.values import failed
from rmrl.together import together
from rmrl.types import Status

_SHOWN_CHARACTERS = 200

Verdict = tuple[bool, str]
"""(passed, why not) of one test."""


class SandboxError(Exception):
    """A run that gives no verdict, with the status and the reason of that."""

    def __init__(self, failure: Status, detail: str) -> None:
        super().__init__(detail)
        self.failure: Status = failure
        self.detail = detail


async def judged(request: CodeRequest, run: Run) -> ValueOutput:
    """Return the score of one response with the columns `tests`, `passed` and, where a test fails,
    `first_failure`; or the failure of the sandbox."""
    tests = json.loads(request.tests)
    try:
        if tests["form"] == "stdio":
            verdicts = await _stdio(request, tests["cases"], run)
            count = len(tests["cases"])
        else:
            verdicts = await _functions(request, tests, run)
            count = len(tests["tests"] if tests["form"] == "asserts" else tests["cases"])
    except SandboxError as error:
        return failed(error.failure, error.detail)
    passed = sum(verdict[0] for verdict in verdicts)
    value = passed / count
    if request.score == "all":
        value = float(passed == count)
    columns: list[tuple[str, Any]] = [("tests", count), ("passed", passed)]
    for number, (fine, reason) in enumerate(verdicts, start=1):
        if not fine:
            columns.append(("first_failure", f"test {number} of {count}: {reason}"))
            break
    return ValueOutput(value, 0, extra=tuple(columns))


async def _stdio(request: CodeRequest, cases: Sequence[Sequence[str]], run: Run) -> list[Verdict]:
    """One run per pair of input and output; with score `all` up to the first that fails."""

    async def verdict(case: Sequence[str]) -> Verdict:
        outcome = await run(_program(request, stdin=case[0]))
        return _stdio_verdict(_sound(outcome), case[1])

    if request.score == "share":
        return await together(verdict(case) for case in cases)
    verdicts: list[Verdict] = []
    for case in cases:
        verdicts.append(await verdict(case))
        if not verdicts[-1][0]:
            break
    return verdicts


def _stdio_verdict(outcome: Outcome, expected: str) -> Verdict:
    if outcome.problem:
        last = outcome.stderr.strip().rpartition("\n")[2]
        return False, _shown(f"{outcome.problem}: {last}" if last else outcome.problem)
    if _lines(outcome.stdout) == _lines(expected):
        return True, ""
    return False, f"wrong output {_shown(repr(outcome.stdout))}"


def _lines(text: str) -> list[str]:
    """The lines without spaces at their ends and without empty lines at the end of the text."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


async def _functions(request: CodeRequest, tests: dict[str, Any], run: Run) -> list[Verdict]:
    """Assertions, or calls with results: all in one run, which reports the verdicts.

    A prompt ends in the function's signature: the code goes on with its body, or is a program that
    defines the function anew and comes behind the prompt as a text of its own.
    """
    prompt = tests.get("prompt", "")
    name = re.escape(tests.get("entry_point", ""))
    sources = [f"{prompt}\n{request.code}" if prompt else request.code]
    if prompt and re.search(rf"^(?:async +)?def +{name} *\(", request.code, re.MULTILINE):
        sources = [prompt, request.code]
    job: dict[str, Any] = {
        "form": tests["form"],
        "name": tests.get("name", ""),
        "entry_point": tests.get("entry_point", ""),
        "prompt": prompt,
        "setup": tests.get("setup", ""),
        "candidate": sources,
        "tests": tests["tests"] if tests["form"] == "asserts" else tests["cases"],
        "until_failure": request.score == "all",
        "wall_s": 2 * request.time_s,
        "ready": secrets.token_hex(16),
        "secret": secrets.token_hex(16),
        "inside": inside.text(),
    }
    outcome = _sound(await run(_program(request, job=job)))
    reported = _report(outcome.stdout, job["secret"])
    if reported is None and job["ready"] not in outcome.stdout:
        last = outcome.stderr.strip().rpartition("\n")[2] or outcome.problem or "no output"
        raise SandboxError("worker_lost", f"The sandbox did not start the tests: {_shown(last)}.")
    if reported is None:
        reason = outcome.problem or "the program ended the tests"
        return [(False, _shown(reason))]
    verdicts: list[Verdict] = []
    for passed, reason in reported:
        if passed == "unfit":
            detail = f"The row's tests cannot be run: {_shown(reason)}."
            raise SandboxError("user_error", detail)
        if passed == "lost":
            detail = f"The sandbox did not start the program: {_shown(reason)}."
            raise SandboxError("worker_lost", detail)
        verdicts.append((passed is True, _shown(reason)))
    return verdicts


def _program(request: CodeRequest, *, stdin: str = "", job: Any = None) -> Program:
    return Program(
        source=request.code,
        language=request.language,
        stdin=stdin,
        job=job,
        time_s=request.time_s,
        memory_mb=request.memory_mb,
        processes=request.processes,
    )


def _sound(outcome: Outcome) -> Outcome:
    """The outcome itself. Raises SandboxError for a sandbox that did not do its work."""
    if outcome.failure is not None:
        raise SandboxError(outcome.failure, outcome.detail)
    return outcome


def _report(stdout: str, secret: str) -> list[Any] | None:
    """The verdicts that the tester signed, None without such a line."""
    for line in stdout.split("\n"):
        code, _, text = line.partition(" ")
        expected = hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()
        if hmac.compare_digest(code.encode(), expected.encode()):
            return json.loads(text)
    return None


def _shown(text: str) -> str:
    """One line, shortened."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_CHARACTERS else f"{flat[:_SHOWN_CHARACTERS]}..."
