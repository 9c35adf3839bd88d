"""Kind `remote`: the score comes from an HTTP reward server, over the wire of OpenRLHF, of slime or
of NeMo Gym.

The server reads the response exactly as the policy wrote it. Nothing is neutralised: only the
server's tokenizer defines which words are special, and a verifier behind it needs the text that
would be trained on. The server has to guard its own judge.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rmrl.config.schema.fields import at_least, choice, positive
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.judge.asking import conversation_text
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.row_fields import row_fields, row_fields_problems
from rmrl.rewards.remote import DECISION_WIRES, REWARD_WIRES, WIRES, reads_rows
from rmrl.rewards.remote.spec import HTTPSpec, RewardRequest, RowRequest
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Entries of a reward that a server computes."""

    wire: str = choice("openrlhf", among=tuple(WIRES))
    """openrlhf, slime or nemo_gym; openai for a judge that writes text. For a rubric also decisions
    or systemone."""
    url: str = ""
    """Wires openai, decisions, systemone: the base up to and including /v1. Reward wires: the
    address that is posted to."""
    model: str = ""
    """openai, decisions, systemone: the model's name. nemo_gym: the policy's in the posts."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key."""
    headers: dict[str, Any] = field(default_factory=dict)
    """Sent with every request."""
    timeout_s: float = positive(60.0)
    """Deadline of one request, retries and waiting for the rate limit included."""
    max_concurrency: int = at_least(32, least=1)
    """Requests in flight at once."""
    requests_per_minute: float | None = positive(None)
    """null: no limit."""
    max_tries: int = at_least(5, least=1)
    """Tries of one request. Only 429, 5xx and broken connections are retried."""
    batch_size: int = at_least(16, least=1)
    """openrlhf: responses per post."""
    template: str = ""
    """A checkpoint or tokenizer folder, or a hub id: the prompt is sent through its chat template,
    generation prompt included, for servers that split the query at the policy's template. "": the
    reward's rm_prompt as plain text."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Entries put into every post; null removes a default entry."""
    fields: dict[str, Any] = field(default_factory=dict)
    """nemo_gym: entry of the post -> field of the row that it takes: ground_truth, data_source or
    extra_info.<key>. {}: the entries of extra_info.nemo_gym (an object, or its JSON text), or of
    extra_info where it has no such key."""


