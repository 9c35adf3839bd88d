"""Descriptor for training through megatron-core. Imports neither torch nor megatron."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from rmrl.backends.descriptor import Backend, RowAssignment, Sharding
from rmrl.backends.megatron.memory import MegatronMemory
from rmrl.backends.megatron.settings import (
    PARALLEL_SIZES,
    REPLACEMENTS,
    megatron_problems,
    model_problems,
    parallel_problems,
)
from rmrl.backends.megatron.sizes import Coordinates, Sizes
from rmrl.config.schema import MegatronConfig, TrainedConfig
from rmrl.errors import ConfigError
from rmrl.models.loading import load_config

PACKAGE = "megatron.core"


def missing() -> str:
    """Look megatron-core up without importing it: the import takes seconds, and only training
    processes need it."""
    try:
        installed = find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        installed = False
    if installed:
        return ""
    return (
        "megatron-core, which is not installed: pip install"
        ' "rmrl-toolkit[megatron]", or set strategy=fsdp2'
    )


def row_assignment(trained: TrainedConfig, world_size: int, section: str) -> RowAssignment:
    """Give each data-parallel process its own rows. Each pipeline's last stage answers."""
    sizes = Sizes.of(trained.megatron, world_size, section=section)
    last = sizes.pipeline - 1
    share_of = [sizes.coordinates(rank).data for rank in range(world_size)]
    answering: list[int] = []
    for share in range(sizes.data):
        place = Coordinates(tensor=0, context=0, data=share, pipeline=last)
        answering.append(sizes.rank(place))
    return RowAssignment(tuple(share_of), tuple(answering))


def sharding_problems(sharding: Sharding) -> list[str]:
    """Return reasons why this model cannot be cut. Sizes that do not fit the processes are reported
    with the settings, not here."""
    from rmrl.backends.megatron.shape import Shape

    section = sharding.section
    if parallel_problems(sharding.trained.megatron, sharding.world_size, section=section):
        return []
    sizes = Sizes.of(sharding.trained.megatron, sharding.world_size, section=section)
    try:
        shape = Shape.of(load_config(sharding.model), sizes, section=section)
    except ConfigError as error:
        return error.problems
    if sharding.device == "cpu" and shape.experts and sizes.tensor > 1 and sizes.expert > 1:
        return [
            f"{section}.megatron: tensor_model_parallel_size={sizes.tensor} with"
            f" expert_model_parallel_size={sizes.expert} on CPU: experts gather shares of unequal"
            " size there, which gloo cannot; set one of them to 1"
        ]
    return []


def together_problems(actor: TrainedConfig, critic: TrainedConfig) -> Iterator[str]:
    """Yield differences between a critic and the actor whose processes it shares: one process holds
    its parallel groups once."""
    remedy = (
        "give the critic processes of its own: critic.pool=<pool>"
        " trainer.resource_pools.<pool>.n_gpus_per_node=<devices>"
    )
    if actor.strategy != critic.strategy:
        yield (
            f"critic.strategy={critic.strategy} and"
            f" actor_rollout_ref.actor.strategy={actor.strategy}: policy and critic share their"
            " processes, and megatron shares them with nothing else; leave critic.strategy"
            f" out, or {remedy}"
        )
        return
    ones = _layout(actor.megatron)
    others = _layout(critic.megatron)
    for name in ones:
        if ones[name] != others[name]:
            yield (
                f"critic.megatron.{name}={others[name]} and"
                f" actor_rollout_ref.actor.megatron.{name}={ones[name]}: policy and critic share"
                f" their processes and so their layout; leave the critic's out, or {remedy}"
            )


def _layout(megatron: MegatronConfig) -> dict[str, int]:
    """Return the sizes that must be the same for models in one process. A virtual size that is null
    means 1."""
    return {name: getattr(megatron, name) or 1 for name in PARALLEL_SIZES}


MEGATRON = Backend(
    engine="rmrl.backends.megatron.engine:MegatronEngine",
    energies=True,
    memory=MegatronMemory(),
    reads=("megatron",),
    replacements=REPLACEMENTS,
    row_assignment=row_assignment,
    # The optimizer's float32 master weights are stored, whatever the model's dtype.
    saved_dtype=lambda trained: "float32",  # noqa: ARG005
    # One queue of work keeps its order: communication begins beside the matrices it is to overlap
    # with, as megatron-core expects.
    environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    missing=missing,
    problems=sharding_problems,
    settings_problems=lambda sharding: megatron_problems(
        sharding.trained.megatron, sharding.world_size, section=sharding.section
    ),
    model_problems=lambda model, section, key: model_problems(model, section=section, key=key),
    together_problems=together_problems,
)
