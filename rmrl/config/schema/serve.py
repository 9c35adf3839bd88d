"""The root of the reward server: the `reward` section of scoring, behind HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import changeable, not_negative, positive
from rmrl.config.schema.reward import ClusterConfig, RewardConfig
from rmrl.config.schema.score import ScoreDataConfig, ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class ServerConfig:
    host: str = "127.0.0.1"
    """Address to listen on; one that other machines reach needs `token_env`."""
    port: int = not_negative(8765)
    """TCP port; 0: any free one, which the log names."""
    token_env: str | None = None
    """Name of the environment variable that holds the bearer token; null: no token, which is
    refused beyond loopback. The token itself never stands in a configuration."""
    wires: list[str] = field(default_factory=lambda: ["native"])
    """Interfaces to offer: native, openrlhf, slime (also for miles), nemo_gym, trl, chat (the judge
    models themselves, in OpenAI's form)."""
    missing_reward: float | None = None
    """Number that the wires openrlhf, slime and trl give for a response without a reward, where
    their clients cannot read null; null: null, which no client can take for a score."""
    max_rows: int = positive(4096)
    """Responses that one request may hold."""
    max_queue_rows: int = positive(16384)
    """Responses that all requests together may wait with or be scored with; more are answered 429
    with Retry-After."""
    max_body_mb: float = positive(16.0)
    """Size of one request's body, in MiB."""
    max_body_values: int = positive(500_000)
    """Values, keys and lists of one request's body together; texts count one each, of whatever
    length. While a body is parsed no other request is answered."""
    max_bodies_mb: float = positive(256.0)
    """Size of all bodies that are read or held at the same time, in MiB."""
    body_timeout_s: float = positive(30.0)
    """Seconds that a client may take to send a body."""
    request_timeout_s: float = positive(600.0)
    """Deadline of a request in seconds; a request may set a shorter one (`timeout_s`)."""
    drain_s: float = not_negative(60.0)
    """Seconds that accepted requests have left at a shutdown."""
    call_rows: int = positive(256)
    """An engine's call ends with the request that reaches this number of responses: those that
    come later wait for no more than one call of that size."""
    turn_s: float = not_negative(5.0)
    """Seconds after which an engine whose requests wait may put away another one that is in
    use."""
    probe_s: float = positive(1.0)
    """Seconds between two looks at the engines' processes."""
    load_at_start: bool = True
    """Load every engine once before the server is ready; false: those that are resident, and the
    others with the first request that needs them."""


@dataclass(kw_only=True, slots=True)
class ServeConfig:
    serve: ServerConfig = field(default_factory=ServerConfig)
    data: ScoreDataConfig = field(default_factory=ScoreDataConfig)
    columns: list[str] = field(default_factory=list)
    """Further columns per reward: rendered (input of a judge), raw (its output), steps (the
    scores of a process reward's steps)."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    reward_model: dict[str, Any] = field(default_factory=dict)
    """Older names; translated by rmrl.config.compat."""
    custom_reward_function: dict[str, Any] = field(default_factory=dict)
    """Older names; {path, name, reward_kwargs} of a rule."""
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
