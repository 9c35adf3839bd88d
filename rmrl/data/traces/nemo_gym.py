"""NeMo Gym's rollouts: a line in the file that `gym eval run` writes, with the answer to `/verify`
(`BaseVerifyResponse`): responses_create_params, response (OpenAI's Responses API) and reward.

    mask_sample          true: the reward is no measurement, so the row has a status
    _ng_failure_class    the same, in the file *_failures.jsonl
    reward_components    further rewards, where an environment has several
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmrl.data.traces.stored_trace import TOTAL, Trace, Turn, call, named_results, text_of

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


class NeMoGymRollouts:
    name = "nemo_gym"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a row is an answer to `/verify`."""
        return isinstance(fields.get("responses_create_params"), Mapping) and (
            isinstance(fields.get("response"), Mapping) or "_ng_failure_class" in fields
        )

    def traces(self, fields: Mapping[str, Any]) -> list[Trace]:
        """Return the row's one trace."""
        asked = fields["responses_create_params"]
        response: Mapping[str, Any] = fields.get("response") or {}
        output = response.get("output") or ()
        items = asked.get("input") or ()
        if isinstance(asked.get("input"), str):
            items = [{"role": "user", "content": asked["input"]}]
        prompt = list(_turns(items))
        if asked.get("instructions"):
            prompt.insert(0, {"role": "system", "content": asked["instructions"]})
        answer = list(_turns(output))
        rewards: dict[str, float | None] = {
            name: float(score) for name, score in (fields.get("reward_components") or {}).items()
        }
        if "reward" in fields:
            rewards[TOTAL] = None if fields["reward"] is None else float(fields["reward"])
        cut = (response.get("incomplete_details") or {}).get("reason") or ""
        status, detail = _standing(fields, response)
        tokens = sum(len(item.get("generation_token_ids") or ()) for item in output)
        usage = response.get("usage") or {}
        return [
            Trace(
                messages=list(named_results([*prompt, *answer])),
                first=len(prompt),
                rewards=rewards,
                status=status,
                detail=detail,
                stop=cut or response.get("status") or "",
                tokens=tokens or usage.get("output_tokens"),
                cut=cut == "max_output_tokens",
            )
        ]

    def columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's number, and what the row has beside the trace as extra_info."""
        own = ("responses_create_params", "response", "reward")
        columns: dict[str, Any] = {
            "extra_info": {name: value for name, value in fields.items() if name not in own}
        }
        if fields.get("_ng_task_index") is not None:
            columns["prompt_id"] = str(fields["_ng_task_index"])
        return columns


def _standing(fields: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, str]:
    kind = fields.get("_ng_failure_class") or fields.get("failure_kind") or ""
    if fields.get("mask_sample") or fields.get("_ng_failure_class"):
        reason = fields.get("failure_reason") or "the environment masked the sample"
        detail = f"{kind}: {reason}" if kind else reason
        return ("timeout" if "timeout" in kind else "provider_error"), detail
    error = response.get("error")
    if error or response.get("status") == "failed":
        return "provider_error", f"the response failed: {json.dumps(error)}"
    return "ok", ""


def _turns(items: Iterable[Mapping[str, Any]]) -> Iterator[Turn]:
    """Yield the messages in the Responses API's items: thinking, text and calls in one answer
    become one assistant turn, which ends at the first text, call result or other role behind it."""
    turn: Turn = {}
    for item in items:
        kind = item.get("type") or "message"
        starts = kind == "reasoning" or item.get("role") == "assistant"
        # A text or a thought behind a text or a call begins the next answer.
        if turn and (
            kind in _RESULTS
            or (kind == "message" and (not starts or turn["content"] or "tool_calls" in turn))
            or (kind == "reasoning" and (turn["content"] or "tool_calls" in turn))
        ):
            yield turn
            turn = {}
        if kind in _RESULTS:
            yield {
                "role": "tool",
                "content": text_of(item.get("output")),
                "tool_call_id": item.get("call_id"),
            }
        elif kind == "message" and item.get("role") != "assistant":
            yield {"role": item["role"], "content": text_of(item.get("content"))}
        elif kind in ("message", "reasoning", *_CALLS):
            turn = turn or {"role": "assistant", "content": ""}
            _extend(turn, kind, item)
    if turn:
        yield turn


def _extend(turn: Turn, kind: str, item: Mapping[str, Any]) -> None:
    if kind == "message":
        turn["content"] = text_of(item.get("content"))
    elif kind == "reasoning":
        thought = text_of(item.get("content") or item.get("summary"))
        turn["reasoning_content"] = turn.get("reasoning_content", "") + thought
    else:
        turn.setdefault("tool_calls", []).append(
            call(item.get("call_id"), item["name"], item[_CALLS[kind]])
        )
