"""One run's state and the verbs of the loop. Knows the stages through their interfaces only; build.py chose the concrete ones."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.algorithms.kl import KLController
from rmrl.config.schema import Config
from rmrl.data.dataset import PromptTable
from rmrl.data.loader import PromptLoader
from rmrl.errors import CheckpointError, Interrupted
from rmrl.rewards.monitor import Monitor
from rmrl.rewards.scorer import Scorer
from rmrl.rewards.table import observed_table
from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.curve import draw_curves
from rmrl.telemetry.names import score_metrics
from rmrl.telemetry.progress import counting
from rmrl.telemetry.sinks import Sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.trainer import checkpoint
from rmrl.trainer.batches import (
    ScoredBatch,
    add_advantages,
    advantage_per_row,
    keep_informative,
    logprob_difference,
    mini_batches,
    response_row,
)
from rmrl.trainer.evaluate import validation_metrics, validation_sampling
from rmrl.trainer.policy import Policy
from rmrl.trainer.publish import publish_weights
from rmrl.trainer.rollouts import RolloutPool
from rmrl.types import Metrics, Prompt, Response, RewardBatch, Rollouts, Sampling


@dataclasses.dataclass(slots=True, kw_only=True)
class Telemetry:
    """Where a run's numbers go. Opened after the resume step is known."""

    sinks: Sinks
    samples: SampleWriter
    val_samples: SampleWriter

    def close(self) -> None:
        self.sinks.close()
        self.samples.close()
        self.val_samples.close()


