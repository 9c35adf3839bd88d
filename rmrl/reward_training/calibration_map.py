"""A map from the trained model's scores to P(good), fitted on the held-out pairs: the better
response of a pair is good, the worse one is not."""

from __future__ import annotations

import logging

from rmrl.config.schema import CalibrateConfig, CalibrationConfig
from rmrl.errors import ConfigError, DataError
from rmrl.evaluation.calibrate.check_calibration import CheckedCalibration
from rmrl.evaluation.calibrate.run_calibrate import Column, probability_map, write_maps
from rmrl.offline.rewards import AsyncRewards
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.results import reward_name, reward_section
from rmrl.reward_training.training import State
from rmrl.rewards.calibration.digest import reward_digest

_log = logging.getLogger(__name__)

FOLDER = "calibration"


def write_map(checked: CheckedRewardTraining, state: State) -> bool:
    """Write the map that `transform: {kind: calibrated}` reads. Return False, with the reason in
    the log, where there are too few held-out pairs, or the map would not rise."""
    column = Column()
    for number, item in enumerate(checked.held_out.items):
        ends = checked.split.held_out[item.number].ends
        if ends is not None and state.best:
            for response, good in zip(ends, (True, False), strict=True):
                column.add(state.best[number][response][0], good, number)
    if not column.scores:
        return False
    name = reward_name(checked)
    config = {"reward": reward_section(checked), "trainer": {"device": checked.device}}
    try:
        specs = AsyncRewards(config).checked.specs
        calibration = CheckedCalibration(
            config=CalibrateConfig(calibrate=CalibrationConfig(method="platt")),
            out=checked.out / FOLDER,
            specs=specs,
            digests={name: reward_digest(specs[0], specs)},
            scoring=None,
        )
        write_maps(calibration, {name: probability_map(calibration, name, column)})
    except (DataError, ConfigError) as error:
        _log.info(f"no calibration map was written: {error}")
        return False
    return True
