"""`rmrl check`: the rewards on a few rows, before a long run."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rmrl.commands.command import COLUMNS, FUNCTIONS, REWARD_KEYS, FlagCommand
from rmrl.config.command_line import add_file_flags, file_flags
from rmrl.config.compat import own_arguments
from rmrl.config.installed import refuse_other_rmrl
from rmrl.config.load import compose_config, starts_training
from rmrl.config.schema import Config, ScoreConfig, ScoreTrainerConfig
from rmrl.errors import ConfigError, DataError
from rmrl.logs import begin_run

if TYPE_CHECKING:
    from rmrl.data.responses import AnsweredRow
    from rmrl.offline.check_scoring import CheckedScoring
    from rmrl.offline.estimate import Workload
    from rmrl.rewards.session.items import ResponseRow
    from rmrl.rewards.specs.spec import RewardSpec
    from rmrl.trainer.check_run import Checked
    from rmrl.types import Prompt

_log = logging.getLogger(__name__)

_SCANNED_ROWS = 10_000
"""Rows of a file in which the first ones of every data source are looked for."""
_ESTIMATED_RESPONSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One check's displays and measurements."""

    checked: CheckedScoring
    rows: list[ResponseRow]
    """Responses to display."""
    compared: list[ResponseRow]
    """Responses on which the dependence of scores on their batch is measured."""
    workload: Workload | None
    """Responses for which the cost is estimated, None without an estimate."""


