"""Scored responses for prompts: all of a step that happens before the policy is updated."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import numpy as np

from rmrl.config.schema import Config
from rmrl.data.loader import PromptLoader
from rmrl.errors import RewardError
from rmrl.rewards.session.draw import Draw
from rmrl.rewards.session.scorer import Scorer
from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.progress import LINE_EVERY_S, counting, watching
from rmrl.trainer.batches import response_row
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.scored_rollouts import Round, ScoredRollouts, concatenate, contrast
from rmrl.types import Metrics, Prompt, Response, Sampling, Scores

_DRAWN: Mapping[str, Literal["share", "validation", "none"]] = {
    "generate": "share",
    "validate": "validation",
    "baseline": "none",
}
"""Stage -> rows about which watchers are asked."""


@dataclasses.dataclass(slots=True, kw_only=True)
class SharedLocks:
    """Locks on what sampling and training share; contended only while the next batch is sampled
    beside training."""

    engines: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """The rollout engines: to sample from them, or to give them new weights."""
    devices: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """The policy's devices: to train on them, or to score with the reward models that live
    there."""
    scores: bool = False
    """Scoring holds the devices."""

    @asynccontextmanager
    async def scoring(self) -> AsyncGenerator[None]:
        """Hold the devices for scoring."""
        async with self.devices:
            self.scores = True
            try:
                yield
            finally:
                self.scores = False


@dataclasses.dataclass(slots=True, kw_only=True)
class Collector:
    config: Config
    rollouts: RolloutPool
    scorer: Scorer
    clock: StepClock
    locks: SharedLocks = dataclasses.field(default_factory=SharedLocks)
    greedy_baseline: bool = False
    """Each step also samples one greedy response per prompt, whose reward is the baseline."""
    scores_on_policy_devices: bool = True
    """Some reward model lives on the policy's devices, so that scoring and training take turns."""
    judge: object = None
    """Key of the rollout engines among those of the rewards, where the policy judges and they may
    sleep. None: they need not be kept awake."""
    unrewarded: tuple[tuple[Response, ...], Scores] | None = None
    """The last responses whose verdicts raised an error instead of giving rewards."""

    async def collect(self, loader: PromptLoader, step: int) -> ScoredRollouts:
        """Sample the batch of `step`. With dynamic sampling in as many rounds as it takes, each of
        data.gen_batch_size prompts or the number that is still missing."""
        settings = self.config.algorithm.filter_groups
        at_once = self.config.data.gen_batch_size
        first = at_once if settings.enable and at_once is not None else loader.batch_size
        rounds = [await self._round(loader.take(first), step, 0)]
        chosen_B = None
        metrics: Metrics = {}
        if settings.enable:
            chosen_B = self._chosen(rounds)
            missing = loader.batch_size - self._groups(chosen_B)
            while missing > 0 and not 0 < settings.max_num_gen_batches <= len(rounds):
                prompts = loader.take(at_once or missing)
                rounds.append(await self._round(prompts, step, len(rounds)))
                chosen_B = self._chosen(rounds)
                missing = loader.batch_size - self._groups(chosen_B)
            # The chosen responses of the first prompts that have any; a round may add more.
            n = self.config.actor_rollout_ref.rollout.n
            has_any_P = chosen_B.reshape(-1, n).any(axis=1)
            chosen_B = chosen_B & np.repeat(np.cumsum(has_any_P) <= loader.batch_size, n)
            metrics["group/rounds"] = float(len(rounds))
            metrics["group/chosen_fraction"] = float(chosen_B.mean())
        restarts = self.rollouts.take_restarts()
        if restarts:
            metrics["rollout/restarts"] = float(restarts)
        rollouts, rewards = concatenate([(r, b) for r, b, _ in rounds])
        baselines = [b for _, _, b in rounds if b is not None]
        if chosen_B is None:
            chosen_B = np.ones(len(rollouts.responses), dtype=bool)
        return ScoredRollouts(
            step=step,
            rollouts=rollouts,
            rewards=rewards,
            chosen_B=chosen_B,
            baselines_B=np.concatenate(baselines) if baselines else None,
            after={"loader": loader.state_dict(), "rewards": self.scorer.state_dict()},
            metrics=metrics,
        )

    async def sample_and_score(
        self,
        stage: Literal["generate", "validate", "baseline"],
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        step: int,
        learn: bool = True,
        new_weights_follow: bool = False,
    ) -> Round:
        """Return `sampling.n` scored responses to each prompt. Without `learn` (validation) no
        running statistic of the rewards moves. `new_weights_follow`: the engines get new weights
        before they sample again, so they keep no copy of the present ones while they sleep.
        Rewards that need none of the policy's devices score while others are being generated.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.locks.engines)
            # Batches are counted from 0, and steps, as they are logged, from 1.
            draw = Draw(seed=self.config.trainer.seed, step=step + 1, rows=_DRAWN[stage])
            session = await stack.enter_async_context(self.scorer.streaming(draw))
            # The greedy baseline is judged as the responses that it is compared with.
            trained = None if stage == "validate" else step

            def stream(position: int, response: Response) -> None:
                group = position // sampling.n
                session.add(position, response_row(response, group=group, step=trained))

            level = 2 if new_weights_follow else 1
            timed = ("validate", "validate") if stage == "validate" else ("generate", "score")
            with self.clock(timed[0]), counting(stage, len(prompts) * sampling.n) as on_finished:
                await self.rollouts.wake()
                rollouts = await self.rollouts.generate(
                    prompts, sampling, on_finished=on_finished, on_response=stream
                )
                if self.judge is None:
                    await self.rollouts.sleep(level=level)
            if self.scores_on_policy_devices:
                await stack.enter_async_context(self.locks.scoring())
            if self.judge is not None:
                # They are awake: the weights that have sampled judge now, before they are dropped.
                await self.scorer.residency.load(self.judge)
            total = session.verdicts_wanted
            with (
                self.clock(timed[1]),
                counting("score", total, unit="verdicts", log_every_s=LINE_EVERY_S) as update,
            ):
                try:
                    async with watching(lambda: session.verdicts, update):
                        rewards = await self.scorer.finish(session, step=step, learn=learn)
                    if self.judge is not None:
                        await self.scorer.residency.put_away(self.judge)
                        await self.rollouts.sleep(level=level)
                    return rollouts, rewards
                except RewardError as error:
                    if isinstance(error.scores, Scores):
                        self.unrewarded = (rollouts.responses, error.scores)
                    raise

    async def _round(
        self, prompts: Sequence[Prompt], step: int, number: int
    ) -> tuple[*Round, np.ndarray | None]:
        # Seeded by step and round, so that a resumed run draws what the uninterrupted one would.
        rollout = self.config.actor_rollout_ref.rollout
        entropy = [self.config.trainer.seed, rollout.seed, step]
        if number:
            entropy.append(number)
        sampling = Sampling(
            max_tokens=self.config.data.max_response_length,
            temperature=rollout.temperature if rollout.do_sample else 0.0,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            n=rollout.n,
            seed=int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1),
            ignore_eos=rollout.ignore_eos,
        )
        # With dynamic sampling another round may follow instead.
        is_last = not self.config.algorithm.filter_groups.enable
        rollouts, rewards = await self.sample_and_score(
            "generate",
            prompts,
            sampling,
            step=step,
            new_weights_follow=is_last and not self.greedy_baseline,
        )
        if not self.greedy_baseline:
            return rollouts, rewards, None
        greedy = dataclasses.replace(sampling, n=1, temperature=0.0, top_p=1.0, top_k=-1, seed=None)
        _, baseline = await self.sample_and_score(
            "baseline", prompts, greedy, step=step, learn=False, new_weights_follow=is_last
        )
        baselines_P = np.where(baseline.keep_B, baseline.rewards_B, np.nan)
        return rollouts, rewards, np.repeat(baselines_P, sampling.n)

    def _chosen(self, rounds: Sequence[tuple[*Round, np.ndarray | None]]) -> np.ndarray:
        metric = self.config.algorithm.filter_groups.metric
        parts = [contrast(rollouts, rewards, metric) for rollouts, rewards, _ in rounds]
        return np.concatenate(parts)

    def _groups(self, chosen_B: np.ndarray) -> int:
        """Number of prompts for which at least one response is chosen."""
        return int(chosen_B.reshape(-1, self.config.actor_rollout_ref.rollout.n).any(axis=1).sum())
