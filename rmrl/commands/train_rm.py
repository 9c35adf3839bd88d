"""`rmrl train-rm`, which is also `python -m rmrl.main_rm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmrl.commands.command import KeyCommand
from rmrl.config.load import to_yaml
from rmrl.config.schema import RewardTrainingConfig
from rmrl.startup import quick_imports

if TYPE_CHECKING:
    from rmrl.reward_training.check_reward_training import CheckedRewardTraining
    from rmrl.reward_training.run_reward_training import Trained


class TrainRm(KeyCommand[RewardTrainingConfig, "CheckedRewardTraining", "Trained"]):
    """Train a reward model. The run ends with the model, a `reward.yaml` that scores with it, and a
    report."""

    examples = (
        "rmrl train-rm data.train_files=pairs.jsonl model.path=<base> out=rm",
        "rmrl score reward=rm/reward.yaml data.files=responses.jsonl out=scored.jsonl",
    )
    handles_signals = True
    root = RewardTrainingConfig
    checking = "the configuration and the data"
    keys = {
        "data.train_files": "parquet, jsonl or csv files of rows with labels",
        "data.val_files": "held-out rows; null: a tenth of the training prompts",
        "model.path": "folder or hub id of the model to start from",
        "objective": "bradley_terry, ...",
        "optim.lr": "learning rate",
        "trainer.total_training_steps": "steps of the run",
        "out": "folder of the model, reward.yaml and the report",
    }

    def check(self, settings: RewardTrainingConfig) -> CheckedRewardTraining:
        """Read the data and tokenize it, without starting a process."""
        with quick_imports():
            from rmrl.reward_training.check_reward_training import check

        return check(settings)

    def run(self, checked: CheckedRewardTraining) -> Trained:
        """Train, save, compare the engines, and write the report."""
        with quick_imports():
            from rmrl.reward_training.run_reward_training import run

        return run(checked, config_text=to_yaml(checked.config))

    def show(self, checked: CheckedRewardTraining, result: Trained) -> None:
        """Print the table for the held-out rows, and what to type next."""
        from rmrl.reward_training.results import console

        print(console(checked, result.report), flush=True)