class RemoteReward(Kind):
    """A reward server that scores every response; deadlines, retries and limits belong to the
    wire."""

    Options: ClassVar[type[Options]] = Options
    scores_on_server: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.remote is not None
        if spec.remote.wire not in REWARD_WIRES:
            kind = "rubric" if spec.remote.wire in DECISION_WIRES else "generative"
            does = "answers questions" if kind == "rubric" else "writes text"
            if spec.remote.wire == "sandbox_fusion":
                kind = "code"
                does = "runs programs"
            raise ConfigError(
                f"reward '{spec.name}': a server of wire {spec.remote.wire} {does} and gives no"
                f" score; use kind: {kind} for it, or one of {', '.join(REWARD_WIRES)}"
            )
        self._context = context
        options = spec.options
        self._template = options.template
        self._fields = options.fields
        self._reads_rows = reads_rows(spec.remote.wire)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """All problems of the entries, as sentences that begin with `where`."""
        return check_server(options, where)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """The server's number per item, or the reason why there is none."""
        if not items:
            return []
        requests = [self._request(item) for item in items]
        outputs: list[ValueOutput] = await self._context.calls_to("remote").submit(
            "reward", requests, deterministic=True
        )
        return list(starmap(_result, zip(outputs, requests, strict=True)))

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The text sent to the server. It tokenizes by itself."""
        return [Rendered(_display(self._request(item)), ()) for item in items]

    def _request(self, item: ScoreItem) -> RewardRequest:
        prompt = conversation_text(item.rm_prompt)
        if self._template:
            tokenizer = self._context.tokenizer(self._template)
            if tokenizer.chat_template:
                # The conversation of the row as the policy read it.
                prompt = tokenizer.apply_chat_template(
                    list(map(dict, item.messages)), tokenize=False, add_generation_prompt=True
                )
        if not self._reads_rows:
            return RewardRequest(prompt, item.response, item.ground_truth)
        turns = tuple((turn["role"], turn["content"]) for turn in item.messages)
        return RowRequest(
            prompt,
            item.response,
            item.ground_truth,
            messages=turns,
            fields=row_fields(item, self._fields),
            finish_reason=item.finish_reason,
        )


def http_spec(options: Options, where: str) -> HTTPSpec:
    """The checked server. Raises ConfigError with all problems."""
    problems = RemoteReward.problems(options, where)
    if problems:
        raise ConfigError(problems)
    return HTTPSpec(
        url=options.url,
        wire=options.wire,
        model=options.model,
        api_key_env=options.api_key_env,
        headers={str(name): str(value) for name, value in options.headers.items()},
        timeout_s=float(options.timeout_s),
        max_concurrency=options.max_concurrency,
        requests_per_minute=options.requests_per_minute,
        max_tries=options.max_tries,
        batch_size=options.batch_size,
        extra_body=dict(options.extra_body),
    )


def check_server(options: Options, where: str) -> list[str]:
    """Problems of wire, address, key and numbers. Each names its entry."""
    problems: list[str] = []
    if options.wire in ("openai", *DECISION_WIRES) and not options.model:
        problems.append(
            f"{where}.model: the wire {options.wire} needs the name of a model, as the server's"
            " /v1/models lists it"
        )
    if options.wire == "openai" and options.template:
        problems.append(
            f"{where}.template={options.template}: a server of the wire openai applies its model's"
            " own template; leave it out"
        )
    if options.api_key_env and not os.environ.get(options.api_key_env, "").strip():
        problems.append(
            f"{where}.api_key_env={options.api_key_env}: this environment variable is not set;"
            " export it with the key"
        )
    problem = url_problem(options.url)
    if problem:
        problems.append(f"{where}.url{problem}")
    elif options.wire == "nemo_gym" and urlsplit(options.url).path in ("", "/"):
        problems.append(
            f"{where}.url={options.url}: a resource server scores at its path /verify; give"
            f" {options.url.rstrip('/')}/verify"
        )
    if options.fields and not reads_rows(options.wire):
        problems.append(
            f"{where}.fields: the wire {options.wire} posts the prompt, the response and the ground"
            " truth alone; leave it out"
        )
    problems += row_fields_problems(options.fields, f"{where}.fields")
    return problems + _waits_too_long(options, where)


def url_problem(url: str) -> str:
    """Problem of a server's address, as the text behind its entry's name; "" without one."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return ": this is no address; give one like http://127.0.0.1:5000/get_reward"
    if parts.username is not None or parts.password is not None:
        return (
            ": an address must not hold a password, it would be printed; use api_key_env or headers"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits:
        return (
            f"={url!r}: give an address that begins with http:// or https://, like"
            " http://127.0.0.1:5000/get_reward"
        )
    return ""


def _waits_too_long(options: Options, where: str) -> list[str]:
    limit = options.requests_per_minute
    wait_s = options.max_concurrency * 60 / (limit or math.inf)
    if limit is None or wait_s <= options.timeout_s:
        return []
    requests = max(1, int(options.timeout_s * limit / 120))
    return [
        f"{where}.requests_per_minute={limit:g}: {options.max_concurrency} requests at once would"
        f" wait up to {wait_s:.0f} s for their turns, longer than timeout_s={options.timeout_s:g};"
        f" give max_concurrency={requests} or timeout_s={math.ceil(2 * wait_s)}"
    ]


def _display(request: RewardRequest) -> str:
    return f"{request.prompt}\n---\n{request.response}"


def _result(output: ValueOutput, request: RewardRequest) -> ScoreResult:
    shared: dict[str, Any] = {
        "rendered": _display(request),
        "tokens_in": output.tokens_in,
        "cached": output.cached,
    }
    if output.failure:
        return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
    if not math.isfinite(output.value):
        return ScoreResult(
            value=None,
            status="provider_error",
            detail=f"The server gave {output.value} as a reward.",
            **shared,
        )
    return ScoreResult(
        value=output.value, extra=dict(output.extra), raw_text=f"{output.value:.6g}", **shared
    )
