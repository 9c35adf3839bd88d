"""Entry of training: compose the configuration, check it, build the run, run it.

    python -m rmrl.main_ppo reward.models=[a,b] reward.weights=[0.3,0.5] \\
        data.train_files=... actor_rollout_ref.model.path=...
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

from rmrl.config.load import run_command, shipped, to_yaml
from rmrl.config.schema import Config
from rmrl.exit import ends_with_its_reader, exit_code
from rmrl.logs import begin_run
from rmrl.startup import quick_imports
from rmrl.usage import asks_for_help, short_help

_log = logging.getLogger("rmrl.main_ppo")  # under python -m its __name__ is another

KEYS = {
    "reward.models": "names of rewards, e.g. [gsm8k,judge]",
    "reward.weights": "a weight each, e.g. [0.3,0.5]",
    "reward.specs.NAME.path": "folder or hub id of the model of a reward",
    "data.train_files": "parquet, jsonl or csv files of prompts",
    "actor_rollout_ref.model.path": "folder or hub id of the policy",
    "algorithm.adv_estimator": "grpo, gae, rloo, ...; with +recipe=dapo and others as a whole",
    "data.train_batch_size": "prompts of a step",
    "actor_rollout_ref.rollout.n": "responses to each prompt",
    "data.max_response_length": "tokens of a response",
    "trainer.total_training_steps": "steps of the run",
}
"""Keys that people use."""


def run(config: Config) -> None:
    """Check everything cheap, then start processes and train."""
    begin_run(config.trainer.log_level)
    _log.info("checking the configuration, the data and the rewards")
    with quick_imports():
        from rmrl.trainer.check import check

    checked = check(config, shipped_functions=shipped("reward_functions"))
    if checked.finished_step is not None:
        _log.info(
            f"this run is finished: {checked.out_dir} has a checkpoint of step"
            f" {checked.finished_step} of {checked.total_steps}; raise trainer.total_epochs or"
            " trainer.total_training_steps to train on, or choose another trainer.experiment_name"
        )
        return

    with quick_imports():  # here, not above: a mistyped command line need not wait for Ray
        from rmrl.trainer.build import build
        from rmrl.trainer.loop import train

    async def go() -> None:
        async with build(checked, config_text=to_yaml(config)) as training:
            with training.stopping_on_signal():
                await train(training)

    asyncio.run(go())


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall, 6 data,
    130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if asks_for_help(given):
        print(short_help("train", __doc__, KEYS))
        return 0
    with exit_code() as code:
        run_command(given, run)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
