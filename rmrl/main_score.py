"""Entry of offline scoring: rows with responses in, the same rows with their scores out.

    python -m rmrl.main_score reward.models=[a,b] reward.weights=[0.3,0.5] \\
        data.files=responses.parquet out=scored.parquet
    rmrl score reward.models=[a,b] data.files=responses.parquet --dry-run

With --dry-run it prints how many requests and tokens that is and the first input of each model, and
starts and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from functools import partial

from rmrl.config.load import run_command, shipped
from rmrl.config.schema import ScoreConfig
from rmrl.exit import ended_by_signals, ends_with_its_reader, exit_code
from rmrl.logs import begin_run
from rmrl.usage import asks_for_help, short_help

_log = logging.getLogger("rmrl.main_score")  # under python -m its __name__ is another

KEYS = {
    "reward.models": "names of rewards, e.g. [gsm8k,judge]",
    "reward.weights": "a weight each, e.g. [0.3,0.5]",
    "reward.specs.NAME.path": "folder or hub id of the model of a reward",
    "reward": "a file with the whole section: reward=path/to/section.yaml",
    "data.files": "parquet, jsonl or csv files of rows with responses",
    "data.prompt_key": "column of the prompt",
    "data.response_key": "column of the response, or list of responses",
    "out": "file to write: .parquet, .jsonl or .csv",
    "select": "best: a further file with the best response of each prompt",
    "trainer.device": "auto, cuda or cpu",
}
"""Keys that people use."""


_DRY_RUN = "--dry-run"


def run(config: ScoreConfig, *, is_dry: bool = False) -> None:
    """Check everything cheap, then start engines and score. `is_dry`: print what would be asked
    instead."""
    begin_run(config.trainer.log_level)
    _log.info("checking the configuration, the data and the rewards")
    from rmrl.offline.check import check_scoring

    needs_out = bool(config.out) or not is_dry
    functions = shipped("reward_functions")
    checked = check_scoring(config, shipped_functions=functions, needs_out=needs_out)
    if is_dry:
        from rmrl.offline.dry_run import dry_run

        print(asyncio.run(dry_run(checked)), flush=True)
        return

    from rmrl.offline.score import judge_missing, open_scorer, score_files, write_summary

    assert checked.out is not None
    summary = score_files(
        checked, lambda: open_scorer(checked), on_written=partial(write_summary, checked.out)
    )
    print("\n".join(filter(None, [summary.table(), summary.times()])), flush=True)
    judge_missing(checked, summary)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall, 6 data,
    130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if asks_for_help(given):
        print(short_help("score", __doc__, KEYS))
        return 0
    is_dry = _DRY_RUN in given
    words = [word for word in given if word != _DRY_RUN]
    with exit_code() as code, ended_by_signals():
        run_command(words, partial(run, is_dry=is_dry), ScoreConfig)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
