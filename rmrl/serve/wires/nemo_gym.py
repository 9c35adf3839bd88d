"""A resource server of NeMo Gym: agents post a finished episode to it.

    POST /verify {"responses_create_params": {"input"}, "response": {"output"}, ...}
    -> the same fields, "reward", "reward_components", "mask_sample", "failure_kind",
       "failure_reason", "missing_components"
    POST /seed_session {...} -> {}; episodes have no state here

The prompt is `input`, the response the last message of `output`; earlier messages and tool calls
belong to the prompt. The reference answer is `ground_truth`, else `expected_answer`, else
`verifier_metadata.expected_answer`. The other fields are the row's columns.

NeMo Gym requires a number as reward and has its own form of a missing one: `mask_sample` true, so
that the sample does not count, `failure_kind` and `failure_reason`, and `_ng_failure_class`, by
which its collection stores the episode as failed and repeats it. `reward` is 0 there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rmrl.serve.service import Service
from rmrl.serve.wires import FIRST_ERROR, WireRoute
from rmrl.serve.wires.conversations import parted, text_of
from rmrl.serve.wires.trainer_rows import GROUND_TRUTH, row_of, scored_rows, without_verdict

_PLACES = {"": "body", "prompt": "responses_create_params.input", "response": "response.output"}
_OWN_FIELDS = ("responses_create_params", "response", "expected_answer")

Items = Annotated[list[dict[str, Any]], FIRST_ERROR]


class CreateParams(BaseModel):
    """Parameters of OpenAI's Responses API, of which `input` is read."""

    model_config = ConfigDict(extra="allow")

    input: str | Items = Field(examples=["How much is 2 + 2?"])


class PolicyResponse(BaseModel):
    """A response of OpenAI's Responses API, of which `output` is read."""

    model_config = ConfigDict(extra="allow")

    output: Items = Field(
        examples=[
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "#### 4"}],
                }
            ]
        ]
    )


class VerifyBody(BaseModel):
    """A finished episode. Further fields are those of the task."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: CreateParams
    response: PolicyResponse


class VerifyAnswer(VerifyBody):
    """The fields of the request with the reward."""

    reward: float
    reward_components: dict[str, float]
    missing_components: dict[str, str]
    """Components without a verdict, and why."""
    mask_sample: bool
    failure_kind: str | None
    failure_reason: str | None


class SeedBody(BaseModel):
    """Whatever an agent sends before an episode."""

    model_config = ConfigDict(extra="allow")


class NemoGymWire:
    """Implements `ServeWire`."""

    def routes(self, service: Service) -> Sequence[WireRoute]:
        del service
        return [
            WireRoute(
                path="/verify",
                body=VerifyBody,
                answer=answer,
                answers=VerifyAnswer,
                summary="NeMo Gym's verification of a finished episode",
            ),
            WireRoute(
                path="/seed_session",
                body=SeedBody,
                answer=seeded,
                summary="NeMo Gym's begin of an episode; nothing is kept",
            ),
        ]


async def seeded(body: SeedBody, service: Service) -> dict[str, Any]:
    """Return the empty answer of a server that keeps no state."""
    del body, service
    return {}


async def answer(body: VerifyBody, service: Service) -> dict[str, Any]:
    """Return the request's fields with the reward and each component's score."""
    # Further fields are JSON values already, of which a dump would be a copy.
    fields: dict[str, Any] = {
        "responses_create_params": body.responses_create_params.model_dump(),
        "response": body.response.model_dump(),
        **(body.model_extra or {}),
    }
    further = {name: value for name, value in fields.items() if name not in _OWN_FIELDS}
    reference = further.pop(GROUND_TRUTH, None)
    if reference is None:
        reference = fields.get("expected_answer")
    if reference is None and isinstance(further.get("verifier_metadata"), dict):
        reference = further["verifier_metadata"].get("expected_answer")
    before, response = parted(turns_of(body.response.output))
    prompt: Any = body.responses_create_params.input
    if isinstance(prompt, list):
        prompt = turns_of(prompt)
    row = row_of(service, prompt, response, ground_truth=reference, columns=further, before=before)
    (scored,) = await scored_rows(service, [row], places=_PLACES)
    components: dict[str, float] = {}
    for name in service.names:
        score = scored.columns[f"score_{name}"]
        if score is not None:
            components[name] = score
    missing = without_verdict(scored, service.names)
    return {
        **fields,
        "reward_components": components,
        "missing_components": missing,
        **_reward_fields(scored.columns["reward"], missing),
    }


def _reward_fields(reward: float | None, missing: Mapping[str, str]) -> dict[str, Any]:
    """The reward with NeMo Gym's marks of a measurement that is not valid."""
    if reward is not None:
        return {
            "reward": reward,
            "mask_sample": False,
            "failure_kind": None,
            "failure_reason": None,
        }
    reasons = [f"{name} {reason}" for name, reason in missing.items()]
    reason = "; ".join(reasons) or "the response has no reward"
    unparseable = any(why.startswith("unparseable") for why in missing.values())
    return {
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": "judge_unparseable" if unparseable else "verifier_error",
        "failure_reason": reason,
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": reason,
    }


def turns_of(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return items of the Responses API as turns: messages, calls of functions and their outputs;
    others, such as reasoning, are left out."""
    turns: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            role = item.get("role", "assistant")
            turns.append({"role": role, "content": text_of(item.get("content"))})
        elif kind == "function_call":
            call = f"{item.get('name')}({item.get('arguments')})"
            turns.append({"role": "assistant", "content": call})
        elif kind == "function_call_output":
            turns.append({"role": "tool", "content": text_of(item.get("output"))})
    return turns
