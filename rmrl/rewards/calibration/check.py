"""Calibrations among rewards' transforms: which reward has one, and whether it is its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmrl.errors import ConfigError
from rmrl.rewards.calibration.digest import differing_parts, reward_digest
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms.calibrated import Calibrated
from rmrl.rewards.transforms.chain import chain_of
from rmrl.rewards.transforms.probability_map import ProbabilityMap


def map_of(spec: RewardSpec) -> ProbabilityMap | None:
    """Return the calibration that is the first transform of a checked reward, None without one."""
    transforms = chain_of(spec.transforms[:1], f"reward '{spec.name}' transform").transforms
    if transforms and isinstance(transforms[0], Calibrated):
        return transforms[0].map
    return None


def maps_of(specs: Sequence[RewardSpec]) -> dict[str, ProbabilityMap]:
    """Return reward -> its calibration, for those that have one."""
    maps: dict[str, ProbabilityMap] = {}
    for spec in specs:
        calibration = map_of(spec)
        if calibration is not None:
            maps[spec.name] = calibration
    return maps


def calibration_problems(specs: Sequence[RewardSpec]) -> Iterator[str]:
    """Yield a sentence for each calibration that was made for another reward, or from other numbers
    than the reward's scores. Reads calibrated rewards' checkpoints."""
    for spec in specs:
        transforms = chain_of(spec.transforms, f"reward '{spec.name}' transform").transforms
        for position, transform in enumerate(transforms):
            if not isinstance(transform, Calibrated):
                continue
            if position:
                yield (
                    f"reward '{spec.name}': calibrated is transform {position + 1}, and its map is"
                    " one of the scores as they are; put it first"
                )
                continue
            try:
                digest = reward_digest(spec, specs)
            except ConfigError as error:
                yield from error.problems
                continue
            parts = differing_parts(transform.map.digest, digest)
            if parts:
                yield (
                    f"reward '{spec.name}': {transform.file} was made for other scores, those of"
                    f" '{transform.map.reward}'; what differs: {' and '.join(parts)}; make a"
                    " calibration of this reward (rmrl calibrate with the same section reward), or"
                    " take the transform out"
                )
