"""Answers: JSON, lines of JSON, and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from rmrl.errors import RmrlError
from rmrl.serve.bodies import aside
from rmrl.serve.problems import FAULT, RequestError, request_error
from rmrl.serve.wires import Lines

NDJSON = "application/x-ndjson"
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str)


def json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8. Lone surrogates become escapes."""
    return _JSON.encode(value).encode("utf-8", errors="backslashreplace")


def json_answer(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(
        json_bytes(value), status_code=status, headers=headers, media_type="application/json"
    )


ERROR_FORM = "error_form"
"""Attribute by which an endpoint has its `WireRoute.error`."""


def error_answer(error: RequestError, request: Request | None = None) -> Response:
    """Return an error's response. The request's route may have a form for it."""
    content: Mapping[str, Any] = error.content
    status = error.status
    endpoint = None if request is None else request.scope.get("endpoint")
    form = getattr(endpoint, ERROR_FORM, None)
    if form is not None:
        status, content = form(error)
    return json_answer(content, status=status, headers=error.headers)


async def response_of(answer: Any) -> Response:
    """Return the response for a route function's value. Raises any error from the first line of
    `Lines`."""
    if isinstance(answer, Response):
        return answer
    if not isinstance(answer, Lines):
        return await aside(json_answer, answer)
    lines = aiter(answer.objects)
    first = await anext(lines)
    return StreamingResponse(ndjson(first, lines), media_type=NDJSON)


async def ndjson(
    first: Mapping[str, Any], lines: AsyncIterator[Mapping[str, Any]]
) -> AsyncIterator[bytes]:
    """Yield the lines. An error is the last line."""
    yield json_bytes(first) + b"\n"
    try:
        async for line in lines:
            yield json_bytes(line) + b"\n"
    except RequestError as error:
        yield json_bytes(error.content) + b"\n"
    except RmrlError as error:
        yield json_bytes(request_error(error).content) + b"\n"


async def refused(request: Request, error: RequestError) -> Response:
    """Handle an error that states its answer."""
    return error_answer(error, request)


async def failed(request: Request, error: RmrlError) -> Response:
    """Handle an error of scoring."""
    return error_answer(request_error(error), request)


async def fault(request: Request, error: Exception) -> Response:
    """Handle an unforeseen error, which the gate logs."""
    del error
    return error_answer(FAULT, request)


def misfit(body: Any, error: ValidationError) -> RequestError:
    """Return the answer to a body that its route does not take. The answer names the first field
    that is wrong."""
    problems: dict[tuple[str | int, ...], list[str]] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        messages = problems.setdefault(_parts_in(body, each), [])
        if each["msg"] not in messages:
            messages.append(each["msg"])
    # Of the alternatives of a union the one that fits farthest.
    parts = max(problems, key=len)
    place = ""
    for part in parts:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
    place = place.removeprefix(".") or "body"
    return RequestError(422, f"{place}: {'; '.join(problems[parts])}", field=place)


def _parts_in(body: Any, problem: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the keys and indices that lead to a problem in the body, without the names that
    pydantic gives to the alternatives of a union."""
    parts: list[str | int] = []
    value = body
    lacks_last = problem["type"] == "missing"
    for part in problem["loc"]:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            if not lacks_last or part is not problem["loc"][-1]:
                continue
        parts.append(part)
    return tuple(parts)


async def http_error(request: Request, error: HTTPException) -> Response:
    """Handle a routing error: no such path, or another method."""
    del request
    message = str(error.detail)
    if error.status_code == 404:
        message = "there is no such route; GET /openapi.json lists them"
    content = RequestError(error.status_code, message).content
    return json_answer(content, status=error.status_code, headers=error.headers)
