"""The judge models themselves, behind OpenAI's interface of chats.

    POST /v1/chat/completions    {"model", "messages", ...} -> choices; with "stream" as SSE
    GET  /v1/models              the models' names

The models are those of `rmrl.serve.judge_models`. Judges on servers of others are not offered.
Requests share the engines with the scoring.

What a request leaves out is as in the judge's `sampling`, structured output aside. An engine
answers whole texts, so a stream holds each sample in one piece.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from rmrl.api import GenerateRequest, TextOutput, engine_facts, generate_requests, tokenize
from rmrl.errors import ConfigError, RewardFunctionError
from rmrl.serve.judge_models import JudgeModel, check_answered, judge_models, model_named
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.wires import FIRST_ERROR, WireRoute
from rmrl.serve.wires.conversations import text_of
from rmrl.types import Sampling

MOST_SAMPLES = 128
MOST_REGEX = 10_000
"""Characters of a regular expression, of which a few may take milliseconds to compile."""

_REFUSED = (
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "audio",
)
"""Fields that would change the answer and that no engine here has; refused unless empty."""


class Turn(BaseModel):
    """A message."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[dict[str, Any]], FIRST_ERROR] | None


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class ResponseFormat(BaseModel):
    """Form of the text."""

    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StructuredOutputs(BaseModel):
    """vLLM's entries for the form of the text."""

    model_config = ConfigDict(extra="allow")

    choice: Annotated[list[str], FIRST_ERROR] | None = None
    regex: str | None = Field(default=None, max_length=MOST_REGEX)


class ChatBody(BaseModel):
    """A request for a chat's samples. Further fields have no effect."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(examples=["judge"])
    messages: Annotated[list[Turn], FIRST_ERROR] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    n: int | None = Field(default=None, ge=1, le=MOST_SAMPLES)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: str | Annotated[list[str], FIRST_ERROR] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None


class ChatAnswer(BaseModel):
    """OpenAI's chat.completion."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]


class ModelsAnswer(BaseModel):
    """OpenAI's list of models."""

    object: str
    data: list[dict[str, Any]]


