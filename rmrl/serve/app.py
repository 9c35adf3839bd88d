"""The FastAPI application: the routes of the wires, and those about the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from rmrl.errors import RmrlError
from rmrl.serve.answers import failed, fault, http_error, invalid, refused, response_of
from rmrl.serve.bodies import parsed
from rmrl.serve.connection import App
from rmrl.serve.gate import Gate
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.state import add_state_routes
from rmrl.serve.wires import SERVE_WIRES, WireRoute

_SMALL_BYTES = 2**16
"""Bodies up to this size are parsed at once, larger ones beside the other requests."""

_CODES = {
    401: "No token, or a wrong one",
    403: "Not for this host name",
    404: "There is no such thing",
    408: "The body came too slowly",
    413: "The body or the number of rows is too large",
    422: "The body is not what the route takes",
    429: "Too much work is waiting; see Retry-After",
    500: "A fault of the server or of a reward function",
    503: "Loading, shutting down, or an engine is lost; see Retry-After",
    504: "Not scored within the deadline",
}


class ErrorText(BaseModel):
    """What was wrong."""

    message: str
    field: str | None = None


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorText


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorAnswer, "description": text} for code, text in _CODES.items()
}


def make_app(service: Service) -> App:
    """Return the application with its gate. Raises ConfigError where a wire cannot serve this
    configuration."""
    api = FastAPI(
        title="rmrl serve",
        summary="Scores of responses, by the rewards of one configuration",
        docs_url=None,
        redoc_url=None,
    )
    api.router.route_class = JSONRoute
    add_state_routes(api, service, ERRORS)
    for name in service.settings.wires:
        for route in SERVE_WIRES[name]().routes(service):
            add_route(api, route, service, tag=name)
    api.exception_handler(RequestError)(refused)
    api.exception_handler(RmrlError)(failed)
    api.exception_handler(RequestValidationError)(invalid)
    api.exception_handler(HTTPException)(http_error)
    api.exception_handler(Exception)(fault)
    paths = {route.path for route in api.routes if isinstance(route, APIRoute)}
    return Gate(api, service, paths=paths)


class JSONRequest(Request):
    """A request whose JSON is read by `rmrl.serve.bodies`."""

    async def json(self) -> Any:
        """Return the body's value. Raises RequestError 422."""
        body = await self.body()
        if len(body) <= _SMALL_BYTES:
            return parsed(body)
        return await asyncio.to_thread(parsed, body)


class JSONRoute(APIRoute):
    """A route whose handler gets such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(JSONRequest(request.scope, request.receive))
            except HTTPException as error:
                # FastAPI makes one of every error of reading the body.
                if isinstance(error.__cause__, RequestError):
                    raise error.__cause__ from None
                raise

        return handle


def add_route(api: FastAPI, route: WireRoute, service: Service, *, tag: str) -> None:
    """Add one route of a wire."""

    async def without_body() -> Response:
        return await response_of(await route.answer(None, service))

    async def with_body(body: Any) -> Response:
        return await response_of(await route.answer(body, service))

    endpoint: Callable[..., Any] = without_body
    if route.body is not None:
        endpoint = with_body
        endpoint.__annotations__["body"] = route.body
    endpoint.__annotations__["return"] = Response
    responses = dict(ERRORS)
    responses[200] = {"model": route.answers, "description": "Done"}
    api.add_api_route(
        route.path,
        endpoint,
        methods=list(route.methods),
        responses=responses,
        response_model=None,
        summary=route.summary,
        operation_id=f"{tag}{route.path}".replace("/", "_"),
        tags=[tag],
    )
