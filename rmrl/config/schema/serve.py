"""Root for the reward server: scoring's `reward` section, behind HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import changeable, not_negative, positive
from rmrl.config.schema.reward import ClusterConfig, RewardConfig
from rmrl.config.schema.score import ScoreDataConfig, ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class ServerConfig:
    host: str = "127.0.0.1"
    """Address to listen on. An address that other machines reach needs `token_env`."""
    port: int = not_negative(8765)
    """TCP port. 0: any free port, which the log names."""
    token_env: str | None = None
    """Environment variable that holds the bearer token. null: no token, which is refused beyond
    loopback. The token itself never stands in a configuration."""
    wires: list[str] = field(default_factory=lambda: ["native"])
    """Interfaces to offer: native, openrlhf, slime (also for miles), nemo_gym, trl, chat (the judge
    models themselves, in OpenAI's form), decisions and systemone (the judge models' probabilities,
    in the forms of OpenAI and vLLM)."""
    missing_reward: float | None = None
    """Number that the wires openrlhf, slime and trl return for a response without a reward. Their
    clients cannot read null. null: null, which no client can take for a score."""
    max_rows: int = positive(4096)
    """Responses that one request may hold."""
    max_queue_rows: int = positive(16384)
    """Responses that may wait or be scored at one time, over all requests. The server answers
    further requests with 429 and Retry-After."""
    max_body_mb: float = positive(16.0)
    """Size of one request's body, in MiB."""
    max_body_values: int = positive(500_000)
    """Values, keys and lists in one request's body together. A text counts as one, whatever its
    length. The server answers no other request while it parses a body."""
    max_bodies_mb: float = positive(256.0)
    """Size of all bodies that are read or held at one time, in MiB."""
    body_timeout_s: float = positive(30.0)
    """Seconds that a client may take to send a body."""
    request_timeout_s: float = positive(600.0)
    """Deadline for a request, in seconds. A request may set a shorter one (`timeout_s`)."""
    drain_s: float = not_negative(60.0)
    """Seconds that accepted requests have left at a shutdown."""
    call_rows: int = positive(256)
    """An engine's call ends with the request that reaches this number of responses. Later requests
    wait for at most one such call."""
    turn_s: float = not_negative(5.0)
    """Seconds after which an engine whose requests wait may put away another one that is in
    use."""
    probe_s: float = positive(1.0)
    """Seconds between two looks at the engines' processes."""
    load_at_start: bool = True
    """Load every engine once before the server is ready. false: load only resident engines, and
    each other engine with the first request that needs it."""


@dataclass(kw_only=True, slots=True)
class ServeConfig:
    serve: ServerConfig = field(default_factory=ServerConfig)
    data: ScoreDataConfig = field(default_factory=ScoreDataConfig)
    columns: list[str] = field(default_factory=list)
    """Further columns per reward: rendered (a judge's input), raw (a judge's output), steps (a
    process reward's step scores)."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    reward_model: dict[str, Any] = field(default_factory=dict)
    """Older names. `rmrl.config.compat` translates them."""
    custom_reward_function: dict[str, Any] = field(default_factory=dict)
    """Older names: {path, name, reward_kwargs} of a rule."""
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
