"""The FastAPI application: the wires' routes, and the routes about the server itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from rmrl.errors import RmrlError
from rmrl.serve.answers import ERROR_FORM, failed, fault, http_error, misfit, refused, response_of
from rmrl.serve.bodies import BodyReader
from rmrl.serve.connection import App, Receive, Scope, Send
from rmrl.serve.gate import Gate
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.state import add_state_routes
from rmrl.serve.wires import SERVE_WIRES, WireRoute

_CODES = {
    400: "The request's line or its headers cannot be read",
    401: "No token, or a wrong one",
    403: "Not for this host name",
    404: "There is no such thing",
    408: "The body came too slowly",
    413: "The body, the number of its values or that of its rows is too large",
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
    api.router.route_class = route_class(BodyReader(service.settings))
    add_state_routes(api, service, ERRORS)
    for name in service.settings.wires:
        for route in SERVE_WIRES[name]().routes(service):
            add_route(api, route, service, tag=name)
    api.exception_handler(RequestError)(refused)
    api.exception_handler(RmrlError)(failed)
    api.exception_handler(HTTPException)(http_error)
    api.exception_handler(Exception)(fault)
    paths = {route.path for route in api.routes if isinstance(route, APIRoute)}
    return Gate(api, service, paths=paths)


def route_class(reader: BodyReader) -> type[APIRoute]:
    """Return the class for routes. FastAPI describes the routes, and `reader` reads their
    bodies."""

    class BodyRoute(APIRoute):
        """A route whose endpoint gets the checked body and returns a response."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if "body" in self.endpoint.__annotations__:
                self.app = _straight(self.get_route_handler())

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            endpoint: Callable[..., Coroutine[Any, Any, Response]] = self.endpoint
            annotation = endpoint.__annotations__.get("body")
            if annotation is None:
                return super().get_route_handler()
            validate = TypeAdapter[Any](annotation).validate_python

            def checked(value: Any) -> Any:
                try:
                    return validate(value)
                except ValidationError as error:
                    raise misfit(value, error) from error

            async def handle(request: Request) -> Response:
                if not _is_json(request.headers.get("content-type", "")):
                    raise RequestError(
                        422, "send the header Content-Type: application/json", field="body"
                    )
                return await endpoint(await reader.read(await request.body(), checked))

            return handle

    return BodyRoute


def _straight(handle: Callable[[Request], Coroutine[Any, Any, Response]]) -> App:
    """Return a handler as an application. The application around it answers its errors. FastAPI's
    own way there looks for errors once more, and closes dependencies, which these routes lack."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handle(Request(scope, receive, send))
        await response(scope, receive, send)

    return app


def _is_json(content_type: str) -> bool:
    """Return whether a header names JSON. A web page may send only other types to a server that is
    not its own."""
    name = content_type.partition(";")[0].strip().lower()
    return name == "application/json" or (name.startswith("application/") and "+json" in name)


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
    setattr(endpoint, ERROR_FORM, route.error)
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
