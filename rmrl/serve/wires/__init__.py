"""Interfaces that a server offers: one file and one line of `SERVE_WIRES` each.

A wire has routes. A route has a body (a pydantic model, so that the OpenAPI page describes it) and
a function that turns it into an answer with the help of the service. The token, the size of
bodies, the JSON's validity, disconnected clients, metrics and errors are the server's: a wire reads
a valid body and returns plain values, or raises RequestError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rmrl.registry import Registry

if TYPE_CHECKING:
    from rmrl.serve.problems import RequestError
    from rmrl.serve.service import Service


class FirstError:
    """Ends the check of a list at its first bad entry. A list of a million bad ones makes a million
    errors otherwise, which take a gigabyte and stop the server for a quarter of a minute."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return pydantic's schema of the list. (Its own FailFast cannot stand in a union.)"""
        schema = handler(source)
        schema["fail_fast"] = True
        return schema


FIRST_ERROR = FirstError()


@dataclass(frozen=True, slots=True)
class Lines:
    """An answer that is sent line by line, as NDJSON. An error before the first line is an
    ordinary error answer. A later one is a last line {"error": ...}."""

    objects: AsyncIterator[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRoute:
    """One route."""

    path: str
    body: type[Any] | None
    """Pydantic model of the body. A RootModel for a body that is no object. None: a route without a
    body, as GET is. Its lists are Annotated[list[...],
    FIRST_ERROR]."""
    answer: Callable[[Any, Service], Awaitable[Any]]
    """(body, service) -> plain values for JSON, `Lines`, or a Starlette response."""
    summary: str
    """One line for the OpenAPI page."""
    answers: type[Any] | None = None
    """Pydantic model of the answer, for the OpenAPI page."""
    methods: tuple[str, ...] = ("POST",)
    error: Callable[[RequestError], tuple[int, Mapping[str, Any]]] | None = None
    """An error's status and JSON in the wire's own form. None: as everywhere."""


class ServeWire(Protocol):
    """One interface."""

    def routes(self, service: Service) -> Sequence[WireRoute]:
        """Return its routes for this configuration. Raises ConfigError where it cannot serve it,
        before an engine is started."""
        ...


SERVE_WIRES: Registry[Callable[[], ServeWire]] = Registry(
    "serve.wires",
    {
        "native": "rmrl.serve.wires.native:NativeWire",
        "openrlhf": "rmrl.serve.wires.openrlhf:OpenRLHFWire",
        "slime": "rmrl.serve.wires.slime:SlimeWire",
        "nemo_gym": "rmrl.serve.wires.nemo_gym:NemoGymWire",
        "trl": "rmrl.serve.wires.trl:TRLWire",
        "chat": "rmrl.serve.wires.chat:ChatWire",
        "decisions": "rmrl.serve.wires.decisions:DecisionsWire",
        "systemone": "rmrl.serve.wires.systemone:SystemOneWire",
    },
)

__all__ = ["FIRST_ERROR", "SERVE_WIRES", "Lines", "ServeWire", "WireRoute"]
