"""verifiers' traces (`verifiers.v1`, schema version 1): a line in traces.jsonl, which is an episode
with each agent's trace, or one trace as `Trace.to_record()` returns it.

A trace is a message graph, in which each node names the one before it. The conversation is the path
to the last leaf, as in `Trace.messages`. The response begins at the first message that was sampled,
in this branch or in an earlier one. Only traces with agent.trainable are read where an episode has
some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.data.problems import FieldError
from rmrl.data.traces.stored_trace import TOTAL, Trace, Turn, call, named_results, text_of

LIMITS = (
    "max_turns",
    "max_input_tokens",
    "max_output_tokens",
    "max_total_tokens",
    "compaction_failed",
)
"""The stop conditions of `Trace.is_truncated`."""


class VerifiersTraces:
    name = "verifiers"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a row is an episode or a trace."""
        task = fields.get("task")
        if not isinstance(task, Mapping) or "data" not in task or "ok" not in fields:
            return False
        return isinstance(fields.get("traces"), list) or (
            isinstance(fields.get("nodes"), list) and "agent" in fields
        )

    def traces(self, fields: Mapping[str, Any]) -> list[Trace]:
        """Return the traces from agents that train, or all where none does."""
        if "nodes" in fields:
            return [_trace(fields)]
        every = fields["traces"]
        trainable = [each for each in every if each["agent"].get("trainable", True)]
        if not every:
            # The environment failed before an agent began.
            return [_trace({**fields, "nodes": []})]
        return list(map(_trace, trainable or every))

    def columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task: its key, its data and its answer."""
        task = fields["task"]
        data = task["data"]
        columns: dict[str, Any] = {"extra_info": dict(data)}
        key = task.get("key") or task.get("hash")
        if key:
            columns["prompt_id"] = key
        if isinstance(data.get("answer"), str | int | float):
            columns["ground_truth"] = str(data["answer"])
        return columns


def _trace(record: Mapping[str, Any]) -> Trace:
    nodes: Sequence[Mapping[str, Any]] = record["nodes"]
    path = [nodes[number] for number in last_path(nodes)]
    messages = list(named_results([_turn(node["message"]) for node in path]))
    # A later branch holds the turns of an earlier one as its context.
    written = [without_thinking(node["message"]) for node in nodes if node.get("sampled")]
    own = (n for n, node in enumerate(path) if without_thinking(node["message"]) in written)
    first = next(own, len(path))
    if not path:
        prompt = record["task"]["data"].get("prompt") or ()
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        messages = list(map(_turn, prompt))
        first = len(messages)
    rewards: dict[str, float | None] = {}
    total: float | None = None
    for name, reward in (record.get("rewards") or {}).items():
        rewards[name] = None if reward is None else float(reward["score"])
        if reward is not None:
            total = (total or 0.0) + reward["score"] * reward.get("weight", 1.0)
    rewards[TOTAL] = total
    calls = [each for each in record.get("calls") or () if each.get("error") is None]
    stop = record.get("stop_condition") or ""
    cut = stop in LIMITS or bool(calls and calls[-1].get("finish_reason") == "length")
    status, detail = _standing(record)
    return Trace(
        messages=messages,
        first=first,
        rewards=rewards,
        status=status,
        detail=detail,
        stop=stop,
        tokens=sum(sum(node.get("mask") or ()) for node in nodes) or None,
        cut=cut,
    )


def _standing(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return status and detail: an attempt's error is none where a repeat had success."""
    if record["ok"]:
        return "ok", ""
    errors = record.get("errors") or ()
    detail = "the harness recorded no success"
    if errors:
        detail = f"{errors[-1]['type']}: {errors[-1]['message']}"
    elif record.get("stop_condition"):
        detail = f"the harness stopped with {record['stop_condition']}"
    return ("timeout" if record.get("is_timeout") else "provider_error"), detail


def last_path(nodes: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return which messages a trace's conversation has, as numbers. Raises FieldError where there
    is no last one, and what `path_to` raises."""
    parents = {node.get("parent") for node in nodes}
    leaves = [number for number in range(len(nodes)) if number not in parents]
    if nodes and not leaves:
        raise FieldError(
            "nodes",
            saw="messages whose parents form a circle",
            need="a last message",
            todo="write the trace again",
        )
    return path_to(nodes, leaves[-1]) if leaves else []


def path_to(nodes: Sequence[Mapping[str, Any]], leaf: int) -> list[int]:
    """Return the message numbers from the first to `leaf`. Raises ValueError where the parents form
    a circle."""
    path: list[int] = []
    number: int | None = leaf
    while number is not None:
        path.append(number)
        number = nodes[number].get("parent")
        if len(path) > len(nodes):
            raise ValueError("the parents of the messages form a circle")
    return path[::-1]


def without_thinking(message: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what stays where a harness writes a message into a later context."""
    return message["role"], message.get("content") or "", message.get("tool_calls") or []


def _turn(message: Mapping[str, Any]) -> Turn:
    turn: Turn = {"role": message["role"], "content": text_of(message.get("content"))}
    turn |= {
        name: message[name]
        for name in ("reasoning_content", "tool_call_id", "name")
        if message.get(name)
    }
    calls = [
        call(each["id"], _full_name(each), each["arguments"])
        for each in message.get("tool_calls") or ()
    ]
    if calls:
        turn["tool_calls"] = calls
    return turn


def _full_name(each: Mapping[str, Any]) -> str:
    if each.get("namespace"):
        return f"{each['namespace']}.{each['name']}"
    return each["name"]
