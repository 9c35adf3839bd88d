"""Which processes work on the same rows, and whose results stand for them. Imports no torch: the
controller asks too."""

from __future__ import annotations

from dataclasses import dataclass

from rmrl.backends.megatron.sizes import Coordinates, Sizes
from rmrl.config.schema import TrainedConfig


@dataclass(frozen=True, slots=True)
class Dealing:
    """A batch is cut into shares; every process of a share gets all of its rows, and one of them
    answers."""

    share_of: tuple[int, ...]
    """rank -> share of the rows."""
    answering: tuple[int, ...]
    """share -> the rank whose results stand for it."""


def dealing(trained: TrainedConfig, world_size: int, *, section: str) -> Dealing:
    """Of `world_size` processes that train with these settings, which stand at `section` of the
    configuration.

    Sharded training: every process has rows of its own. Megatron: the data-parallel ones do, and
    the last stage of each pipeline answers. Raises ConfigError where the parallel sizes do not fit.
    """
    if trained.strategy != "megatron":
        return Dealing(tuple(range(world_size)), tuple(range(world_size)))
    sizes = Sizes.of(trained.megatron, world_size, section=section)
    last = sizes.pipeline - 1
    return Dealing(
        tuple(sizes.coordinates(rank).data for rank in range(world_size)),
        tuple(
            sizes.rank(Coordinates(tensor=0, context=0, data=share, pipeline=last))
            for share in range(sizes.data)
        ),
    )
