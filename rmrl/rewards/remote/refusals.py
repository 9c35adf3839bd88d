"""Reading of answers that refuse a request: their message, and their Retry-After header."""

from __future__ import annotations

import email.utils
import json
import time
from typing import Any

from rmrl.clock import Clock


def error_message(body: bytes) -> tuple[str, str]:
    """Return (message, code) of an error answer in any of the usual shapes; else its beginning
    and ""."""
    text = body[:65536].decode("utf-8", "replace")
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text, ""
    error = answer
    if isinstance(answer, dict):
        error = answer.get("error", answer)
    if not isinstance(error, dict):
        return str(error), ""
    message: Any = error.get("message") or error.get("detail") or error.get("error") or text
    if not isinstance(message, str):
        message = json.dumps(message)
    return message, str(error.get("code") or error.get("type") or "")


def retry_after_s(value: str, now: Clock = time.time) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date; None where it is
    neither. `now`: seconds since 1970."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, TypeError):
        return None
