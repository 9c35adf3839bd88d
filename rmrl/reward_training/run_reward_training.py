"""A run that trains a reward model: start the processes, train, choose the best weights, compare
the engines, write the report.

<out>/best/, last/     Hugging Face folders: the weights with the best held-out figure, and the last
<out>/best/README.md   the model's card
<out>/reward.yaml      a section `reward` that scores with the best ones
<out>/calibration/     a map from their scores to P(good)
<out>/report.json, report.md, report.html      data, figures, baselines, the comparison of engines
<out>/checkpoints/     what a resumed run goes on from
<out>/metrics.jsonl, config.yaml, run.json, run.log      as in every run
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from rmrl.config.load import to_yaml
from rmrl.config.schema import ActorConfig, CriticConfig
from rmrl.heartbeat import heartbeat
from rmrl.logs import write_to
from rmrl.reward_training import several_seeds as seeds
from rmrl.reward_training.calibration_map import write_map
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.critics import with_critiques
from rmrl.reward_training.gate import compare_engines, compare_ensemble, gate_items
from rmrl.reward_training.held_out import TRAINED
from rmrl.reward_training.model_card import write_card
from rmrl.reward_training.own_keys import own_keys
from rmrl.reward_training.plain_scores import PlainScores
from rmrl.reward_training.process_group import ProcessGroup, process_group
from rmrl.reward_training.results import (
    best_folder,
    run_report,
    write_ensemble_yaml,
    write_report,
    write_reward_yaml,
)
from rmrl.reward_training.reward_engine import RewardSettings
from rmrl.reward_training.training import BEST, CHECKPOINTS, State, Training, newest_state
from rmrl.signals import stopping_after_step
from rmrl.telemetry.sinks import SinkContext, open_sinks
from rmrl.trainer import output_dir
from rmrl.trainer.saves import Saves

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A finished run."""

    report: dict[str, Any]


@own_keys()
def run(checked: CheckedRewardTraining, *, config_text: str) -> Trained:
    """Train to the end, or go on with a run that was broken off.

    Raises GateError where the saved model scores otherwise in an engine; everything is kept then.
    """
    return asyncio.run(run_async(checked, config_text))


async def run_async(checked: CheckedRewardTraining, config_text: str) -> Trained:
    """`run` for callers with an event loop."""
    out = checked.out
    with output_dir.claim(
        out,
        config=checked.config,
        config_text=config_text,
        resume_mode=checked.config.trainer.resume_mode,
    ) as claim:
        write_to(out / output_dir.LOG_FILE)
        checked = await with_critiques(checked)
        if checked.config.seeds > 1:
            return Trained(report=await _several(checked))
        async with _training(checked, claim.config_fingerprint) as training:
            with stopping_after_step(training):
                await training.train()
            plain = await training.group.plain_scores(best_folder(checked), gate_items(checked))
        report = run_report(checked, training.state, {TRAINED: training.state.best})
        await _finish(checked, training.state, plain, report)
    _log.info(f"finished at step {training.state.step}; everything is in {out}")
    return Trained(report=report)


async def _finish(
    checked: CheckedRewardTraining, state: State, plain: PlainScores, report: dict[str, Any]
) -> None:
    """Write what a run leaves beside its weights, and hold them against the engines."""
    write_reward_yaml(checked, calibrated=write_map(checked, state))
    write_report(checked, report)
    await compare_engines(checked, state, plain, report)
    write_report(checked, report)
    write_card(checked, report)


