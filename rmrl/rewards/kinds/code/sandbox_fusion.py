"""Wire of SandboxFusion: programs of the kind `code` run in its service.

    POST <server>/run_code {"code", "language", "stdin", "compile_timeout", "run_timeout", ...}
    -> {"status": "Success" | "Failed" | "SandboxError", "message",
        "compile_result": null or {...},
        "run_result": {"status": "Finished" | "Error" | "TimeLimitExceeded", "return_code",
                       "execution_time", "stdout", "stderr"}}

Standard input and output are one post per pair. Assertions and calls are one post: the tester is
the posted program, and reads its job, the candidate's code and the tests from standard input.
`SandboxError`, an answer in another form and a failed post are failures of the service; `Failed` is
one of the program.

Source of the fields: sandbox/server/sandbox_api.py of bytedance/SandboxFusion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.code import inside
from rmrl.rewards.kinds.code.judge import judged
from rmrl.rewards.kinds.code.request import CodeRequest, Outcome, Program
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.remote.values import check_method, with_extra
from rmrl.together import together

_TIME = "TimeLimitExceeded"


class SandboxFusionWire:
    """Wire that judges `CodeRequest`s with runs in the service."""

    def __init__(self, spec: HTTPSpec) -> None:
        self._spec = spec
        self._client = HTTPClient(spec)

    async def submit(self, method: str, requests: Sequence[CodeRequest]) -> list[ValueOutput]:
        """See `Wire.submit`. The only method is "reward"."""
        check_method(method, "sandbox_fusion")
        return await together(judged(request, self.run) for request in requests)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def run(self, program: Program) -> Outcome:
        """Run one program in the service."""
        body = with_extra(run_code_request(program), self._spec)
        try:
            answer = await self._client.post(body)
        except RemoteCallError as error:
            return Outcome(failure=error.failure, detail=error.detail)
        return self._outcome(answer)

    def _outcome(self, answer: Any) -> Outcome:
        url = self._client.shown_url
        status = answer.get("status") if isinstance(answer, Mapping) else None
        if status == "SandboxError":
            message = self._client.shown(str(answer.get("message") or "no message"))
            return Outcome(failure="provider_error", detail=f"{url}: SandboxError: {message}.")
        if status not in ("Success", "Failed"):
            text = self._client.shown(repr(answer))
            detail = f"{url} answered without a 'status' of /run_code: {text}."
            return Outcome(failure="provider_error", detail=detail)
        compiled = _result(answer, "compile_result")
        ran = _result(answer, "run_result")
        if status == "Failed" and not ran:
            if not compiled:
                detail = f"{url} answered 'Failed' without a result."
                return Outcome(failure="provider_error", detail=detail)
            return Outcome(
                stderr=str(compiled.get("stderr") or ""),
                problem=_problem(compiled) or "the program did not compile",
            )
        return Outcome(
            stdout=str(ran.get("stdout") or ""),
            stderr=str(ran.get("stderr") or ""),
            problem=_problem(ran),
        )


def run_code_request(program: Program) -> dict[str, Any]:
    """Build the body of the post, `extra_body` aside."""
    code = program.source
    stdin = program.stdin
    run_timeout = program.time_s
    if program.job is not None:
        code = inside.text()
        stdin = json.dumps(dict(program.job))
        # The tester reports what it has when its own time is up.
        run_timeout = program.job["wall_s"] + 5
    return {
        "code": code,
        "language": program.language,
        "stdin": stdin,
        "compile_timeout": program.time_s,
        "run_timeout": run_timeout,
        "files": {},
        "fetch_files": [],
    }


def _result(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    result = answer.get(name)
    return result if isinstance(result, Mapping) else {}


def _problem(result: Mapping[str, Any]) -> str:
    """How a step of the program ended that did not end well."""
    if result.get("status") == _TIME:
        return "ran out of time"
    code = result.get("return_code")
    return f"ended with exit code {code}" if code else ""
