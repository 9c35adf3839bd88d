"""Engine outputs as bytes and back: JSON, compressed where that pays. Never pickle, so reading a
file cannot run it.

    {"text": [[text, finish_reason, tokens_in, tokens_out, [choice logprobs, null = -inf]], ...]}
    {"value": 1.5, "in": 7, "extra": [[name, value], ...]}
    {"labels": [...], "in": 7}
    {"logits": [[...], ...], "in": 7}
    {"logprobs": "<base64 of little-endian float32>", "in": 7}
    {"vector": "<base64 of little-endian float32>", "in": 7}

"text" has one entry per sample.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from rmrl.inference.reward_engine_base import (
    EmbedOutput,
    LabelOutput,
    LogprobsOutput,
    TextOutput,
    TokenOutput,
    ValueOutput,
)

Output = TextOutput | ValueOutput | LabelOutput | TokenOutput | LogprobsOutput | EmbedOutput
Result = list[TextOutput] | ValueOutput | LabelOutput | TokenOutput | LogprobsOutput | EmbedOutput
"""An engine's answer to one request."""

_COMPRESS_FROM_BYTES = 512
_ZLIB_START = b"\x78"
"""First byte of a zlib stream. The JSON here starts with a brace."""


def encode(result: Result) -> bytes | None:
    """Return the bytes to store, None for failures, numbers that are not finite, and extra columns
    that JSON cannot hold."""
    outputs: Sequence[Output] = result if isinstance(result, list) else [result]
    if not outputs or not all(map(_is_sound, outputs)):
        return None
    try:
        text = json.dumps(
            _to_json(result), separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        plain = text.encode()
    except (TypeError, ValueError):
        # An extra column, or a text with half a surrogate pair.
        return None
    if len(plain) < _COMPRESS_FROM_BYTES:
        return plain
    return min(plain, zlib.compress(plain, 6), key=len)


def decode(stored: bytes) -> Result | None:
    """Return the result that was encoded, marked `cached`; None for bytes that are no encoded
    result."""
    try:
        return _from_json(read_json(stored))
    except (ValueError, TypeError, KeyError, zlib.error):
        return None


def read_json(stored: bytes) -> dict[str, Any]:
    """Return the JSON object itself. Raises ValueError or zlib.error."""
    if stored[:1] == _ZLIB_START:
        stored = zlib.decompress(stored)
    return json.loads(stored)


def _is_sound(output: Output) -> bool:
    """Return whether the output is no failure and its numbers are finite."""
    if output.failure:
        return False
    if isinstance(output, TextOutput):
        return all(math.isfinite(p) or p == -math.inf for p in output.choice_logprobs)
    if isinstance(output, ValueOutput):
        return math.isfinite(output.value)
    if isinstance(output, LabelOutput):
        return len(output.logits) > 0 and all(map(math.isfinite, output.logits))
    if isinstance(output, TokenOutput):
        return all(map(math.isfinite, chain.from_iterable(output.logits)))
    if isinstance(output, LogprobsOutput):
        return bool(np.isfinite(output.values()).all())
    return len(output.vector) > 0 and all(map(math.isfinite, output.vector))


def _to_json(result: Result) -> dict[str, Any]:
    if isinstance(result, list):
        samples: list[list[Any]] = []
        for output in result:
            logprobs = [p if math.isfinite(p) else None for p in output.choice_logprobs]
            counts = [output.tokens_in, output.tokens_out]
            samples.append([output.text, output.finish_reason, *counts, logprobs])
        return {"text": samples}
    if isinstance(result, ValueOutput):
        content: dict[str, Any] = {"value": result.value, "in": result.tokens_in}
        if result.extra:
            content["extra"] = result.extra
        return content
    if isinstance(result, LabelOutput):
        return {"labels": result.logits, "in": result.tokens_in}
    if isinstance(result, TokenOutput):
        return {"logits": result.logits, "in": result.tokens_in}
    if isinstance(result, LogprobsOutput):
        return {"logprobs": base64.b64encode(result.logprobs).decode(), "in": result.tokens_in}
    vector = np.asarray(result.vector, dtype="<f4").tobytes()
    return {"vector": base64.b64encode(vector).decode(), "in": result.tokens_in}


def _from_json(content: dict[str, Any]) -> Result:
    if "text" in content:
        samples: list[TextOutput] = []
        for text, finish_reason, tokens_in, tokens_out, logprobs in content["text"]:
            choice = [-math.inf if p is None else float(p) for p in logprobs]
            samples.append(
                TextOutput(
                    text,
                    finish_reason,
                    tokens_in,
                    tokens_out,
                    choice_logprobs=tuple(choice),
                    cached=True,
                )
            )
        return samples
    if "value" in content:
        extra = tuple((name, value) for name, value in content.get("extra", ()))
        return ValueOutput(float(content["value"]), content["in"], extra=extra, cached=True)
    if "labels" in content:
        return LabelOutput(tuple(map(float, content["labels"])), content["in"], cached=True)
    if "logits" in content:
        rows = [tuple(map(float, row)) for row in content["logits"]]
        return TokenOutput(tuple(rows), content["in"], cached=True)
    if "logprobs" in content:
        stored = base64.b64decode(content["logprobs"], validate=True)
        return LogprobsOutput.of(np.frombuffer(stored, dtype="<f4"), content["in"], cached=True)
    vector = np.frombuffer(base64.b64decode(content["vector"], validate=True), dtype="<f4")
    return EmbedOutput(tuple(vector.tolist()), content["in"], cached=True)
