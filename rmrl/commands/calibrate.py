"""`rmrl calibrate`: a map from a reward's scores to the probability that people call them good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmrl.commands.command import COLUMNS, FUNCTIONS, REWARD_KEYS, KeyCommand
from rmrl.config.schema import CalibrateConfig

if TYPE_CHECKING:
    from rmrl.evaluation.calibrate.check_calibration import CheckedCalibration


class Calibrate(KeyCommand[CalibrateConfig, "CheckedCalibration", Mapping[str, Any]]):
    """Score the rows, or read the scores in them, and fit a map per reward."""

    examples = (
        "python -m rmrl.main_calibrate reward.models=[relevance] \\",
        "    reward.specs.relevance.path=.models/ms-marco-minilm data.files=labelled.jsonl \\",
        "    calibrate.label=label out=runs/calibration",
        "rmrl calibrate reward=path/to/section.yaml calibrate.scored=true \\",
        "    data.files=scored.jsonl calibrate.label=label out=runs/calibration",
    )
    root = CalibrateConfig
    checking = "the configuration, the labels and the rewards"
    keys = REWARD_KEYS | {
        "data.files": "rows with people's labels",
        "calibrate.label": "column of the labels",
        "calibrate.scored": "true: the rows are scored already",
        "data.columns": COLUMNS,
        "out": "folder of the calibration",
        "trainer.device": "auto, cuda or cpu",
    }

    def check(self, settings: CalibrateConfig) -> CheckedCalibration:
        """Count the labels, and check the rewards without starting an engine."""
        from rmrl.evaluation.calibrate.check_calibration import check_calibration

        return check_calibration(settings, shipped_functions=FUNCTIONS)

    def run(self, checked: CheckedCalibration) -> Mapping[str, Any]:
        """Score where that is left to do, fit, and write the maps."""
        from rmrl.evaluation.calibrate.run_calibrate import run_calibrate

        return run_calibrate(checked)

    def show(self, checked: CheckedCalibration, result: Mapping[str, Any]) -> None:
        """Print each map's figures."""
        from rmrl.evaluation.calibrate.calibration_tables import console

        print(console(result), flush=True)
