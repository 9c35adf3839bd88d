"""The environment of a kind, besides its own spec."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rmrl.rewards.dropins.dropin import FunctionSource
    from rmrl.types import ScoreResult

Result = TypeVar("Result")


class Workers(Protocol):
    """Processes that call the functions of rules, as `RulePool` starts them."""

    @property
    def workers(self) -> int:
        """Number of processes."""
        ...

    def submit(
        self,
        source: FunctionSource,
        calls: Sequence[Mapping[str, Any]],
        timeout_s: float,
        name: str = "",
    ) -> Future[list[ScoreResult]]:
        """Return what the function gives for each call, in order. What it prints is kept as the
        reward's, `name`."""
        ...


class Calls(Protocol):
    """Requests to one engine or server. Those of several rewards are sent together, and the engine
    is awake only for them."""

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        """One result per request, in order.

        Equal requests of a deterministic scorer are sent once, or answered from the cache.
        """
        ...


@dataclass(slots=True)
class Counts:
    """Shares for the log, such as position flips."""

    totals: dict[str, list[float]] = field(default_factory=dict)
    """Name -> [hits, total]."""

    def add(self, name: str, hits: float, total: float) -> None:
        """Count towards `score/<reward>/<name>`, which is logged as hits / total over all calls of
        a step."""
        entry = self.totals.setdefault(name, [0.0, 0.0])
        entry[0] += hits
        entry[1] += total


async def render_here(work: Callable[[], Result]) -> Result:
    """The result of `work()`, on the event loop."""
    return work()


class Render(Protocol):
    """Runs a function that renders inputs, off the event loop where there is a thread for it."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]: ...


@dataclass(slots=True, kw_only=True)
class KindContext:
    """`tokenizer` loads (and caches) a checkpoint's tokenizer; `calls` sends requests to the
    reward's engines by role."""

    pool: Workers
    tokenizer: Callable[[str], Any]
    calls: Mapping[str, Calls] = field(default_factory=dict)
    """Keys: roles of `spec.engines`, and `remote`."""
    counts: Counts = field(default_factory=Counts)
    render: Render = render_here
    """Runs the rendering of inputs, here or on a thread."""
    preparing: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    """Entered while inputs for a role's engine, and for no other, are rendered."""

    def calls_to(self, role: str = "main") -> Calls:
        """The requests to an engine; only valid inside the scorer."""
        assert role in self.calls, f"no calls to the {role} engine outside the scorer"
        return self.calls[role]
