"""Conversations with tools in OpenAI's chat completion form: a column `messages` in which an
assistant turn calls a tool, without a column `prompt`.

The response begins at the first assistant turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.data.csv_cells import is_message_list
from rmrl.data.traces.stored_trace import Trace, named_results, text_of


class ChatConversations:
    name = "chat"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a row has such a conversation."""
        talk: Any = fields.get("messages")
        if "prompt" in fields or "response" in fields or "responses" in fields:
            return False
        return is_message_list(talk) and any(turn.get("tool_calls") for turn in talk)

    def traces(self, fields: Mapping[str, Any]) -> list[Trace]:
        """Return the row's one trace."""
        talk = [
            {
                **{name: value for name, value in turn.items() if value is not None},
                "content": text_of(turn.get("content")),
            }
            for turn in fields["messages"]
        ]
        roles = [turn["role"] for turn in talk]
        return [Trace(messages=list(named_results(talk)), first=roles.index("assistant"))]

    def columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return no further columns."""
        return {}
