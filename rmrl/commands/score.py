"""`rmrl score`: files in, the same files with scores out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rmrl.commands.command import COLUMNS, FUNCTIONS, REWARD_KEYS, KeyCommand
from rmrl.config.schema import ScoreConfig

if TYPE_CHECKING:
    from rmrl.offline.check_scoring import CheckedScoring
    from rmrl.offline.summary import Summary

_DRY_RUN = "--dry-run"


class Score(KeyCommand[ScoreConfig, "CheckedScoring", "Summary | str"]):
    """With --dry-run it prints how many requests and tokens that is and each model's first input,
    and starts and writes nothing."""

    examples = (
        "python -m rmrl.main_score reward.models=[gsm8k,math_verify] reward.weights=[0.3,0.5] \\",
        "    data.files=responses.parquet out=scored.parquet",
        "rmrl score reward.models=[gsm8k] data.files=responses.parquet --dry-run",
    )
    root = ScoreConfig
    checking = "the configuration, the data and the rewards"
    keys = REWARD_KEYS | {
        "data.files": "parquet, jsonl or csv files of rows with responses",
        "data.columns": COLUMNS,
        "data.sample": "number of rows, drawn at random; left out: all",
        "out": "file to write: .parquet, .jsonl or .csv",
        "select": "best: a further file with the best response of each prompt",
        "trainer.device": "auto, cuda or cpu",
    }
    _is_dry = False

    def start(self, words: Sequence[str]) -> int:
        """Take --dry-run from the words, which Hydra does not know."""
        self._is_dry = _DRY_RUN in words
        return super().start([word for word in words if word != _DRY_RUN])

    def check(self, settings: ScoreConfig) -> CheckedScoring:
        """Check without starting an engine. Counting requests needs no file to write."""
        from rmrl.offline.check_scoring import check_scoring

        needs_out = bool(settings.out) or not self._is_dry
        return check_scoring(settings, shipped_functions=FUNCTIONS, needs_out=needs_out)

    def run(self, checked: CheckedScoring) -> Summary | str:
        """Score the file, or count the requests."""
        if self._is_dry:
            from rmrl.offline.dry_run import dry_run

            return asyncio.run(dry_run(checked))
        from rmrl.offline.open_scorer import open_scorer
        from rmrl.offline.score import score_files, write_summary

        assert checked.out is not None
        return score_files(
            checked, partial(open_scorer, checked), on_written=partial(write_summary, checked.out)
        )

    def show(self, checked: CheckedScoring, result: Summary | str) -> None:
        """Print the statistics. Raises MissingVerdictsError where too many verdicts are missing."""
        if isinstance(result, str):
            print(result, flush=True)
            return
        from rmrl.offline.score import judge_missing

        print("\n".join(filter(None, [result.table(), result.times()])), flush=True)
        judge_missing(checked, result)
