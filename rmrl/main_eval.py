"""Entry of evaluation: a benchmark of judges and reward models in, its figures out.

    python -m rmrl.main_eval eval.format=rewardbench data.files=filtered.parquet \\
        reward.models=[a,b] out=runs/rewardbench
    python -m rmrl.main_eval eval.format=llmbar eval.recorded=judge_outputs.jsonl out=runs/llmbar
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from rmrl.config.load import run_command, shipped
from rmrl.config.schema import EvalConfig
from rmrl.exit import ended_by_signals, ends_with_its_reader, exit_code
from rmrl.logs import begin_run
from rmrl.usage import asks_for_help, short_help

_log = logging.getLogger("rmrl.main_eval")  # under python -m its __name__ is another

KEYS = {
    "reward.models": "names of rewards, e.g. [gsm8k,judge]",
    "reward.weights": "a weight each, e.g. [0.3,0.5]",
    "reward.specs.NAME.path": "folder or hub id of the model of a reward",
    "reward": "a file with the whole section: reward=path/to/section.yaml",
    "eval.format": "layout of the benchmark, e.g. rewardbench",
    "data.files": "files of the benchmark",
    "eval.recorded": "file of recorded judgements, in the place of rewards",
    "eval.choices": "names of first, second and tie in recorded verdicts",
    "out": "folder of the report",
    "trainer.device": "auto, cuda or cpu",
}
"""Keys that people use."""


def run(config: EvalConfig) -> None:
    """Check everything cheap, then score where rewards are named, and report."""
    begin_run(config.trainer.log_level)
    _log.info("checking the configuration, the benchmark and the rewards")
    from rmrl.evaluation.check import check_eval
    from rmrl.evaluation.run import run_eval
    from rmrl.evaluation.table import console

    checked = check_eval(config, shipped_functions=shipped("reward_functions"))
    evaluation = run_eval(checked)
    print(console(evaluation.numbers), flush=True)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall, 6 data,
    130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if asks_for_help(given):
        print(short_help("eval", __doc__, KEYS))
        return 0
    with exit_code() as code, ended_by_signals():
        run_command(given, run, EvalConfig)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