class ChatWire:
    """Implements `ServeWire`."""

    def __init__(self) -> None:
        self._models: dict[str, JudgeModel] = {}
        self._since = int(time.time())

    def routes(self, service: Service) -> Sequence[WireRoute]:
        """See `ServeWire.routes`. Raises ConfigError where no reward has an engine that writes."""
        self._models = judge_models(service, wire="chat")
        return [
            WireRoute(
                path="/v1/chat/completions",
                body=ChatBody,
                answer=self._answer,
                answers=ChatAnswer,
                summary="Samples of a judge model in OpenAI's form",
            ),
            WireRoute(
                path="/v1/models",
                body=None,
                answer=self._list,
                answers=ModelsAnswer,
                summary="Names of the judge models",
                methods=("GET",),
            ),
        ]

    async def _list(self, body: None, service: Service) -> dict[str, Any]:
        del body, service
        data: list[dict[str, Any]] = []
        for name in self._models:
            entry = {"id": name, "object": "model", "created": self._since, "owned_by": "rmrl"}
            data.append(entry)
        return {"object": "list", "data": data}

    async def _answer(self, body: ChatBody, service: Service) -> Any:
        model = model_named(self._models, body.model)
        _check_supported(body)
        await asyncio.to_thread(_check_form, body, model)
        request = await asyncio.to_thread(_request, body, model, service)
        try:
            (outputs,) = await service.ask(model.spec.name, "generate", [request], role=model.role)
        except ConfigError as error:
            raise RequestError(422, f"the engine refuses this request: {error}") from error
        for output in outputs:
            check_answered(output, field="messages")
        head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model.name,
        }
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(head, outputs, with_usage=with_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        choices: list[dict[str, Any]] = []
        for index, output in enumerate(outputs):
            message = {"role": "assistant", "content": output.text}
            choices.append(
                {
                    "index": index,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": output.finish_reason,
                }
            )
        return {**head, "object": "chat.completion", "choices": choices, "usage": _usage(outputs)}


def _check_supported(body: ChatBody) -> None:
    """Raise RequestError for a field that would change the answer and cannot."""
    for name in _REFUSED:
        if (body.model_extra or {}).get(name):
            raise RequestError(
                422, f"{name} is not supported by these engines; leave it out", field=name
            )


def _check_form(body: ChatBody, model: JudgeModel) -> None:
    """Raise RequestError for a form of the text that the model's engine cannot give it."""
    forms: list[str] = []
    structure = body.structured_outputs or StructuredOutputs()
    if structure.choice:
        forms.append("structured_outputs.choice")
    if structure.regex:
        forms.append("structured_outputs.regex")
    if body.response_format is not None and body.response_format.type != "text":
        forms.append("response_format")
    if not forms:
        return
    engine = model.spec.engines[model.role].name
    if not engine_facts(engine).structured_output:
        raise RequestError(
            422,
            f"the engine of {model.name} ({engine}) cannot restrict the form of its text; leave"
            f" {forms[0]} out",
            field=forms[0],
        )
    if len(forms) > 1:
        raise RequestError(
            422, f"{' and '.join(forms)} exclude each other; send one of them", field=forms[1]
        )
    try:
        re.compile(structure.regex or "")
    except (re.error, RecursionError, OverflowError) as error:
        raise RequestError(
            422,
            f"structured_outputs.regex is no regular expression ({error}); correct it",
            field="structured_outputs.regex",
        ) from error


def _request(body: ChatBody, model: JudgeModel, service: Service) -> GenerateRequest:
    """The request of the engine. Raises RequestError for messages that cannot be read or are too
    long."""
    engine = model.spec.engines[model.role]
    messages: list[dict[str, str]] = [
        {"role": turn.role, "content": text_of(turn.content)} for turn in body.messages
    ]
    tokenizer = service.scorer.tokenizer(engine.path)
    try:
        rendered = tokenize(messages, tokenizer, generation_prompt=True, where="the request")
    except RewardFunctionError as error:
        raise RequestError(422, str(error), field="messages") from error
    room = model.check_length(len(rendered.token_ids), field="messages")
    (request,) = generate_requests([rendered], _sampling(body, model.sampling, room))
    return request


def _sampling(body: ChatBody, usual: Sampling, room: int) -> Sampling:
    """The sampling of a request. `room`: tokens that fit behind the messages."""
    most = body.max_completion_tokens or body.max_tokens or usual.max_tokens
    stop = usual.stop
    if body.stop is not None:
        stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    form = body.response_format
    json_schema = ""
    if form is not None and form.type == "json_schema":
        json_schema = json.dumps((form.json_schema or {}).get("schema") or {"type": "object"})
    elif form is not None and form.type == "json_object":
        json_schema = json.dumps({"type": "object"})
    structure = body.structured_outputs or StructuredOutputs()
    return Sampling(
        max_tokens=min(most, room),
        temperature=usual.temperature if body.temperature is None else body.temperature,
        top_p=usual.top_p if body.top_p is None else body.top_p,
        top_k=usual.top_k if body.top_k is None else body.top_k or -1,
        n=body.n or 1,
        seed=usual.seed if body.seed is None else body.seed,
        stop=tuple(text for text in stop if text),
        ignore_eos=body.ignore_eos,
        choice=tuple(structure.choice or ()),
        regex=structure.regex or "",
        json_schema=json_schema,
    )


def _usage(outputs: Sequence[TextOutput]) -> dict[str, int]:
    prompt = outputs[0].tokens_in
    written = sum(output.tokens_out for output in outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


async def _events(
    head: Mapping[str, Any], outputs: Sequence[TextOutput], *, with_usage: bool
) -> AsyncIterator[bytes]:
    """Server-sent events: for each sample its role, its text, its end; then the usage and DONE."""
    chunk = {**head, "object": "chat.completion.chunk"}
    for index, output in enumerate(outputs):
        steps: list[tuple[dict[str, Any], str | None]] = [
            ({"role": "assistant", "content": ""}, None),
            ({"content": output.text}, None),
            ({}, output.finish_reason),
        ]
        for delta, finish_reason in steps:
            choice = {
                "index": index,
                "delta": delta,
                "logprobs": None,
                "finish_reason": finish_reason,
            }
            yield _event({**chunk, "choices": [choice]})
    if with_usage:
        yield _event({**chunk, "choices": [], "usage": _usage(outputs)})
    yield b"data: [DONE]\n\n"


def _event(content: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()
