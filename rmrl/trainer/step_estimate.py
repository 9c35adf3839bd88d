"""How long each part takes in a step, from sizes alone. The first real run says which was wrong.

    decoding   rounds x tokens x max(host, bytes / bandwidth, operations / peak)
    reading    2 operations for a parameter and token
    update     `training_cost` operations for a parameter and token

Every response is taken to be as long as it may be, so the seconds are an upper end. The parts are
those of time/<part>_s in the metrics, but for `moves`, which are in generate, score and publish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.inference.settings import ROLLOUT_SEQUENCES
from rmrl.models.checkpoint_inspect import kv_bytes, parameter_count, read_config
from rmrl.rewards.residency.plan import EnginePlan
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_algorithm import needs_old_logprobs, needs_reference
from rmrl.trainer.device_defaults import (
    HOST_LINK,
    NVLINK,
    OPERATIONS_PER_S,
    moved_operations,
    training_cost,
)
from rmrl.trainer.plan import planned_tokens
from rmrl.trainer.throughput import EXPERTS, Card, card_of

REACHED = OPERATIONS_PER_S / 989e12
"""The peak's share that training reaches (H100, benchmarks/results/gpu/h100.json)."""
HOST_S = 1.4e-3
HOST_S_PER_SAMPLE = 2.35e-5
"""Seconds that vLLM's own Python takes in a decoding step, and more for each sample: a small model
on an H200 (benchmarks/results/gpu/h200.json)."""
FILE_BYTES_PER_S = 1.6e9
"""New weights through a file: written, read and loaded."""
PARTS = ("generate", "score", "logprobs", "update", "publish", "moves")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The sizes that count."""

    parameters: int
    kv_bytes: int
    """Keys and values that a token takes, in bfloat16."""

    @classmethod
    def of(cls, path: str) -> Model:
        """Read a checkpoint's headers. Raises ConfigError, also for a mixture of experts."""
        shape: Mapping[str, Any] = read_config(path)
        shape = shape.get("text_config") or shape
        if any(shape.get(entry) for entry in EXPERTS):
            raise ConfigError(f"{path}: tokens use a part of the parameters")
        return cls(parameters=parameter_count(path), kv_bytes=kv_bytes(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one engine does in a step."""

    model: Model
    gpus: int
    at_once: int
    """Samples that are decoded together, at most."""
    samples: float
    """This engine's share."""
    read: float
    """Tokens in a sample's input."""
    written: int
    """Tokens that a sample has."""
    shared: int = 1
    """Samples that share an input, which is read once."""

    def seconds(self, card: Card) -> float:
        """Return how long reading and decoding take."""
        model = self.model
        peak = card.flops * REACHED * self.gpus
        reading = 2.0 * model.parameters * self.samples / self.shared * self.read / peak
        if self.written < 2:
            return reading
        together = max(1.0, min(self.samples, self.at_once))
        cached = together * (self.read + self.written / 2) * model.kv_bytes
        bandwidth = card.bytes_per_s * self.gpus
        step = max(
            HOST_S + HOST_S_PER_SAMPLE * together,
            (2.0 * model.parameters + cached) / bandwidth,
            2.0 * model.parameters * together / peak,
        )
        return reading + self.samples / together * self.written * step


def step_estimate(
    config: Config,
    engines: Sequence[EnginePlan],
    specs: Sequence[RewardSpec],
    *,
    card: Card,
    transport: str,
) -> dict[str, float]:
    """Return each part's seconds. Raises ConfigError where a checkpoint's headers cannot be read,
    e.g. for a hub id that is not here."""
    part = config.actor_rollout_ref
    width = part.rollout.tensor_parallel_size
    policy = Model.of(str(part.model.path))
    loads = [judging(config, engine, specs) for engine in engines]
    scoring = zip(engines, loads, strict=True)
    awake = [load.model.parameters / load.gpus for engine, load in scoring if not engine.place]
    tokens = config.data.train_batch_size * part.rollout.n * longest(config)
    world = config.trainer.world_size
    once = policy.parameters * tokens / (card.flops * REACHED * world)
    cost = training_cost(
        every=part.model.recomputed_every,
        tokens=planned_tokens(config, part.actor),
        moved=moved_operations(part.actor, world=world, nodes=config.trainer.nnodes),
        adapters=part.model.lora_rank > 0,
    )
    passes = needs_old_logprobs(config) + needs_reference(config)
    weights = 2.0 * policy.parameters
    scored = [
        load.seconds(card) * len(engine.rewards)
        for engine, load in zip(engines, loads, strict=True)
    ]
    return {
        "generate": sampling(config, policy).seconds(card),
        "score": math.fsum(scored),
        "logprobs": 2.0 * once * passes,
        "update": cost * once * part.actor.ppo_epochs,
        "publish": weights / (FILE_BYTES_PER_S if transport == "file" else NVLINK),
        "moves": (weights / width + 2.0 * math.fsum(awake)) / HOST_LINK,
    }


def longest(config: Config) -> int:
    """Return the tokens that a prompt and a response may have together."""
    return config.data.max_prompt_length + config.data.max_response_length


def sampling(config: Config, policy: Model) -> Load:
    """Return what one rollout engine does."""
    rollout = config.actor_rollout_ref.rollout
    width = rollout.tensor_parallel_size
    engines = max(1, device_count(config.trainer, rollout.pool) // width)
    return Load(
        model=policy,
        gpus=width,
        at_once=rollout.max_num_seqs or ROLLOUT_SEQUENCES["cuda"],
        samples=config.data.train_batch_size * rollout.n / engines,
        read=config.data.max_prompt_length,
        written=config.data.max_response_length,
        shared=rollout.n,
    )


def judging(config: Config, engine: EnginePlan, specs: Sequence[RewardSpec]) -> Load:
    """Return what one replica does for one of its rewards, the one that writes most."""
    written = 0
    votes = 1
    for spec in specs:
        if spec.name in engine.rewards and spec.sampling is not None:
            written = max(written, spec.sampling.max_tokens)
            votes = max(votes, spec.sampling.n)
    samples = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    return Load(
        model=Model.of(engine.spec.path),
        gpus=engine.spec.tensor_parallel_size,
        at_once=engine.spec.max_num_seqs,
        samples=samples * votes / engine.replicas,
        read=longest(config),
        written=written,
        shared=votes,
    )


def announced(
    config: Config,
    engines: Sequence[EnginePlan],
    specs: Sequence[RewardSpec],
    *,
    gpu: str,
    transport: str,
) -> str:
    """Return what is said before a step on GPUs with this name. "" where their card or the sizes of
    a checkpoint are not known."""
    card = card_of(gpu)
    if card is None:
        return ""
    try:
        seconds = step_estimate(config, engines, specs, card=card, transport=transport)
    except ConfigError:
        return ""
    return estimate_line(seconds, card=card, gpus=config.trainer.world_size)


def estimate_line(seconds: Mapping[str, float], *, card: Card, gpus: int) -> str:
    """Return the text that `rmrl check` and the start of a run print."""
    total = math.fsum(seconds.values())
    parts = ", ".join(f"{name} {seconds[name]:.3g}" for name in PARTS)
    return (
        f"a step takes about {total:.3g} s on {gpus} x {card.name} if every response has its full"
        f" length: {parts}. This is arithmetic: compare it with time/<part>_s of the first steps"
    )
