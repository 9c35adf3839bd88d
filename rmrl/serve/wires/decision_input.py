"""What OpenAI's and vLLM's decisions are about, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.serve.problems import RequestError
from rmrl.serve.wires.conversations import text_of


def state_text(state: Any) -> str:
    """Return text as it is, and everything else as JSON."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


def parts_text(content: Any, *, field: str) -> str:
    """Return a text, or the texts and the JSON in a list of parts, a line each. Raises RequestError
    for a part that holds neither. `field`: its place in the body."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return state_text(content)
    lines: list[str] = []
    for number, part in enumerate(content):
        if not isinstance(part, Mapping):
            return state_text(content)
        if part.get("type") == "input_json":
            lines.append(state_text(part.get("data")))
        elif part.get("type", "input_text") in ("input_text", "output_text", "text", "refusal"):
            lines.append(text_of([part]))
        else:
            raise RequestError(
                422,
                f"a part of type {part.get('type')!r} cannot be read; send input_text or"
                " input_json",
                field=f"{field}[{number}].type",
            )
    return "\n".join(lines)


def input_text(entries: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the messages, calls and outputs of a decision's input, one block each. Raises
    RequestError."""
    if isinstance(entries, str):
        return entries
    blocks: list[str] = []
    for number, entry in enumerate(entries):
        where = f"input[{number}]"
        if "role" in entry:
            content = parts_text(entry.get("content"), field=f"{where}.content")
            blocks.append(f"{entry['role']}: {content}")
        elif "arguments" in entry or "input" in entry:
            given = entry.get("arguments", entry.get("input"))
            blocks.append(f"call of {entry.get('name')}: {state_text(given)}")
        elif "output" in entry:
            output = parts_text(entry["output"], field=f"{where}.output")
            blocks.append(f"output: {output}")
        else:
            raise RequestError(422, "give a message, a call or the output of a call", field=where)
    return "\n\n".join(blocks)
