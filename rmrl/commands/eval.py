"""`rmrl eval`: judges' and reward models' figures on a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmrl.commands.command import FUNCTIONS, REWARD_KEYS, KeyCommand
from rmrl.config.schema import EvalConfig

if TYPE_CHECKING:
    from rmrl.evaluation.check_eval import CheckedEval
    from rmrl.evaluation.report import Evaluation


class Eval(KeyCommand[EvalConfig, "CheckedEval", "Evaluation"]):
    """Score the benchmark's responses, or read judgements that were recorded."""

    examples = (
        "python -m rmrl.main_eval eval.format=rewardbench data.files=filtered.parquet \\",
        "    reward.models=[relevance] reward.specs.relevance.path=.models/ms-marco-minilm \\",
        "    out=runs/rewardbench",
        "python -m rmrl.main_eval eval.format=llmbar eval.recorded=judge_outputs.jsonl"
        " out=runs/llmbar",
    )
    root = EvalConfig
    checking = "the configuration, the benchmark and the rewards"
    keys = REWARD_KEYS | {
        "eval.format": "layout of the benchmark, e.g. rewardbench",
        "data.files": "files of the benchmark",
        "eval.recorded": "file of recorded judgements, in the place of rewards",
        "eval.choices": "names of first, second and tie in recorded verdicts",
        "out": "folder of the report",
        "trainer.device": "auto, cuda or cpu",
    }

    def check(self, settings: EvalConfig) -> CheckedEval:
        """Read the benchmark, and check the rewards without starting an engine."""
        from rmrl.evaluation.check_eval import check_eval

        return check_eval(settings, shipped_functions=FUNCTIONS)

    def run(self, checked: CheckedEval) -> Evaluation:
        """Score where rewards are named, and write the report."""
        from rmrl.evaluation.run_eval import run_eval

        return run_eval(checked)

    def show(self, checked: CheckedEval, result: Evaluation) -> None:
        """Print the report's tables."""
        from rmrl.evaluation.eval_tables import console

        print(console(result.numbers), flush=True)
