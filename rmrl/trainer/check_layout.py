"""Problems of spreading the models that train over the processes. Reads their config.json."""

from __future__ import annotations

from collections.abc import Iterator

from rmrl.backends import backend_of
from rmrl.backends.descriptor import Sharding
from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config, CriticConfig
from rmrl.errors import ConfigError

ACTOR = "actor_rollout_ref.actor"


def layout_problems(config: Config, critic: CriticConfig | None, *, device: str) -> Iterator[str]:
    """Yield problems of the policy and, where one trains, of its critic (every null replaced by the
    actor's setting).

    The checkpoints must be readable and the backends known.
    """
    actor = config.actor_rollout_ref.actor
    policy = config.actor_rollout_ref.model
    backend = backend_of(actor.strategy)
    others = backend if critic is None else backend_of(critic.strategy or actor.strategy)
    missing = {ACTOR: backend.missing()}
    if others is not backend:
        missing["critic"] = others.missing()
    for where, what in missing.items():
        if what:
            strategy = actor.strategy if where == ACTOR else critic and critic.strategy
            yield f"{where}.strategy={strategy} needs {what}"
    if critic is not None and critic.pool is None:
        yield from backend.together_problems(actor, critic)
        if others is not backend:
            yield from others.together_problems(actor, critic)
    world = processes(config, None)
    if world is not None:
        sharding = Sharding(
            model=policy, trained=actor, world_size=world, section=ACTOR, device=device
        )
        yield from backend.problems(sharding)
    if critic is not None:
        yield from others.model_problems(critic.model, "critic", "critic.model")
        world = processes(config, critic.pool)
        if world is None:
            return
        sharding = Sharding(
            model=critic.model, trained=critic, world_size=world, section="critic", device=device
        )
        differs = critic.pool is not None or critic.fsdp_config != actor.fsdp_config
        if differs:
            yield from others.settings_problems(sharding)
        # A critic that starts from the policy in its processes has the policy's problems.
        if differs or critic.model.path != policy.path:
            yield from others.problems(sharding)


def processes(config: Config, pool: str | None) -> int | None:
    """Return the number of processes that train in `pool` (None: the policy's own). Return None for
    a pool that does not exist and for devices that were not found, which other checks report."""
    try:
        count = device_count(config.trainer, pool)
    except (ConfigError, KeyError):
        return None
    if count < 1:
        return None
    return count
