"""Entry of calibration: rows with people's labels in, a map from scores to P(good) out.

    python -m rmrl.main_calibrate reward.models=[judge] reward.specs.judge.path=... \\
        data.files=labelled.jsonl calibrate.label=label out=runs/calibration
    python -m rmrl.main_calibrate reward.models=[judge] ... calibrate.scored=true \\
        data.files=scored.jsonl calibrate.label=label out=runs/calibration
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from rmrl.config.load import run_command, shipped
from rmrl.config.schema import CalibrateConfig
from rmrl.exit import ended_by_signals, ends_with_its_reader, exit_code
from rmrl.logs import begin_run
from rmrl.usage import asks_for_help, short_help

_log = logging.getLogger("rmrl.main_calibrate")  # under python -m its __name__ is another

KEYS = {
    "reward.models": "names of rewards, e.g. [gsm8k,judge]",
    "reward.weights": "a weight each, e.g. [0.3,0.5]",
    "reward.specs.NAME.path": "folder or hub id of the model of a reward",
    "reward": "a file with the whole section: reward=path/to/section.yaml",
    "data.files": "rows with people's labels",
    "calibrate.label": "column of the labels",
    "calibrate.scored": "true: the rows are scored already",
    "data.prompt_key": "column of the prompt",
    "out": "folder of the calibration",
    "trainer.device": "auto, cuda or cpu",
}
"""Keys that people use."""


def run(config: CalibrateConfig) -> None:
    """Check everything cheap, then score where that is left to do, fit and write."""
    begin_run(config.trainer.log_level)
    _log.info("checking the configuration, the labels and the rewards")
    from rmrl.evaluation.calibrate.check import check_calibration
    from rmrl.evaluation.calibrate.run import run_calibrate
    from rmrl.evaluation.calibrate.table import console

    checked = check_calibration(config, shipped_functions=shipped("reward_functions"))
    print(console(run_calibrate(checked)), flush=True)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall, 6 data,
    130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if asks_for_help(given):
        print(short_help("calibrate", __doc__, KEYS))
        return 0
    with exit_code() as code, ended_by_signals():
        run_command(given, run, CalibrateConfig)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
