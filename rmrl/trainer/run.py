"""State of a run and the stages of the loop. It depends on the stages through their interfaces
only; build.py chooses the concrete ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.algorithms.kl import KLController
from rmrl.cluster.watch import UPDATES_END, loss, unless_lost
from rmrl.config.schema import Config, CriticConfig, TrainedConfig
from rmrl.data.dataset import PromptTable
from rmrl.data.loader import PromptLoader
from rmrl.errors import CheckpointError, ClusterLostError, Interrupted
from rmrl.rewards.calibration.check import maps_of
from rmrl.rewards.entries.listing import observed_table
from rmrl.rewards.session.monitor import Monitor
from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.sinks import Sinks
from rmrl.trainer import checkpoint
from rmrl.trainer.batches import (
    ScoredBatch,
    add_advantages,
    correct_rollout,
    logprob_difference,
    redraw,
)
from rmrl.trainer.best import Best
from rmrl.trainer.check_algorithm import estimator_of, needs_old_logprobs
from rmrl.trainer.collector import Collector
from rmrl.trainer.evaluate import validation_metrics, validation_sampling
from rmrl.trainer.loss_weights import (
    imitate_successes,
    mask_truncated,
    weighted_mini_batches,
)
from rmrl.trainer.measures import Measures
from rmrl.trainer.policy import Models, TrainedModel
from rmrl.trainer.prefetch import Published, batches
from rmrl.trainer.publish import WeightPublisher
from rmrl.trainer.records import Telemetry
from rmrl.trainer.saves import Saves
from rmrl.trainer.scored_rollouts import Round, ScoredRollouts
from rmrl.types import Metrics, Prompt, TrainBatch

_log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, kw_only=True)
class Run:
    """Everything a run owns. `step` counts finished updates; weights of version `step` are sampled
    from next."""

    config: Config
    out_dir: Path
    total_steps: int
    loader: PromptLoader | None
    """None: the run only validates."""
    val_prompts: PromptTable | None
    models: Models
    collector: Collector
    publisher: WeightPublisher
    critic: CriticConfig
    """Every null replaced by the actor's setting."""
    controller: KLController
    open_telemetry: Callable[[int | None], Telemetry]
    config_fingerprint: str
    decode: Callable[[Sequence[int]], str]
    """The policy's tokens as text."""
    measures: Measures
    monitor: Monitor | None = None
    step: int = 0
    telemetry: Telemetry | None = None
    interrupted: bool = False
    saves: Saves = dataclasses.field(init=False)
    best: Best = dataclasses.field(init=False)
    _observed: bool = False
    _published: Published = dataclasses.field(default_factory=lambda: Published(-1))
    _after: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """States of the loader and the rewards as of the last batch that was taken up. Batches sampled
    ahead are sampled again on resume."""
    _state: str = ""
    """trainer.json of the last finished step."""
    between_steps: bool = True
    """The models are those of step `step`, and so is `_state`: no update has begun since."""

    def __post_init__(self) -> None:
        self.collector.rollouts.republish = self.republish_weights
        trainer = self.config.trainer
        self.best = Best.of(trainer)
        keep = trainer.max_actor_ckpt_to_keep
        if keep is None and self.best.by is not None and trainer.save_freq == -1:
            keep = 1
        self.saves = Saves(
            root=self.out_dir / "checkpoints",
            keep=keep,
            every=trainer.save_freq,
            config_fingerprint=self.config_fingerprint,
        )

    @property
    def clock(self) -> StepClock:
        return self.collector.clock

    # --- resume and checkpoints

    async def resume(self) -> None:
        """Continue from the newest complete checkpoint, if there is one and the run may; open the
        logs at its step."""
        trainer = self.config.trainer
        newest: checkpoint.Checkpoint | None = None
        if trainer.resume_mode == "resume_path":
            newest = checkpoint.verify(Path(str(trainer.resume_from_path)))
        elif trainer.resume_mode == "auto":
            newest = checkpoint.newest_complete(self.saves.root)
        if newest is not None:
            await self._load(newest)
        if self.loader is not None:
            self._after = {
                "loader": self.loader.state_dict(),
                "rewards": self.collector.scorer.state_dict(),
            }
        self._step_is_finished()
        self.telemetry = self.open_telemetry(self.step if newest else None)
        self.clock.restart()

    async def _load(self, saved: checkpoint.Checkpoint) -> None:
        state = json.loads((saved.path / "trainer.json").read_text(encoding="utf-8"))
        if state["step"] != saved.step:
            raise CheckpointError(
                f"{saved.path}: trainer.json has step {state['step']}, the manifest {saved.step};"
                " use another one"
            )
        if saved.config_fingerprint != self.config_fingerprint:
            _log.warning(
                f"{saved.path} was saved under another configuration than this run's; it is used as"
                " asked"
            )
        if self.loader is not None:
            self.loader.load_state_dict(state["loader"])
        self.controller.load_state_dict(state["kl_controller"])
        self.collector.scorer.load_state_dict(state.get("rewards", {}))
        if self.monitor and state.get("monitor"):
            self.monitor.load_state_dict(state["monitor"])
        if saved.path.resolve().parent == self.saves.root.resolve():
            # another run's best checkpoint is not here
            self.best.load_state_dict(state.get("best", {}))
        async with self._only_training():
            for name, model in self._saved_models():
                await model.load(str(saved.path / name))
        self.step = saved.step
        self.saves.resumed(saved)
        _log.info(f"resuming from {saved.path} (step {self.step} of {self.total_steps})")

    async def write_models_if_due(self) -> None:
        """Write the models for a checkpoint while the rollout engines still sleep: after publishing
        they would have to sleep once more. `save` completes it. A lost cluster is no error here, as
        in `publish_weights`."""
        is_due = self.interrupted or self.step == self.total_steps or self.saves.is_due(self.step)
        if is_due and loss() is None:
            with contextlib.suppress(ClusterLostError), self.clock("checkpoint"):
                write = partial(self._write_models, stays=self._stays_between_stages)
                await unless_lost(self.saves.write(self.step, write))

    async def checkpoint_if_due(self) -> None:
        """Save every save_freq steps, at the last step, where a validation was the best so far, and
        when the user interrupts. Raises the error that ends the run here."""
        if lost := loss():
            raise lost
        self.saves.raise_failure()
        if self.interrupted or self.best.step == self.step or self.saves.is_due(self.step):
            await self.save()
        if self.interrupted:
            await self.saves.settle()
        if self.interrupted and self.step < self.total_steps:
            raise Interrupted(
                f"stopped at step {self.step} of {self.total_steps}; the same command goes on from"
                " there"
            )

    async def save(self) -> None:
        """Write a checkpoint of the last finished step, unless there is one. It is complete when
        `saves` has settled."""

        async def complete(folder: Path) -> None:
            if self.telemetry is not None:
                await asyncio.to_thread(self.telemetry.flush)
            (folder / "trainer.json").write_text(self._state, encoding="utf-8")

        with self.clock("checkpoint"):
            best = self.best.step
            await self.saves.save(self.step, self._write_models, complete, best=best)

    async def _write_models(self, folder: Path, *, stays: bool = False) -> None:
        hf_model = "hf_model"
        async with self._only_training(stays=stays):
            for name, model in self._saved_models():
                await model.save(str(folder / name))
            if hf_model in self.config.actor_rollout_ref.actor.checkpoint.save_contents:
                await self.models.actor.save_hf(str(folder / "hf"))
            critic = self.models.critic
            if critic is not None and hf_model in self.critic.checkpoint.save_contents:
                await critic.save_hf(str(folder / "hf_critic"))

    def _saved_models(self) -> Iterator[tuple[str, TrainedModel]]:
        """Yield the folder in a checkpoint and the model that is saved there."""
        yield "policy", self.models.actor
        if self.models.critic is not None:
            yield "critic", self.models.critic

    def _step_is_finished(self) -> None:
        """Record the state of step `step`, which checkpoints contain from here on."""
        state = {
            "step": self.step,
            **self._after,
            "kl_controller": self.controller.state_dict(),
            "monitor": self.monitor.state_dict() if self.monitor else {},
            "best": self.best.state_dict(),
        }
        self._state = json.dumps(state, indent=1)
        self.between_steps = True

    @asynccontextmanager
    async def _only_training(self, *, stays: bool = False) -> AsyncIterator[None]:
        """Free the devices for training while the rollout engines may be awake there: just started,
        or woken by the last publish. `stays`: see TrainGroup.on_device."""
        async with self.collector.locks.devices:
            await self.collector.rollouts.sleep()
            async with self.models.on_device(stays=stays):
                yield

    async def finish(self) -> None:
        """Write the last checkpoint and the curves."""
        from rmrl.telemetry.curve import draw_curves  # here: it imports matplotlib

        if self.loader is not None:
            await self.save()
            await self.saves.settle()
        folder = self.out_dir
        name = f"{folder.parent.name}/{folder.name}"
        drawn = draw_curves(folder / "metrics.jsonl", folder / "curves.png", name)
        where = f"{folder} (curves.png)" if drawn else str(folder)
        _log.info(f"finished at step {self.step}; everything is in {where}")

    # --- the stages of a step

    async def scored_rollouts(self) -> AsyncGenerator[ScoredRollouts]:
        """Yield batches sampled from weights that are at most trainer.max_staleness updates old."""
        if self.loader is None or self.best.stops:
            return
        loader = self.loader

        async def sample(step: int) -> ScoredRollouts:
            return await unless_lost(self.collector.collect(loader, step))

        steps = range(self.step, self.total_steps)
        ahead = self.config.trainer.max_staleness
        sampling = batches(sample, steps, ahead=ahead, published=self._published)
        async with aclosing(sampling) as ready:
            async for scored in ready:
                self._after = scored.after
                yield scored
                if self.best.stops:
                    break

    @property
    def _stays_between_stages(self) -> bool:
        scores_between = self.collector.scores_on_policy_devices
        return self.config.trainer.max_staleness == 0 or not scores_between

    @asynccontextmanager
    async def training(self, stage: str) -> AsyncIterator[None]:
        """Reserve the devices for training inside the block. The models stay there until the new
        weights are exported, unless a batch sampled ahead may be scored there in between."""
        async with self.collector.locks.devices:
            with self.clock(stage):
                async with self.models.on_device(stays=self._stays_between_stages):
                    yield
                await self.measures.phase_ended(stage)

    async def add_logprobs(self, batch: ScoredBatch) -> ScoredBatch:
        """Add old_logprobs where they are needed, ref_logprobs with a reference, values with a
        critic, energies for an estimator that reads them."""
        train = batch.train
        models = self.models
        if not len(train):
            return batch

        async def policy() -> dict[str, Any]:
            streams: dict[str, Any] = {}
            if self.config.algorithm.rollout_correction.bypass_mode:
                assert train.rollout_logprobs is not None, "every rollout engine returns logprobs"
                streams["old_logprobs"] = train.rollout_logprobs
            elif estimator_of(self.config).energies:
                both = await models.actor.logprobs_and_energies(train)
                streams["old_logprobs"], streams["energies"] = both
            elif needs_old_logprobs(self.config) or any(batch.teachers):
                streams["old_logprobs"] = await models.actor.logprobs(train)
            if models.reference is not None:
                streams["ref_logprobs"] = await models.reference.logprobs(train)
            return streams

        async def critic() -> dict[str, Any]:
            if models.critic is None:
                return {}
            return {"values": await models.critic.values(train)}

        streams = await unless_lost(models.side_by_side(policy, critic))
        train = dataclasses.replace(train, **streams[0], **streams[1])
        return dataclasses.replace(batch, train=train)

    def add_advantages(self, batch: ScoredBatch) -> tuple[ScoredBatch, Metrics]:
        """Estimate advantages, and correct for the difference between sampling and training
        log-probabilities."""
        if not len(batch.train):
            return batch, {}
        algorithm = self.config.algorithm
        batch, corrected = correct_rollout(batch, algorithm)
        batch, masked = mask_truncated(batch, algorithm)
        batch, imitated = imitate_successes(batch, algorithm)
        scored, metrics = add_advantages(batch, algorithm, self.controller, decode=self.decode)
        scored, redrawn = redraw(scored, algorithm, rng=self._rng("pf_ppo"))
        difference = logprob_difference(batch.train)
        return scored, metrics | difference | corrected | masked | imitated | redrawn

    async def update(self, batch: ScoredBatch) -> Metrics:
        """Take one optimizer step per mini-batch; none when no row has a reward. It may still
        finish after a loss of the cluster."""
        self.between_steps = False
        if not len(batch.train):
            step = self.step + 1
            _log.warning(f"step {step}: no response has a reward, the weights stay as they are")
            return {}

        async def policy() -> Metrics:
            if self.step < self.config.trainer.critic_warmup:
                return {}
            actor = self.config.actor_rollout_ref.actor
            return await self.models.actor.update(self._mini_batches(batch, actor))

        async def critic() -> Metrics:
            if self.models.critic is None:
                return {}
            return await self.models.critic.update(self._mini_batches(batch, self.critic))

        updates = self.models.side_by_side(critic, policy)
        of_critic, of_policy = await unless_lost(updates, until=UPDATES_END)
        return of_critic | of_policy

    def _mini_batches(self, batch: ScoredBatch, settings: TrainedConfig) -> list[TrainBatch]:
        rng = self._rng("shuffle") if settings.shuffle else None
        longest = self.config.data.max_response_length
        return weighted_mini_batches(batch, settings, max_length=longest, rng=rng)

    def _rng(self, what: str) -> np.random.Generator:
        """Generator of this step: a resumed run draws what an uninterrupted one would draw."""
        use = [] if what == "shuffle" else list(what.encode())
        return np.random.default_rng([self.config.trainer.seed, self.step, *use])

    async def publish_weights(self) -> None:
        """Publish version `step` to the rollout engines. A lost cluster is no error here: the step
        is still recorded."""

        async def publish() -> None:
            async with self.collector.locks.engines:
                with self.clock("publish"):
                    # Engines that have just been started are awake on the policy's devices. Their
                    # weights are about to be replaced, so nothing keeps a copy.
                    await self.collector.rollouts.sleep(level=2)
                    await self.publisher.publish(self.step)
                    await self.models.leave()  # a critic with devices of its own
                await self.measures.phase_ended("publish")
            self._published.set(self.step)

        with contextlib.suppress(ClusterLostError):
            # breaking off would leave the file of the weights
            await unless_lost(publish(), until=UPDATES_END)

    async def republish_weights(self) -> None:
        """Publish version `step` once more, in the middle of sampling: an engine that was started
        again has its checkpoint's weights."""
        async with AsyncExitStack() as stack:
            if self.collector.locks.scores:
                # A judge was lost: the other engines of the rewards make room for training.
                await self.collector.scorer.residency.rest()
            else:
                await stack.enter_async_context(self.collector.locks.devices)
            await self.collector.rollouts.sleep(level=2)
            await self.publisher.publish(self.step)

    # --- validation and records

    async def evaluate_before_training(self) -> None:
        trainer = self.config.trainer
        at_start = trainer.val_before_train and self.step == 0
        if self.val_prompts is not None and (trainer.val_only or at_start):
            self._sinks.log(self.step, await unless_lost(self._evaluate()))
        self.clock.restart()

    async def evaluate_if_due(self, metrics: Metrics) -> None:
        """Add val/... to the step's metrics every test_freq steps and at the last one; not where
        the cluster is lost."""
        every = self.config.trainer.test_freq
        is_due = every > 0 and (self.step % every == 0 or self.step == self.total_steps)
        if self.val_prompts is not None and is_due:
            with contextlib.suppress(ClusterLostError):
                metrics |= await unless_lost(self._evaluate())

    async def _evaluate(self) -> Metrics:
        assert self.val_prompts is not None
        assert self.telemetry is not None
        size = self.config.data.val_batch_size or len(self.val_prompts)
        sampling = validation_sampling(self.config)
        done: list[Round] = []
        for start in range(0, len(self.val_prompts), size):
            prompts: list[Prompt] = self.val_prompts[start : start + size]
            rollouts, rewards = await self.collector.sample_and_score(
                "validate", prompts, sampling, step=self.step, learn=False
            )
            self.telemetry.val_samples.write(self.step, rollouts.responses, rewards)
            printed = 0 if done else self.config.trainer.log_val_generations
            for row, response in enumerate(rollouts.responses[:printed]):
                question = response.prompt.messages[-1]["content"]
                reference = f"reference {response.prompt.ground_truth}"
                reward = f"reward {rewards.rewards_B[row]:.3f}"
                sample = f"{question!r} -> {response.text!r} ({reference}, {reward})"
                _log.info(f"validation, step {self.step}: {sample}")
            done.append((rollouts, rewards))
        metrics = validation_metrics(done, calibrations=maps_of(self.collector.scorer.specs))
        return metrics | self.best.observe(self.step, metrics)

    def record(self, scored: ScoredRollouts, batch: ScoredBatch, metrics: Metrics) -> None:
        """Record one step's metrics, samples and time."""
        assert self.telemetry is not None
        rewards = scored.rewards
        lengths = [response.sampled for response in scored.rollouts.responses]
        metrics = {**metrics, "train/epoch": float(scored.after["loader"]["epoch"])}
        if self.config.trainer.max_staleness:
            # The weights that were trained in this step had `step` - 1 updates.
            responses = scored.rollouts.responses
            ages = [scored.step - response.policy_version for response in responses]
            metrics["train/staleness"] = float(np.mean(ages))
        tokens = int(batch.train.tokens.lengths.sum())
        times = self.clock.metrics()
        metrics |= self.measures.take(times, generated=sum(lengths), trained=tokens)
        hints: list[str] = []
        if self.monitor is not None:
            hints = self.monitor.observe(self.step, rewards.scores, lengths, rewards=rewards)
            metrics |= self.monitor.metrics()
        self.telemetry.log_step(self.step, scored, batch, metrics, self.clock)
        if not self._observed:
            _log.info(observed_table(rewards))
            self._observed = True
        every = self.config.trainer.log_sample_freq
        if every > 0 and (self.step == 1 or self.step % every == 0):
            self.telemetry.show_samples(self.step, scored)
        self.telemetry.hints.write(self.step, hints)
        self._step_is_finished()
        self.clock.restart()

    @property
    def _sinks(self) -> Sinks:
        assert self.telemetry is not None
        return self.telemetry.sinks

    # --- the end

    async def close(self) -> None:
        """End every process that the run started, even if ending another one raises."""
        async with AsyncExitStack() as stack:
            if self.telemetry is not None:
                # last: a tracker that hangs must not hold the engines
                stack.callback(self.telemetry.close)
            stack.push_async_callback(self.saves.close)
            stack.push_async_callback(self.publisher.close)
            stack.push_async_callback(self.models.close)
            stack.push_async_callback(self.collector.rollouts.close)
            stack.push_async_callback(self.collector.scorer.close)
