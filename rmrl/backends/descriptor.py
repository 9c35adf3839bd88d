"""Training backends, described. Read in the driver, before a process is started.

Imports no torch. A user's own backend may be a plain class: `described_backend` gives it defaults
that assume nothing about how it shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmrl.config.schema import ModelConfig, TrainedConfig
from rmrl.interfaces import TrainEngine
from rmrl.models.checkpoint_inspect import parameter_count
from rmrl.registry import load_attribute

_FLOAT32 = 4


@dataclass(frozen=True, slots=True)
class RowAssignment:
    """A batch is cut into shares. Every process in a share gets all its rows, and one of them
    answers."""

    share_of: tuple[int, ...]
    """rank -> share of the rows."""
    output_ranks: tuple[int, ...]
    """share -> the rank whose results stand for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Bytes in all processes together."""

    weights: int
    gradients: int
    optimizer: int
    """AdamW's two moments, and float32 master weights where the weights have another dtype."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloads:
    """State that leaves the device between phases. Gradients that leave are freed, not stored."""

    weights: bool = False
    gradients: bool = False
    optimizer: bool = False
    keeps_gradients: bool = True
    """Buffers of gradients exist between phases."""
    always: bool = False
    """All of the state lives in host memory, while the model trains as well."""

    @property
    def any(self) -> bool:
        return self.always or self.weights or self.gradients or self.optimizer


class Memory(Protocol):
    """Estimates of what a model holds, from its checkpoint's headers."""

    def state(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
        """Bytes that a model takes when it trains in `processes` processes."""
        ...

    def frozen_bytes(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
        """Bytes for a reference in all processes together: weights alone, in the compute dtype."""
        ...

    def offloads(self, trained: TrainedConfig) -> Offloads: ...

    def gathered(self, trained: TrainedConfig) -> int:
        """Bytes gathered per parameter to compute, 0 where the process holds what it needs."""
        ...

    def activation_shares(self, trained: TrainedConfig, processes: int) -> tuple[int, int]:
        """(processes among which one row's positions are cut, among which the vocabulary is)."""
        ...

    def layout(self, trained: TrainedConfig, processes: int) -> str:
        """Strategy and process count, as the plan prints them."""
        ...


class Replicated:
    """Every process holds the whole model in float32 with its gradients and AdamW's moments:
    assumed for a backend that does not state its memory."""

    def state(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> State:  # noqa: ARG002
        size = parameter_count(str(model.path)) * _FLOAT32 * processes
        return State(weights=size, gradients=size, optimizer=2 * size)

    def frozen_bytes(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> int:  # noqa: ARG002
        return parameter_count(str(model.path)) * _FLOAT32 * processes

    def offloads(self, trained: TrainedConfig) -> Offloads:  # noqa: ARG002
        return Offloads()

    def gathered(self, trained: TrainedConfig) -> int:  # noqa: ARG002
        return 0

    def activation_shares(self, trained: TrainedConfig, processes: int) -> tuple[int, int]:  # noqa: ARG002
        return 1, 1

    def layout(self, trained: TrainedConfig, processes: int) -> str:
        return f"{trained.strategy} x{processes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """A model that is to be spread over processes."""

    model: ModelConfig
    trained: TrainedConfig
    world_size: int
    section: str
    """Key of `trained` in the configuration, e.g. critic."""
    device: str


def _rows_of_their_own(trained: TrainedConfig, world_size: int, section: str) -> RowAssignment:  # noqa: ARG001
    ranks = tuple(range(world_size))
    return RowAssignment(ranks, ranks)


def _none(*_: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A training backend. Called like its engine, with (TrainSettings, ProcessSettings)."""

    engine: str | Callable[..., TrainEngine]
    """The engine's class, or "module:Class" of one whose import is heavy."""
    energies: bool = False
    """Its engine has `logprobs_and_energies` (see rmrl.interfaces.TrainEngine)."""
    memory: Memory = field(default_factory=Replicated)
    row_assignment: Callable[[TrainedConfig, int, str], RowAssignment] = _rows_of_their_own
    """(settings, processes, section) -> the rows of each process; ConfigError where the parallel
    sizes do not fit."""
    saved_dtype: Callable[[TrainedConfig], str] = lambda _: "float32"
    """Dtype of the parameters in a checkpoint."""
    reads: tuple[str, ...] | None = None
    """Sections of BACKEND_SECTIONS (rmrl.config.schema.actor) that it reads; settings in the others
    are refused. None: not known, nothing is refused."""
    replacements: Mapping[str, str] = field(default_factory=dict[str, str])
    """Setting that it does not read -> setting to use instead, e.g. "fsdp_config.fsdp_size"."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of its processes; the user's own win."""
    missing: Callable[[], str] = lambda: ""
    """Package that is needed and not installed, and how to install it; "" where nothing is
    missing."""
    problems: Callable[[Sharding], Iterable[str]] = _none
    """Sentences about a model that it cannot cut that way. Reads config.json."""
    settings_problems: Callable[[Sharding], Iterable[str]] = _none
    """Sentences about the settings, whatever the model. Reads no file."""
    model_problems: Callable[[ModelConfig, str, str], Iterable[str]] = _none
    """(model, section, key of the model) -> sentences about what the model's section requests and
    this backend does not do."""
    together_problems: Callable[[TrainedConfig, TrainedConfig], Iterable[str]] = _none
    """(actor, critic) -> sentences about models that cannot share their processes."""

    def load(self) -> Callable[..., TrainEngine]:
        """Return the engine's class, imported."""
        if isinstance(self.engine, str):
            return load_attribute(self.engine)  # type: ignore[return-value]
        return self.engine

    def __call__(self, *args: Any, **settings: Any) -> TrainEngine:
        return self.load()(*args, **settings)


def described_backend(part: Backend | Callable[..., TrainEngine]) -> Backend:
    """Return `part`, a plain class with the defaults."""
    return part if isinstance(part, Backend) else Backend(engine=part)
