"""Whether the models that train under strategy=megatron can be spread over the processes as asked;
reads their config.json."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from rmrl.backends.megatron.shape import Shape
from rmrl.backends.megatron.sizes import Sizes
from rmrl.cluster.pools import pool_sizes
from rmrl.config.check_parallel import (
    megatron_problems,
    model_problems,
    parallel_problems,
    together_problems,
)
from rmrl.config.schema import Config, CriticConfig, ModelConfig, TrainedConfig
from rmrl.errors import ConfigError
from rmrl.models.loading import load_config

PACKAGE = "megatron.core"


def layout_problems(config: Config, critic: CriticConfig | None, *, device: str) -> Iterator[str]:
    """Problems of the policy and, where one trains, of its critic (every null replaced by the
    actor's setting).

    The checkpoints are there. What of the policy needs no file is found by rmrl.config.check.
    """
    actor = config.actor_rollout_ref.actor
    policy = config.actor_rollout_ref.model
    if "megatron" in (actor.strategy, critic.strategy if critic else None) and not _installed():
        where = "actor_rollout_ref.actor" if actor.strategy == "megatron" else "critic"
        yield (
            f"{where}.strategy=megatron needs megatron-core, which is not installed: pip install"
            ' "rmrl-toolkit[megatron]", or set strategy=fsdp2'
        )
    if critic is not None and critic.pool is None:
        yield from together_problems(actor, critic)
    world = processes(config, None)
    if actor.strategy == "megatron" and world is not None:
        yield from _cut(policy, actor, world, section="actor_rollout_ref.actor", device=device)
    if critic is None or critic.strategy != "megatron":
        return
    yield from model_problems(critic.model, section="critic", key="critic.model")
    apart = processes(config, critic.pool)
    if apart is not None and critic.pool is not None:
        yield from megatron_problems(critic.megatron, apart, section="critic")
    if apart is not None and (critic.pool is not None or critic.model.path != policy.path):
        yield from _cut(critic.model, critic, apart, section="critic", device=device)


def processes(config: Config, pool: str | None) -> int | None:
    """Of training in `pool`, null: the policy's own; None where the pool is not there, which is
    found elsewhere."""
    if pool is None:
        return config.trainer.nnodes * config.trainer.n_gpus_per_node
    try:
        return pool_sizes(config.trainer.resource_pools)[pool].devices
    except (ConfigError, KeyError):
        return None


def _cut(
    model: ModelConfig, trained: TrainedConfig, world: int, *, section: str, device: str
) -> list[str]:
    """What of this model is not covered or not divided; nothing where the sizes do not fit the
    processes, which has been said."""
    if parallel_problems(trained.megatron, world, section=section):
        return []
    sizes = Sizes.of(trained.megatron, world, section=section)
    try:
        shape = Shape.of(load_config(model), sizes, section=section)
    except ConfigError as error:
        return error.problems
    if device == "cpu" and shape.experts and sizes.tensor > 1 and sizes.expert > 1:
        return [
            f"{section}.megatron: tensor_model_parallel_size={sizes.tensor} with"
            f" expert_model_parallel_size={sizes.expert} on CPU: experts gather shares of unequal"
            " size there, which gloo cannot; set one of them to 1"
        ]
    return []


def _installed() -> bool:
    """Asked without importing it: that takes seconds, and only training processes need it."""
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False
