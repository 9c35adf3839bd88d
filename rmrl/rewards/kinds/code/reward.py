"""Kind `code`: the code in the response is run with the tests of the row, in a local sandbox or on
a SandboxFusion service.

A program that fails its tests, crashes or runs out of its own time scores 0, and so does a response
without code. A sandbox that does not do its work is a status. Rows without tests are `user_error`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rmrl.config.schema.fields import at_least, choice, positive
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.code.extract import code_block
from rmrl.rewards.kinds.code.judge import judged
from rmrl.rewards.kinds.code.local import local_sandbox, run_locally
from rmrl.rewards.kinds.code.request import CodeRequest, Outcome, Program
from rmrl.rewards.kinds.code.row_tests import NoTestsError, in_row
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.remote.reward import Options as ServerOptions
from rmrl.rewards.kinds.remote.reward import check_server, http_spec
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.row_fields import row_fields_problems
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.together import together
from rmrl.types import ScoreItem, ScoreResult

if TYPE_CHECKING:
    from rmrl.rewards.kinds.shared.context import KindContext
    from rmrl.rewards.specs.spec import RewardSpec

LOCAL = "local"
SERVICE = "sandbox_fusion"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Entries of a reward that runs code."""

    where: str = choice(LOCAL, among=(LOCAL, SERVICE))
    """local: bubblewrap on this machine; sandbox_fusion: the service at `url`."""
    language: str = "python"
    """Language of the code. Others than python: on the service, with tests of input and output."""
    tests: str = ""
    """Field of the row that holds its tests: ground_truth or extra_info.<key>. "": looked for in
    extra_info, then in ground_truth."""
    max_tests: int = at_least(0, least=0)
    """Number of a row's tests that are run, from the first. 0: all."""
    score: str = choice("all", among=("all", "share"))
    """all: 1 where every test passes, else 0; share: the share of the tests that pass."""
    needs_block: bool = True
    """False: a response without a fenced block is code as a whole."""
    time_s: float = positive(10.0)
    """CPU seconds of a program: each pair of input and output, or all assertions of a row together.
    By the clock it may take twice as long."""
    memory_mb: int = at_least(1024, least=64)
    """local: address space of a process, and memory of all a program's processes together."""
    processes: int = at_least(16, least=2)
    """local: processes and threads of a program at once."""
    python: str = ""
    """local: the interpreter of the programs, with the packages they may import. "": the one that
    rmrl's environment was made from."""
    url: str = ""
    """sandbox_fusion: the address that is posted to, e.g. http://127.0.0.1:8080/run_code."""
    api_key_env: str = ""
    """sandbox_fusion: name of the environment variable that holds the key."""
    headers: dict[str, Any] = field(default_factory=dict)
    """sandbox_fusion: sent with every request."""
    timeout_s: float = positive(120.0)
    """sandbox_fusion: deadline of one post with its tries, the program's own time included."""
    max_concurrency: int = at_least(32, least=1)
    """sandbox_fusion: posts at once. Local programs at once: reward.rule_workers."""
    max_tries: int = at_least(5, least=1)
    """sandbox_fusion: tries of one post. Only 429, 5xx and broken connections are retried."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """sandbox_fusion: entries put into every post; null removes a default entry."""


class CodeReward(Kind):
    """Runs the code of every response."""

    Options: ClassVar[type[Options]] = Options
    works_in: ClassVar[str] = "a sandbox on this machine"

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._options = spec.options
        self._context = context
        self._sandbox = None
        if self._options.where == LOCAL:
            sandbox = local_sandbox(self._options.python)
            if isinstance(sandbox, str):
                raise ConfigError(f"reward '{spec.name}': {sandbox}")
            self._sandbox = sandbox

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """All problems of the entries, as sentences that begin with `where`."""
        return option_problems(options, where)

    @classmethod
    def server_of(cls, options: Options, where: str) -> HTTPSpec | None:
        """The service that runs the programs, None for the local sandbox."""
        if options.where == LOCAL:
            return None
        return http_spec(_server_options(options), where)

    @classmethod
    def machine_problem(cls, spec: RewardSpec) -> str:
        """Why programs cannot run on this machine, "" where they can."""
        options = spec.options
        if options.where != LOCAL:
            return ""
        sandbox = local_sandbox(options.python)
        return sandbox if isinstance(sandbox, str) else ""

    @classmethod
    def machine_report(cls, spec: RewardSpec) -> str:
        """Return what the programs run in, as a sentence."""
        options = spec.options
        if options.where != LOCAL:
            return f"programs run on the service at {options.url}"
        sandbox = local_sandbox(options.python)
        if isinstance(sandbox, str):
            return sandbox
        return (
            f"programs run in bubblewrap ({sandbox.executable}) with {sandbox.python}, without a"
            f" network, {options.time_s:g} s and {options.memory_mb} MB each"
        )

    @classmethod
    def missing_references(cls, spec: RewardSpec, items: Sequence[ScoreItem]) -> list[str]:
        """Why each row has no tests, "" where it has."""
        missing = [""] * len(items)
        for position, item in enumerate(items):
            try:
                in_row(item, spec.options.tests)
            except NoTestsError as error:
                missing[position] = f"the row has no tests: {error}"
        return missing

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """The verdict on each item's code, or the reason why there is none."""
        prepared = [self._prepared(item) for item in items]
        requests = [each for each in prepared if isinstance(each, CodeRequest)]
        distinct = list(dict.fromkeys(requests))
        outputs: dict[CodeRequest, ValueOutput] = {}
        if distinct:
            outputs = dict(zip(distinct, await self._judged(distinct), strict=True))
        results: list[ScoreResult] = []
        for each in prepared:
            if isinstance(each, CodeRequest):
                results.append(_result(outputs[each], each))
            else:
                results.append(each)
        return results

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The code that is run."""
        texts: list[Rendered] = []
        for item in items:
            prepared = self._prepared(item)
            text = prepared.code if isinstance(prepared, CodeRequest) else prepared.detail
            texts.append(Rendered(text, ()))
        return texts

    def _prepared(self, item: ScoreItem) -> CodeRequest | ScoreResult:
        """Return the request, or the result of a response or row that leaves nothing to run."""
        options = self._options
        try:
            tests = in_row(item, options.tests, at_most=options.max_tests)
        except NoTestsError as error:
            return ScoreResult(value=None, status="user_error", detail=f"No tests: {error}.")
        if options.language != "python" and tests["form"] != "stdio":
            detail = f"Tests of functions are run for python only, not for {options.language}."
            return ScoreResult(value=None, status="user_error", detail=detail)
        code = code_block(
            item.response,
            options.language,
            needs_block=options.needs_block,
            # A part of a response (`reads`) has its thinking behind it.
            opened=item.opens_thinking if item.whole is None else False,
        )
        if code is None:
            detail = f"The response has no block of {options.language} code."
            return ScoreResult(value=0.0, detail=detail)
        return CodeRequest(
            code=code,
            tests=json.dumps(tests, sort_keys=True, default=str),
            language=options.language,
            score=options.score,
            time_s=options.time_s,
            memory_mb=options.memory_mb,
            processes=options.processes,
        )

    async def _judged(self, requests: list[CodeRequest]) -> list[ValueOutput]:
        sandbox = self._sandbox
        if sandbox is None:
            calls = self._context.calls_to("remote")
            return await calls.submit("reward", requests, deterministic=True)
        workers = self._context.pool.workers

        async def run(program: Program) -> Outcome:
            return await run_locally(program, sandbox, workers=workers)

        return await together(judged(request, run) for request in requests)


def option_problems(options: Options, where: str) -> list[str]:
    """Return all problems of the entries."""
    problems: list[str] = []
    if options.tests:
        problems += row_fields_problems({"tests": options.tests}, where)
    if options.where == LOCAL:
        if options.url:
            problems.append(
                f"{where}.url={options.url}: the local sandbox has no address; give"
                " where: sandbox_fusion, or leave it out"
            )
        if options.language != "python":
            problems.append(
                f"{where}.language={options.language}: the local sandbox runs python; give where:"
                " sandbox_fusion for other languages"
            )
    elif options.where == SERVICE:
        problems += check_server(_server_options(options), where)
        need_s = 3 * options.time_s + 5
        if options.timeout_s < need_s:
            problems.append(
                f"{where}.timeout_s={options.timeout_s:g}: a program may take {need_s:g} s with its"
                f" compilation (time_s={options.time_s:g}); give a longer timeout_s"
            )
    return problems


def _server_options(options: Options) -> ServerOptions:
    return ServerOptions(
        wire=SERVICE,
        url=options.url,
        api_key_env=options.api_key_env,
        headers=options.headers,
        timeout_s=options.timeout_s,
        max_concurrency=options.max_concurrency,
        max_tries=options.max_tries,
        extra_body=options.extra_body,
    )


def _result(output: ValueOutput, request: CodeRequest) -> ScoreResult:
    shared: dict[str, Any] = {"rendered": request.code, "cached": output.cached}
    if output.failure:
        return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
    columns = dict(output.extra)
    detail = str(columns.pop("first_failure", ""))
    verdict = f"{columns['passed']} of {columns['tests']} tests passed"
    text = f"{verdict}; {detail}" if detail else verdict
    return ScoreResult(value=output.value, detail=detail, extra=columns, raw_text=text, **shared)