class Check(FlagCommand[Plan, None]):
    """The first takes rows with responses, as `rmrl score` does. The second takes training's
    prompts, with the reference answer as the response. Displayed for a row from every data source
    and each reward: what the reward reads, what it answers, the score read from that, and the
    seconds it took. Rewards that compute in bfloat16 or float16 are scored on a few rows
    (--shift-rows) together and one by one: how far do their scores move? Last comes an estimate:
    seconds and tokens for one training step, or for a thousand responses in the file."""

    usage = "[key=value ...] [flags]"
    examples = (
        "rmrl check reward.models=[gsm8k,math_verify] data.files=responses.parquet",
        "rmrl check <the arguments of rmrl train>",
    )
    keys = REWARD_KEYS | {
        "data.files": "rows with responses, as for rmrl score",
        "data.columns": COLUMNS,
        "data.train_files": "prompts, as for rmrl train",
        "actor_rollout_ref.model.path": "folder or hub id of the policy",
        "data.max_response_length": "tokens of a response, for the estimate of a step",
        "trainer.device": "auto, cuda or cpu",
    }

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the flags; keys are scoring's or training's."""
        parser.add_argument(
            "--rows",
            type=_at_least(1),
            default=1,
            metavar="N",
            help="rows to show of every data source (default: %(default)s)",
        )
        parser.add_argument(
            "--shift-rows",
            type=_at_least(0),
            default=4,
            metavar="N",
            help=(
                "rows that rewards in reduced precision score together and one by one; 0: none"
                " (default: %(default)s)"
            ),
        )
        parser.add_argument(
            "--estimate-rows",
            type=_at_least(0),
            default=8,
            metavar="N",
            help=(
                "responses on which each reward is timed, to estimate seconds and tokens of a"
                f" step, or of {_ESTIMATED_RESPONSES:,} responses of a file; 0: none (default:"
                " %(default)s)"
            ),
        )
        parser.add_argument(
            "--response",
            action="append",
            metavar="TEXT",
            help="score this text instead of the row's own response; several make a group",
        )
        add_file_flags(parser)
        parser.add_argument(
            "overrides",
            nargs="*",
            metavar="key=value",
            help="configuration, as for rmrl score or rmrl train",
        )

    def check(self, settings: argparse.Namespace) -> Plan:
        """Check the configuration, and choose the rows."""
        refuse_other_rmrl()
        words = own_arguments([*file_flags(settings), *settings.overrides])
        settings.overrides = words
        keys = {text.lstrip("+~").partition("=")[0] for text in words}
        of_training = not keys.isdisjoint(("data.train_files", "actor_rollout_ref.model.path"))
        if of_training or starts_training(words):
            return _of_training(settings)
        return _of_scoring(settings)

    def run(self, checked: Plan) -> None:
        """Start the engines, and print the scores and then the estimate."""
        from rmrl.cluster.watch import unless_lost
        from rmrl.offline.estimate import estimate
        from rmrl.offline.open_scorer import open_scorer
        from rmrl.offline.show import for_looking, show

        async def go() -> None:
            async with open_scorer(for_looking(checked.checked)) as scorer:
                text = await unless_lost(show(scorer, checked.rows, compared=checked.compared))
                print(text, flush=True)
                if checked.workload is not None:
                    lines = await unless_lost(estimate(scorer, checked.workload))
                    print("\n" + "\n  ".join(lines))

        asyncio.run(go())


def _begin(log_level: str) -> None:
    begin_run(log_level)
    _log.info("checking the configuration, the rewards and the first rows")


def _of_scoring(arguments: argparse.Namespace) -> Plan:
    from rmrl.data.responses import answered_rows
    from rmrl.offline.check_scoring import check_scoring
    from rmrl.offline.estimate import first_of_each, of_rows
    from rmrl.offline.open_scorer import token_counter
    from rmrl.offline.response_rows import response_rows

    config = compose_config(arguments.overrides, ScoreConfig)
    _begin(config.trainer.log_level)
    checked = check_scoring(config, shipped_functions=FUNCTIONS, needs_out=False)
    compared_count = _compared_count(arguments, checked.specs)
    answered = answered_rows(config.data, count_tokens=token_counter(checked))
    scanned = list(itertools.islice(answered, _SCANNED_ROWS))
    if not scanned:
        raise DataError(
            "data.files has no row that can be read, so there is nothing to show; without"
            " data.on_bad_row=quarantine the first bad row is named"
        )
    sources = [row.prompt.data_source for row in scanned]
    displayed = [scanned[position] for position in first_of_each(sources, arguments.rows)]

    def rows(answered: Sequence[AnsweredRow]) -> list[ResponseRow]:
        if not arguments.response:
            return response_rows(answered)
        prompts = [row.prompt for row in answered]
        return _response_rows(prompts, [arguments.response] * len(prompts))

    workload = None
    if arguments.estimate_rows:
        measured = rows(scanned[: arguments.estimate_rows])
        workload = of_rows(measured, responses=_ESTIMATED_RESPONSES)
    return Plan(
        checked=checked,
        rows=rows(displayed),
        compared=rows(scanned[:compared_count]),
        workload=workload,
    )


def _of_training(arguments: argparse.Namespace) -> Plan:
    from rmrl.doctor.engines import transport_line
    from rmrl.offline.check_scoring import CheckedScoring, depends_on_batch, needs_whole_groups
    from rmrl.offline.estimate import first_of_each
    from rmrl.rewards.session.items import OTHER_ANSWER
    from rmrl.trainer.check_run import check

    config = compose_config(arguments.overrides, Config)
    _begin(config.trainer.log_level)
    training = check(config, shipped_functions=FUNCTIONS, needs_out=False)
    _log.info(transport_line(training.weight_transport))
    if training.train_prompts is None:
        raise ConfigError(
            "data.train_files is empty: rmrl check displays the rewards of its first prompts"
        )
    groups = needs_whole_groups(training.specs, config.reward)
    trainer = ScoreTrainerConfig()
    for field in dataclasses.fields(trainer):
        if hasattr(config.trainer, field.name):
            setattr(trainer, field.name, getattr(config.trainer, field.name))
    trainer.trust_remote_code = config.actor_rollout_ref.model.trust_remote_code
    checked = CheckedScoring(
        config=ScoreConfig(reward=config.reward, trainer=trainer, ray_kwargs=config.ray_kwargs),
        device=training.device,
        specs=training.specs,
        engines=training.engines,
        budget=training.budget,
        whole_groups=groups,
        by_batch=depends_on_batch(training.specs),
    )
    table = training.train_prompts
    displayed = [table[i] for i in first_of_each(table.data_sources(), arguments.rows)]
    compared = table[: _compared_count(arguments, training.specs)]

    def rows(prompts: Sequence[Prompt]) -> list[ResponseRow]:
        texts: list[list[str]] = []
        for prompt in prompts:
            answers = [prompt.ground_truth or OTHER_ANSWER]
            if groups:
                answers.append(OTHER_ANSWER)
            texts.append(arguments.response or answers)
        return _response_rows(prompts, texts)

    workload = None
    if arguments.estimate_rows:
        workload = _step(training, count=arguments.estimate_rows)
    return Plan(checked=checked, rows=rows(displayed), compared=rows(compared), workload=workload)


def _step(training: Checked, *, count: int) -> Workload:
    """Return one training step. Each reward is measured on `count` responses."""
    from rmrl.offline.estimate import Workload, step_rows
    from rmrl.telemetry.clock import rough_duration
    from rmrl.tokenizer import policy_tokenizer
    from rmrl.trainer.cost import policy_cost

    assert training.train_prompts is not None
    config = training.config
    table = training.train_prompts
    cost = policy_cost(
        config,
        device=training.device,
        reference=training.needs_reference,
        prompt_tokens=float(table.lengths.mean()),
    )
    seconds = "its seconds on a GPU are not estimated"
    if cost.seconds is not None:
        seconds = f"about {rough_duration(cost.seconds)}"
    measured = partial(
        step_rows,
        table,
        count=count,
        group_size=config.actor_rollout_ref.rollout.n,
        tokens=config.data.max_response_length,
        coder=policy_tokenizer(config.actor_rollout_ref.model),
    )
    return Workload(
        title=f"one step with all {cost.responses:,} responses at full length",
        responses=cost.responses,
        sources=Counter(table.data_sources()),
        rows_of=measured,
        before=(
            f"policy: {cost.prompt_tokens:,} tokens of prompts and {cost.response_tokens:,} of"
            f" responses, {seconds}",
        ),
        seconds_before=cost.seconds,
        of_step=True,
    )


def _compared_count(arguments: argparse.Namespace, specs: Sequence[RewardSpec]) -> int:
    """Return how many rows to score in two ways: none where no reward computes in reduced
    precision."""
    from rmrl.offline.batch_dependence import reduced_types

    return arguments.shift_rows if any(map(reduced_types, specs)) else 0


def _response_rows(prompts: Sequence[Prompt], texts: Sequence[Sequence[str]]) -> list[ResponseRow]:
    from rmrl.rewards.session.items import made_up_response

    rows: list[ResponseRow] = []
    for group, prompt in enumerate(prompts):
        for text in texts[group]:
            rows.append(made_up_response(prompt, text, group))
    return rows


def _at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number for argparse."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more")
        return value

    return number
