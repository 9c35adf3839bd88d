"""Engine outputs as bytes and back: JSON, compressed where that pays; never pickle, so reading a
file cannot run it.

{"text": [[text, finish_reason, tokens_in, tokens_out, [choice logprobs, null = -inf]], ...]}
  one entry per sample
{"value": 1.5, "in": 7, "extra": [[name, value], ...]}
{"logits": [[...], ...], "in": 7}
{"vector": "<base64 of little-endian float32>", "in": 7}
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rmrl.inference.scoring_base import EmbedOutput, TextOutput, TokenOutput, ValueOutput

Output = TextOutput | ValueOutput | TokenOutput | EmbedOutput
Result = list[TextOutput] | ValueOutput | TokenOutput | EmbedOutput
"""What an engine answers to one request."""

_COMPRESS_FROM_BYTES = 512
_ZLIB_START = b"\x78"
"""First byte of a zlib stream; JSON of ours starts with a brace."""


def encode(result: Result) -> bytes | None:
    """None for what must not be kept: failures, numbers that are none, and extra columns that JSON
    cannot hold."""
    if not _is_sound(result):
        return None
    try:
        plain = json.dumps(
            _to_json(result), separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except (TypeError, ValueError):  # an extra column, or a text with half a surrogate pair
        return None
    packed = zlib.compress(plain, 6) if len(plain) >= _COMPRESS_FROM_BYTES else plain
    return packed if len(packed) < len(plain) else plain


def decode(stored: bytes) -> Result | None:
    """What `encode` was given, marked `cached`; None for bytes it cannot have written."""
    try:
        return _from_json(read_json(stored))
    except (ValueError, TypeError, KeyError, zlib.error):
        return None


def read_json(stored: bytes) -> dict[str, Any]:
    """The JSON object itself. Raises ValueError or zlib.error."""
    return json.loads(zlib.decompress(stored) if stored[:1] == _ZLIB_START else stored)


def _is_sound(result: Result) -> bool:
    outputs: Sequence[Output] = result if isinstance(result, list) else [result]
    return (
        bool(outputs)
        and not any(output.failure for output in outputs)
        and all(_numbers_are_sound(output) for output in outputs)
    )


def _numbers_are_sound(output: Output) -> bool:
    if isinstance(output, TextOutput):
        return all(math.isfinite(p) or p == -math.inf for p in output.choice_logprobs)
    if isinstance(output, ValueOutput):
        return math.isfinite(output.value)
    if isinstance(output, TokenOutput):
        return all(math.isfinite(x) for row in output.logits for x in row)
    return len(output.vector) > 0 and all(map(math.isfinite, output.vector))


def _to_json(result: Result) -> dict[str, Any]:
    if isinstance(result, list):
        return {
            "text": [
                [o.text, o.finish_reason, o.tokens_in, o.tokens_out, _finite(o.choice_logprobs)]
                for o in result
            ]
        }
    if isinstance(result, ValueOutput):
        return {"value": result.value, "in": result.tokens_in} | (
            {"extra": result.extra} if result.extra else {}
        )
    if isinstance(result, TokenOutput):
        return {"logits": result.logits, "in": result.tokens_in}
    return {
        "vector": base64.b64encode(np.asarray(result.vector, dtype="<f4").tobytes()).decode(),
        "in": result.tokens_in,
    }


def _finite(logprobs: Iterable[float]) -> list[float | None]:
    return [p if math.isfinite(p) else None for p in logprobs]


def _from_json(found: dict[str, Any]) -> Result:
    if "text" in found:
        return [_text(*fields) for fields in found["text"]]
    if "value" in found:
        extra = tuple((name, value) for name, value in found.get("extra", ()))
        return ValueOutput(float(found["value"]), found["in"], extra=extra, cached=True)
    if "logits" in found:
        return TokenOutput(
            tuple(tuple(map(float, row)) for row in found["logits"]), found["in"], cached=True
        )
    vector = np.frombuffer(base64.b64decode(found["vector"], validate=True), dtype="<f4")
    return EmbedOutput(tuple(vector.tolist()), found["in"], cached=True)


def _text(
    text: str, finish_reason: str, tokens_in: int, tokens_out: int, logprobs: Sequence[float | None]
) -> TextOutput:
    choice = tuple(-math.inf if p is None else float(p) for p in logprobs)
    return TextOutput(
        text, finish_reason, tokens_in, tokens_out, choice_logprobs=choice, cached=True
    )
