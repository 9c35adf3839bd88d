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
from dataclasses import asdict, dataclass
from typing import Any

from rmrl.config.schema import ActorConfig, CriticConfig, RewardTrainingConfig
from rmrl.heartbeat import heartbeat
from rmrl.logs import write_to
from rmrl.reward_training.calibration_map import write_map
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.gate import compare_engines, gate_items
from rmrl.reward_training.model_card import write_card
from rmrl.reward_training.process_group import ProcessGroup, process_group
from rmrl.reward_training.results import run_report, write_report, write_reward_yaml
from rmrl.reward_training.reward_engine import RewardSettings
from rmrl.reward_training.training import BEST, Training
from rmrl.telemetry.sinks import SinkContext, open_sinks
from rmrl.trainer import output_dir
from rmrl.trainer.saves import Saves

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A finished run."""

    report: dict[str, Any]


def run(checked: CheckedRewardTraining, *, config_text: str) -> Trained:
    """Train to the end, or go on with a run that was broken off.

    Raises GateError where the saved model scores otherwise in one of the engines; everything is
    kept then.
    """
    return asyncio.run(run_async(checked, config_text))


async def run_async(checked: CheckedRewardTraining, config_text: str) -> Trained:
    """See `run`."""
    out = checked.out
    with output_dir.claim(
        out,
        config=checked.config,
        config_text=config_text,
        resume_mode=checked.config.trainer.resume_mode,
    ) as claim:
        write_to(out / output_dir.LOG_FILE)
        async with _training(checked, claim.config_fingerprint) as training:
            with training.stopping_on_signal():
                await training.train()
            plain = await training.group.plain_scores(
                str(out / BEST),
                [row.tolist() for item in gate_items(checked) for row in item.tokens],
            )
        report = run_report(checked, training.state)
        write_reward_yaml(checked, calibrated=write_map(checked, training.state))
        write_report(checked, report)
        await compare_engines(checked, training.state, plain, report)
        write_report(checked, report)
        write_card(checked, report)
    _log.info(f"finished at step {training.state.step}; everything is in {out}")
    return Trained(report=report)


@asynccontextmanager
async def _training(
    checked: CheckedRewardTraining, config_fingerprint: str
) -> AsyncIterator[Training]:
    """Start the processes; they end with the block."""
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
            root=checked.out / "checkpoints",
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
    """Return the work of the training engine. The head is the critic's."""
    config = checked.config
    settings = _train_settings(config)
    return RewardSettings(
        objective=config.objective,
        loss=config.loss,
        total_steps=checked.total_steps,
        device="cuda" if checked.device == "cuda" else "cpu",
        labels=checked.objective.outputs,
        **settings,
    )


def _train_settings(config: RewardTrainingConfig) -> dict[str, Any]:
    trained: dict[str, Any] = {
        "strategy": "fsdp2",
        "optim": config.optim,
        "fsdp_config": config.fsdp_config,
        "grad_clip": config.trainer.grad_clip,
        "ppo_max_token_len_per_gpu": config.trainer.max_tokens_per_gpu,
        "ppo_epochs": 1,
    }
    shared: dict[str, Any] = {
        "model": config.model,
        "actor": ActorConfig(**trained),
        "seed": config.trainer.seed,
        "own_tokens": True,
    }
    return {**shared, "role": "critic", "critic": CriticConfig(**trained)}


__all__ = ["Trained", "reward_settings", "run"]