@dataclasses.dataclass(slots=True, kw_only=True)
class Run:
    """Everything a run owns. `step` counts finished updates; weights of version `step` are what rolls out next."""

    config: Config
    out_dir: Path
    total_steps: int
    loader: PromptLoader | None
    """None: the run only validates."""
    val_prompts: PromptTable | None
    policy: Policy
    rollouts: RolloutPool
    scorer: Scorer
    controller: KLController
    open_telemetry: Callable[[int | None], Telemetry]
    notice: Callable[[str], None]
    config_fingerprint: str
    weight_bytes: int
    needs_reference: bool
    decode: Callable[[Sequence[int]], str]
    """The policy's tokens as text."""
    monitor: Monitor | None = None
    step: int = 0
    clock: StepClock = dataclasses.field(default_factory=StepClock)
    telemetry: Telemetry | None = None
    interrupted: bool = False
    saved_step: int = -1
    _observed: bool = False

    # --- resume and checkpoints ---------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        return self.out_dir / "checkpoints"

    async def resume(self) -> None:
        """Go on from the newest complete checkpoint, if there is one and the run may; open the logs at its step."""
        found = self._checkpoint_to_resume()
        if found is not None:
            await self._load(found)
        self.telemetry = self.open_telemetry(self.step if found else None)
        self.clock.restart()

    def _checkpoint_to_resume(self) -> checkpoint.Checkpoint | None:
        trainer = self.config.trainer
        if trainer.resume_mode == "resume_path":
            return checkpoint.verify(Path(str(trainer.resume_from_path)))
        return checkpoint.newest_complete(self.checkpoints, notice=self.notice) if trainer.resume_mode == "auto" else None

    async def _load(self, found: checkpoint.Checkpoint) -> None:
        state = json.loads((found.path / "trainer.json").read_text(encoding="utf-8"))
        if state["step"] != found.step:
            raise CheckpointError(f"{found.path}: trainer.json says step {state['step']}, the manifest {found.step}; use another one")
        if self.loader is not None:
            self.loader.load_state_dict(state["loader"])
        self.controller.load_state_dict(state["kl_controller"])
        self.scorer.load_state_dict(state.get("rewards", {}))
        if self.monitor and state.get("monitor"):
            self.monitor.load_state_dict(state["monitor"])
        await self.policy.load(str(found.path / "policy"))
        self.step = self.saved_step = found.step
        self.notice(f"resuming from {found.path} (step {self.step} of {self.total_steps})")

    async def checkpoint_if_due(self) -> None:
        """Every save_freq steps, at the last step, and when the user interrupts."""
        every = self.config.trainer.save_freq
        if (every > 0 and self.step % every == 0) or self.interrupted:
            await self._save()
        if self.interrupted and self.step < self.total_steps:
            raise Interrupted(f"stopped at step {self.step} of {self.total_steps}; the same command goes on from there")

    async def _save(self) -> None:
        if self.saved_step == self.step:
            return
        with self.clock("checkpoint"):
            saved = await checkpoint.save(self.checkpoints, self.step, self._write, config_fingerprint=self.config_fingerprint)
        self.saved_step = self.step
        checkpoint.prune(self.checkpoints, self.config.trainer.max_actor_ckpt_to_keep)
        self.notice(f"checkpoint {saved.path}")

    async def _write(self, folder: Path) -> None:
        assert self.loader is not None
        state = {
            "step": self.step,
            "loader": self.loader.state_dict(),
            "kl_controller": self.controller.state_dict(),
            "rewards": self.scorer.state_dict(),
            "monitor": self.monitor.state_dict() if self.monitor else {},
        }
        (folder / "trainer.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
        async with self.policy.on_device():
            await self.policy.save(str(folder / "policy"))
            if "hf_model" in self.config.actor_rollout_ref.actor.checkpoint.save_contents:
                await self.policy.save_hf(str(folder / "hf"))

    async def finish(self) -> None:
        """The last checkpoint and the curves."""
        if self.loader is not None:
            await self._save()
        drawn = draw_curves(self.out_dir / "metrics.jsonl", self.out_dir / "curves.png")
        self.notice(f"finished at step {self.step}; everything is in {self.out_dir}" + (" (curves.png)" if drawn else ""))

    # --- the stages of a step -----------------------------------------------------------------------------------------

    async def scored_rollouts(self) -> AsyncIterator[tuple[Rollouts, RewardBatch]]:
        """On-policy: each batch is sampled from, and scored under, the weights published last."""
        if self.loader is None:
            return
        batches = self.loader.batches(epochs=None)
        while self.step < self.total_steps:  # asked first: a batch fetched and not used would be lost to the checkpoint
            prompts = next(batches)
            sampling = self._sampling()
            rollouts, rewards = await self._generate_and_score("generate", prompts, sampling)
            yield rollouts, rewards

    def _sampling(self) -> Sampling:
        rollout = self.config.actor_rollout_ref.rollout
        seed = int(np.random.SeedSequence([self.config.trainer.seed, rollout.seed, self.step]).generate_state(1)[0] >> 1)
        return Sampling(
            max_tokens=self.config.data.max_response_length,
            temperature=rollout.temperature if rollout.do_sample else 0.0,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            n=rollout.n,
            seed=seed,
            ignore_eos=rollout.ignore_eos,
        )

    async def _generate_and_score(
        self, stage: str, prompts: Sequence[Prompt], sampling: Sampling, *, learn: bool = True
    ) -> tuple[Rollouts, RewardBatch]:
        """What needs none of the policy's devices is scored while the other responses are still being generated."""
        async with self.scorer.streaming() as session:

            def stream(position: int, response: Response) -> None:
                session.add(position, response_row(response, group=position // sampling.n))

            with self.clock("generate" if learn else "validate"), counting(stage, len(prompts) * sampling.n) as on_finished:
                await self.rollouts.wake()
                rollouts = await self.rollouts.generate(prompts, sampling, on_finished=on_finished, on_response=stream)
                await self.rollouts.sleep(level=1)
            with self.clock("score" if learn else "validate"):
                rewards = await self.scorer.finish(session, step=self.step, learn=learn)
        return rollouts, rewards

    def keep_informative(self, rollouts: Rollouts, rewards: RewardBatch) -> ScoredBatch:
        return keep_informative(rollouts, rewards)

    @asynccontextmanager
    async def training(self, stage: str) -> AsyncIterator[None]:
        """The devices belong to training for the time of the block."""
        with self.clock(stage):
            async with self.policy.on_device():
                yield

    async def add_logprobs(self, batch: ScoredBatch) -> ScoredBatch:
        """old_logprobs where several updates or the KL penalty need them, ref_logprobs where there is a reference."""
        train = batch.train
        if len(train) and self._needs_old_logprobs():
            train = dataclasses.replace(train, old_logprobs=await self.policy.logprobs(train))
        if len(train) and self.needs_reference:
            train = dataclasses.replace(train, ref_logprobs=await self.policy.reference_logprobs(train))
        return dataclasses.replace(batch, train=train)

    def _needs_old_logprobs(self) -> bool:
        actor = self.config.actor_rollout_ref.actor
        one_update = actor.ppo_epochs == 1 and actor.ppo_mini_batch_size >= self.config.data.train_batch_size
        return not one_update or self.config.algorithm.use_kl_in_reward

    def add_advantages(self, batch: ScoredBatch) -> tuple[ScoredBatch, Metrics]:
        """Pure; also how far sampling and training log-probabilities are apart."""
        if not len(batch.train):
            return batch, {}
        scored, metrics = add_advantages(batch, self.config.algorithm, self.controller, decode=self.decode)
        return scored, metrics | logprob_difference(scored.train)

    async def update(self, batch: ScoredBatch) -> Metrics:
        """One optimizer step per mini-batch; nothing at all when no row has a reward."""
        if not len(batch.train):
            self.notice(f"step {self.step + 1}: no response has a reward, the weights stay as they are")
            return {}
        actor = self.config.actor_rollout_ref.actor
        rng = np.random.default_rng([self.config.trainer.seed, self.step]) if actor.shuffle else None
        return await self.policy.update(list(mini_batches(batch.train, batch.group_ids_B, prompts=actor.ppo_mini_batch_size, rng=rng)))

    async def publish_weights(self) -> None:
        """The rollout engines get version `step`."""
        with self.clock("publish"):
            await publish_weights(
                self.policy,
                self.rollouts,
                version=self.step,
                dtype=self.config.actor_rollout_ref.rollout.dtype,
                size_hint_bytes=self.weight_bytes,
            )

    # --- validation and records ---------------------------------------------------------------------------------------

    async def evaluate_before_training(self) -> None:
        trainer = self.config.trainer
        if self.val_prompts is not None and (trainer.val_only or (trainer.val_before_train and self.step == 0)):
            metrics = await self._evaluate()
            self._sinks.log(self.step, metrics)
        self.clock.restart()

    async def evaluate_if_due(self, metrics: Metrics) -> None:
        """Adds val/... to the step's metrics every test_freq steps and at the last one."""
        every = self.config.trainer.test_freq
        if self.val_prompts is not None and every > 0 and (self.step % every == 0 or self.step == self.total_steps):
            metrics |= await self._evaluate()

    async def _evaluate(self) -> Metrics:
        assert self.val_prompts is not None
        assert self.telemetry is not None
        size = self.config.data.val_batch_size or len(self.val_prompts)
        sampling, done = validation_sampling(self.config), []
        for start in range(0, len(self.val_prompts), size):
            prompts: list[Prompt] = self.val_prompts[start : start + size]
            rollouts, rewards = await self._generate_and_score("validate", prompts, sampling, learn=False)
            self.telemetry.val_samples.write(self.step, rollouts.responses, rewards)
            if not done:
                self._show(rollouts, rewards)
            done.append((rollouts, rewards))
        return validation_metrics(done)

    def _show(self, rollouts: Rollouts, rewards: RewardBatch) -> None:
        """Print trainer.log_val_generations samples."""
        for response, reward in list(zip(rollouts.responses, rewards.rewards_B, strict=True))[: self.config.trainer.log_val_generations]:
            asked, truth = response.prompt.messages[-1]["content"], response.prompt.ground_truth
            said = f"{asked!r} -> {response.text!r} (reference {truth}, reward {reward:.3f})"
            self.notice(f"validation, step {self.step}: {said}")

    def record(self, rollouts: Rollouts, rewards: RewardBatch, batch: ScoredBatch, metrics: Metrics) -> None:
        """One step's metrics, samples and time."""
        assert self.telemetry is not None
        assert self.loader is not None
        lengths = [len(r.token_ids) for r in rollouts.responses]
        truncated = [r.finish_reason == "length" for r in rollouts.responses]
        tokens = sum(lengths) + sum(len(r.prompt.token_ids) for r in rollouts.responses)
        scored = score_metrics(rewards.scores, rewards, lengths, truncated=truncated)
        self.telemetry.samples.write(self.step, rollouts.responses, rewards, advantages_B=advantage_per_row(batch, len(lengths)))
        self._sinks.log(self.step, {**scored, **metrics, "train/epoch": float(self.loader.epoch), **self.clock.metrics(tokens)})
        if not self._observed:
            self.notice(observed_table(rewards))
            self._observed = True
        for hint in self.monitor.observe(self.step, rewards.scores, lengths) if self.monitor else ():
            self.notice(hint)
        self.clock.restart()

    @property
    def _sinks(self) -> Sinks:
        assert self.telemetry is not None
        return self.telemetry.sinks

    # --- interrupts and the end ---------------------------------------------------------------------------------------

    @contextmanager
    def stopping_on_signal(self) -> Iterator[None]:
        """The first Ctrl-C (or SIGTERM) finishes the step, saves and stops; a second Ctrl-C stops at once."""

        def stop(signum: int, frame: Any) -> None:
            del signum, frame
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True
            self.notice("stopping after this step and a checkpoint; press Ctrl-C again to stop at once")

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def close(self) -> None:
        """End every process that the run started, whatever the ending of another one raises."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.policy.close)
            stack.push_async_callback(self.rollouts.close)
            stack.push_async_callback(self.scorer.close)
            if self.telemetry is not None:
                stack.callback(self.telemetry.close)
