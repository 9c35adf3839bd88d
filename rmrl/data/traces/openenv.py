"""OpenEnv 0.10's traces: `TrainingTrace.model_dump()` (turns), or what
its Harbor export writes (trace_entries, with the task's reward).

Each turn is one call to the engine, with the messages it was asked with. Where a call's messages
continue those before, they are one conversation. Where the harness rewrote them, a new conversation
begins. The last one is read, as in verifiers' traces. The trace itself knows no reward and no
failure. `reward` and `rewards` beside it are the trace's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.data.traces.stored_trace import TOTAL, Trace, Turn, named_results, text_of

_KEPT = ("reasoning_content", "tool_call_id", "name", "tool_calls")
_NEEDED = ("completion_token_ids", "loss_mask", "request", "response")


class OpenEnvTraces:
    name = "openenv"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a row holds an engine's calls with their tokens."""
        entries = _entries(fields)
        return isinstance(entries, list) and all(
            isinstance(entry, Mapping) and all(name in entry for name in _NEEDED)
            for entry in entries
        )

    def traces(self, fields: Mapping[str, Any]) -> list[Trace]:
        """Return the row's last conversation."""
        entries = _entries(fields)
        talk: list[Turn] = []
        first = 0
        tokens = 0
        reason = ""
        for entry in entries:
            asked = list(map(_turn, entry["request"]["messages"]))
            (choice,) = entry["response"]["choices"]
            if not talk or asked[: len(talk)] != talk:
                first = len(asked)
                tokens = 0
            talk = [*asked, _turn({"role": "assistant", **choice["message"]})]
            tokens += sum(entry["loss_mask"])
            reason = choice.get("finish_reason") or ""
        rewards = {
            name: None if score is None else float(score)
            for name, score in (fields.get("rewards") or {}).items()
        }
        if "reward" in fields:
            rewards[TOTAL] = None if fields["reward"] is None else float(fields["reward"])
        status, detail = "ok", ""
        if not talk:
            status, detail = "provider_error", "the trace holds no turn"
        return [
            Trace(
                messages=list(named_results(talk)),
                first=first,
                rewards=rewards,
                status=status,
                detail=detail,
                stop=reason,
                tokens=tokens or None,
                cut=reason == "length",
            )
        ]

    def columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's id."""
        if not fields.get("task_id"):
            return {}
        return {"prompt_id": fields["task_id"]}


def _entries(fields: Mapping[str, Any]) -> Any:
    if fields.get("schema_version") != 1:
        return None
    return fields.get("trace_entries", fields.get("turns"))


def _turn(message: Mapping[str, Any]) -> Turn:
    kept = {name: message[name] for name in _KEPT if message.get(name)}
    return {"role": message["role"], "content": text_of(message.get("content")), **kept}