async def _several(checked: CheckedRewardTraining) -> dict[str, Any]:
    """Train the seeds that are left, one after another, and put them together."""
    runs = seeds.members(checked)
    for number, run in enumerate(runs, 1):
        if not seeds.is_finished(run):
            _log.info(f"seed {number} of {len(runs)}")
            await run_async(run, to_yaml(run.config))
    states = [newest_state(run.out) for run in runs]
    examples = [checked.split.held_out[item.number] for item in checked.held_out.items]
    best = [state.best for state in states]
    # Pairs and lists say nothing about a score's level; attributes do, and have weights.
    reading = checked.objective.reading
    is_free = reading.ensembles and not checked.objective.score_weights
    levels = [seeds.level(outputs, is_free=is_free) for outputs in best]
    plain: PlainScores | None = None
    if checked.config.merge == "average":
        seeds.write_average([run.out / BEST for run in runs], checked.out / BEST)
        # Its weights hold the adapters already.
        model = replace(checked.config.model, lora_rank=0)
        checked = replace(checked, config=replace(checked.config, model=model))
        settings = reward_settings(checked)
        folder = best_folder(checked)
        async with process_group(
            replace(settings, model=replace(settings.model, path=folder)),
            count=checked.processes,
            threads=checked.threads,
            timeout_s=checked.config.trainer.stall_timeout_s,
        ) as group:
            rows = await group.scores(checked.held_out.items)
            plain = await group.plain_scores(folder, gate_items(checked))
        outputs = [list(map(reading.outputs, responses)) for responses in rows]
        how = seeds.HOW if reading.ensembles else ()
        judges = seeds.judges_of(best, levels, {"average": outputs}, how=how)
    else:
        outputs = seeds.combined(best, levels, "mean")
        judges = seeds.judges_of(best, levels, {})
    state = replace(
        states[0],
        best=outputs,
        best_figures=checked.objective.quick(examples, outputs),
        seconds=sum(each.seconds for each in states),
        tokens=sum(each.tokens for each in states),
    )
    report = run_report(checked, state, judges)
    report["agreement"] = seeds.agreement(examples, best)
    if plain is not None:
        await _finish(checked, state, plain, report)
        return report
    section = seeds.ensemble_section(checked, runs, levels)
    write_ensemble_yaml(checked, section)
    write_report(checked, report)
    reports = [seeds.report_of(run) for run in runs]
    await compare_ensemble(checked, section, [each["gate"] for each in reports], report)
    write_report(checked, report)
    return report


@asynccontextmanager
async def _training(
    checked: CheckedRewardTraining, config_fingerprint: str
) -> AsyncIterator[Training]:
    """Start the processes. They end with the block."""
    trainer = checked.config.trainer
    async with AsyncExitStack() as stack:
        _log.info(f"starting {checked.processes} training process(es) on {checked.device}")
        async with heartbeat("still loading the model into its processes"):
            group: ProcessGroup = await stack.enter_async_context(
                process_group(
                    reward_settings(checked),
                    count=checked.processes,
                    threads=checked.threads,
                    timeout_s=trainer.stall_timeout_s,
                )
            )
        saves = Saves(
            root=checked.out / CHECKPOINTS,
            keep=trainer.max_ckpt_to_keep,
            config_fingerprint=config_fingerprint,
        )
        training = Training(checked=checked, group=group, saves=saves)
        resumed = await training.resume()
        context = SinkContext(
            out_dir=checked.out,
            project=trainer.project_name,
            experiment=trainer.experiment_name,
            total_steps=checked.total_steps,
            resume_step=resumed,
            config=asdict(checked.config),
        )
        training.sinks = open_sinks([*trainer.logger, "jsonl"], context)
        stack.callback(training.sinks.close)
        stack.push_async_callback(saves.close)
        yield training


def reward_settings(checked: CheckedRewardTraining) -> RewardSettings:
    """Return the training engine's work. A new head is the critic's."""
    config = checked.config
    trained: dict[str, Any] = {
        "strategy": "fsdp2",
        "optim": config.optim,
        "fsdp_config": config.fsdp_config,
        "grad_clip": config.trainer.grad_clip,
        "ppo_max_token_len_per_gpu": checked.tokens,
        "ppo_epochs": 1,
    }
    role = checked.objective.reads.role
    return RewardSettings(
        model=replace(config.model, float32_head=True),
        actor=ActorConfig(**trained),
        critic=CriticConfig(**trained) if role == "critic" else None,
        role=role,
        objective=config.objective,
        loss=config.loss,
        total_steps=checked.total_steps,
        seed=config.trainer.seed,
        device="cuda" if checked.device == "cuda" else "cpu",
        labels=checked.objective.outputs,
        own_tokens=role == "critic",
    )


__all__ = ["Trained", "reward_settings", "run"]
