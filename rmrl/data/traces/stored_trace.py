"""A trace in the form that every format is read into, and the columns that it becomes.

    prompt                  messages before the response
    response, responses     the response's messages with tool calls and tool results; "" where the
                            harness failed before the first assistant turn
    prompt_id               the task, where the trace names it
    finish_reason           "length" where a limit ended the trace, else "stop"
    response_tokens         number of sampled tokens, where the trace has them
    env.status              "ok", "timeout" or "provider_error"
    env.detail              what the harness recorded, where the status is not "ok"
    env.stop                why the trace ended, in the harness's words
    score_env.<name>        the trace's own reward <name>; null without one, and in a failed trace
    status_env.<name>       "ok", or the missing reward's status
    detail_env.<name>       the same in words

`score_env.reward` is the sum that the harness trains on. With several traces in a row each column
here but the first and `prompt_id` is a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmrl.data.problems import FieldError

ENV = "env."
"""A reward `env.<name>` is the environment's reward <name>, without an entry."""
STATUS, DETAIL, STOP = f"{ENV}status", f"{ENV}detail", f"{ENV}stop"
SCORE = f"score_{ENV}"
TOTAL = "reward"

Turn = dict[str, Any]
"""A message in the form of OpenAI's chat completions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One conversation that a policy had with its tools and users, and what its harness
    recorded."""

    messages: Sequence[Turn]
    first: int
    """Number of the response's first message."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """The trace's own rewards. None: not computed."""
    status: str = "ok"
    detail: str = ""
    stop: str = ""
    tokens: int | None = None
    """Number of sampled tokens."""
    cut: bool = False
    """Whether a limit ended the trace."""


class TraceFormat(Protocol):
    """A trace format."""

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a row has the format's fields."""
        ...

    def traces(self, fields: Mapping[str, Any]) -> list[Trace]:
        """Return a row's traces. Raises KeyError, TypeError, ValueError, IndexError or
        AttributeError for malformed fields, FieldError for a row that cannot be scored."""
        ...

    def columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row's further columns."""
        ...


def row_of(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the columns that hold these traces. Raises FieldError where they begin
    differently."""
    prompts = [list(trace.messages[: trace.first]) for trace in traces]
    if any(prompt != prompts[0] for prompt in prompts):
        raise FieldError(
            "traces",
            saw="traces that begin with different messages",
            need="one prompt per row",
            todo="write each agent's trace on its own line (trace.to_record())",
        )
    values = list(map(_values, traces))
    row: dict[str, Any] = {"prompt": prompts[0] or "(the trace holds no prompt)"}
    if len(traces) == 1:
        row |= values[0]
        row["response"] = row.pop("response")
    else:
        for name in dict.fromkeys(name for each in values for name in each):
            row[name] = [each.get(name) for each in values]
        row["responses"] = row.pop("response")
    return {name: value for name, value in row.items() if value is not None or ENV in name}


def _values(trace: Trace) -> dict[str, Any]:
    response: Any = list(trace.messages[trace.first :])
    if not any(turn["role"] == "assistant" for turn in response):
        response = ""
    values: dict[str, Any] = {
        "response": response,
        "finish_reason": "length" if trace.cut else "stop",
        "response_tokens": trace.tokens,
        STATUS: trace.status,
        DETAIL: trace.detail,
        STOP: trace.stop,
    }
    for name, score in trace.rewards.items():
        status = trace.status
        value = score
        if status != "ok":
            value = None
        elif score is None:
            status = "provider_error"
        values[f"{SCORE}{name}"] = value
        values[f"status_{ENV}{name}"] = status
        values[f"detail_{ENV}{name}"] = trace.detail
    return values


def text_of(content: Any) -> str:
    """Return a message's text: its text parts, and a mark such as [image_url] for others."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(
        str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]" for part in content
    )


def call(id_: Any, name: Any, arguments: Any) -> Turn:
    """Return a tool call as in OpenAI's chat completions."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def named_results(messages: Sequence[Turn]) -> Iterator[Turn]:
    """Yield the messages, with the tool's name in each result whose call is there."""
    names: dict[Any, Any] = {}
    for turn in messages:
        for each in turn.get("tool_calls") or ():
            names[each.get("id")] = (each.get("function") or each).get("name")
        name = None
        if turn["role"] == "tool":
            name = names.get(turn.get("tool_call_id"))
        if name and not turn.get("name"):
            yield {**turn, "name": name}
        else:
            yield turn
