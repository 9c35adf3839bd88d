"""Wire of NeMo Gym's resource servers: their verifiers as rewards.

    POST <server>/verify {"responses_create_params": {"input": [...]}, "response": {...}, ...}
    -> the same object with "reward", and "reward_components" where the server has several

`response` is a response object of OpenAI's Responses API with one message, the policy's text.
The entries that a verifier grades by (`expected_answer`, `verifier_metadata`, ...) are the row's
own `fields`. The score is `reward`. The components, and all entries of the answer that were not in
the post, become columns. An answer with `mask_sample` has no valid reward (the judge or sandbox
behind the server failed) and is a missing verdict.

Source of the fields: nemo_gym/base_resources_server.py of NVIDIA-NeMo/Gym (`BaseVerifyRequest`,
`BaseVerifyResponse`, `BaseMultiRewardVerifyResponse`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec, RowRequest
from rmrl.rewards.remote.values import check_method, failed, value_output, with_extra
from rmrl.together import together

_OF_THE_ANSWER = ("reward", "reward_components", "mask_sample")


class NemoGymWire:
    """Wire that posts one response at a time, with its row."""

    reads_rows: ClassVar[bool] = True

    def __init__(self, spec: HTTPSpec, client: HTTPClient | None = None) -> None:
        self._spec = spec
        self._client = client or HTTPClient(spec)

    async def submit(self, method: str, requests: Sequence[RowRequest]) -> list[ValueOutput]:
        """See `Wire.submit`. The only method is "reward"."""
        check_method(method, "nemo_gym")
        return await together(map(self._one, requests))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _one(self, request: RowRequest) -> ValueOutput:
        body = with_extra(verify_request(request, self._spec.model), self._spec)
        try:
            answer = await self._client.post(body)
        except RemoteCallError as error:
            return failed(error.failure, error.detail)
        return self._value(answer, body)

    def _value(self, answer: Any, body: Mapping[str, Any]) -> ValueOutput:
        url = self._client.shown_url
        if not isinstance(answer, Mapping) or "reward" not in answer:
            text = self._client.shown(repr(answer))
            return failed("provider_error", f"{url} answered without a 'reward': {text}.")
        if answer.get("mask_sample"):
            kind = answer.get("failure_kind") or "no failure_kind"
            reason = self._client.shown(str(answer.get("failure_reason") or "no reason"))
            return failed(
                "provider_error",
                f"{url} marks the sample as not measured (mask_sample, {kind}): {reason}.",
            )
        columns: dict[str, Any] = {
            str(name): value
            for name, value in answer.items()
            if name not in body and name not in _OF_THE_ANSWER and value is not None
        }
        components = answer.get("reward_components")
        if isinstance(components, Mapping):
            for name, value in components.items():
                columns[str(name)] = value
        return value_output(answer["reward"], url, tuple(columns.items()))


def verify_request(request: RowRequest, model: str) -> dict[str, Any]:
    """Build the body of the post, `extra_body` aside. The row's `fields` may bring a
    `responses_create_params` of their own. Its `input` is the prompt where it has none."""
    body: dict[str, Any] = json.loads(request.fields)
    params = body.get("responses_create_params")
    turns = [{"role": role, "content": text} for role, text in request.messages]
    if not isinstance(params, Mapping):
        params = {}
    body["responses_create_params"] = {"input": turns, **params}
    body["response"] = response_object(request, model)
    return body


def response_object(request: RowRequest, model: str) -> dict[str, Any]:
    """Build the response of OpenAI's Responses API that holds the policy's text: every field that
    the API's own schema requires, and no others that a verifier could read."""
    status = "incomplete" if request.finish_reason == "length" else "completed"
    text = {"type": "output_text", "text": request.response, "annotations": []}
    message = {
        "id": "msg_0",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [text],
    }
    response: dict[str, Any] = {
        "id": "resp_0",
        "object": "response",
        "created_at": 0,
        "model": model or "policy",
        "status": status,
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
    }
    if status == "incomplete":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return response
