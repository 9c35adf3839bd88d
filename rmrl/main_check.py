"""Entry of `rmrl check`: look at the rewards before a long run.

rmrl check reward.models=[a,b] data.files=responses.parquet     rows with responses, as for `rmrl score`
rmrl check <the arguments of rmrl train>                        its prompts; the response is the reference answer, or --response TEXT
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmrl.config.load import compose_config, shipped
from rmrl.config.schema import Config, ScoreConfig, ScoreTrainerConfig
from rmrl.exit import exit_code, say

if TYPE_CHECKING:
    from rmrl.offline.check import CheckedScoring
    from rmrl.rewards.items import ResponseRow

    Shown = tuple[CheckedScoring, list[ResponseRow]]


def run(given: argparse.Namespace) -> None:
    """Check, start the engines, show."""
    from rmrl.offline.show import show

    if any(text.lstrip("+").startswith("data.train_files") for text in given.overrides):
        checked, rows = _of_training(compose_config(given.overrides), given)
    else:
        checked, rows = _of_scoring(compose_config(given.overrides, ScoreConfig), given)
    print(asyncio.run(show(checked, rows, notice=say)))


def _of_scoring(config: ScoreConfig, given: argparse.Namespace) -> Shown:
    from rmrl.data.responses import answered_rows
    from rmrl.offline.check import check_scoring
    from rmrl.offline.score import response_rows, token_counter

    checked = check_scoring(config, shipped_functions=shipped("reward_functions"), notice=say, needs_out=False)
    read = itertools.islice(answered_rows(config.data, count_tokens=token_counter(checked)), given.rows)
    rows = response_rows(list(read))
    return checked, [dataclasses.replace(row, text=given.response) for row in rows] if given.response is not None else rows


def _of_training(config: Config, given: argparse.Namespace) -> Shown:
    from rmrl.offline.check import CheckedScoring
    from rmrl.rewards.items import ResponseRow
    from rmrl.trainer.check import check

    found = check(config, shipped_functions=shipped("reward_functions"), notice=say)
    assert found.train_prompts is not None
    shared = {f.name for f in dataclasses.fields(ScoreTrainerConfig)} & {f.name for f in dataclasses.fields(config.trainer)}
    trainer = ScoreTrainerConfig(
        **{name: getattr(config.trainer, name) for name in shared}, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code
    )
    scoring = ScoreConfig(reward=config.reward, trainer=trainer, ray_kwargs=config.ray_kwargs)
    checked = CheckedScoring(
        config=scoring, device=found.device, specs=found.specs, files=(), out=None, engines=found.engines, budget=found.budget
    )
    prompts = found.train_prompts[: given.rows]
    texts = [given.response if given.response is not None else prompt.ground_truth or "" for prompt in prompts]
    return checked, [ResponseRow(prompt=prompt, text=text, group=i) for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code, as that of training."""
    parser = argparse.ArgumentParser(prog="rmrl check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1, help="rows to show (default: %(default)s)")
    parser.add_argument("--response", help="score this text instead of the row's own response")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="configuration, as for rmrl score or rmrl train")
    given = parser.parse_args(sys.argv[1:] if arguments is None else list(arguments))
    with exit_code() as code:
        run(given)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
