"""`rmrl train`, which is also `python -m rmrl.main_ppo`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rmrl.commands.command import FUNCTIONS, MODEL_KEYS, KeyCommand
from rmrl.config.load import to_yaml
from rmrl.config.schema import Config
from rmrl.signals import stopping_after_step
from rmrl.startup import quick_imports

if TYPE_CHECKING:
    from rmrl.trainer.check_run import Checked

_log = logging.getLogger(__name__)


class Train(KeyCommand[Config, "Checked", None]):
    """Train a policy on its rewards."""

    examples = (
        "python -m rmrl.main_ppo reward.models=[gsm8k,math_verify] reward.weights=[0.3,0.5] \\",
        "    data.train_files=train.parquet actor_rollout_ref.model.path=.models/smollm2",
    )
    handles_signals = True
    root = Config
    checking = "the configuration, the data and the rewards"
    keys = MODEL_KEYS | {
        "data.train_files": "parquet, jsonl or csv files of prompts",
        "actor_rollout_ref.model.path": "folder or hub id of the policy",
        "algorithm.adv_estimator": "grpo, gae, rloo, ...; with +recipe=dapo and others as a whole",
        "data.train_batch_size": "prompts of a step",
        "actor_rollout_ref.rollout.n": "responses to each prompt",
        "data.max_response_length": "tokens of a response",
        "trainer.total_training_steps": "steps of the run",
    }

    def check(self, settings: Config) -> Checked:
        """Check without starting a process."""
        with quick_imports():
            from rmrl.trainer.check_run import check
        return check(settings, shipped_functions=FUNCTIONS)

    def run(self, checked: Checked) -> None:
        """Start processes and train, unless the run is finished."""
        if checked.finished_step is not None:
            _log.info(
                f"this run is finished: {checked.out_dir} has a checkpoint of step"
                f" {checked.finished_step} of {checked.total_steps}; raise trainer.total_epochs,"
                " trainer.total_training_steps or trainer.early_stop to train on, or choose another"
                " trainer.experiment_name"
            )
            return
        with quick_imports():  # here, not above: a mistyped command line need not wait for Ray
            from rmrl.trainer.build_run import build
            from rmrl.trainer.loop import train

        async def go() -> None:
            async with build(checked, config_text=to_yaml(checked.config)) as training:
                with stopping_after_step(training):
                    await train(training)

        asyncio.run(go())
