"""Responses for a batch of prompts, from one or several rollout engines. An engine that is lost is
started again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rmrl.cluster.processes import RayProcess
from rmrl.cluster.watch import loss
from rmrl.errors import EngineLostError, InfrastructureError, StallError
from rmrl.heartbeat import heartbeat
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.telemetry.clock import Durations
from rmrl.trainer.allocations import all_or_none
from rmrl.types import Generation, Prompt, Response, Rollouts, Sampling

_log = logging.getLogger(__name__)

_SEED_STRIDE = 1_000_003
"""Distance between the seeds of several engines: each engine numbers its samples from its own
seed."""


_MEASURE_DEADLINE_S = 30.0


class SampleSource(Protocol):
    """Plays responses whose turns are drawn from rollout engines."""

    async def generate(
        self,
        draw: Callable[[Sequence[int], Sampling, str], Awaitable[Generation]],
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_finished: Callable[[int], None],
        on_response: Callable[[int, Response], None],
    ) -> Rollouts: ...

    async def close(self) -> None: ...


class RolloutPool:
    """Rollout engines with the same weights. Prompts are dealt to them in turn.

    An engine whose process dies is started again, gets the present weights, and draws the samples
    that it owed with the same seeds; once for each version of the weights, that is for each step.
    The second loss of an engine raises EngineLostError.
    """

    def __init__(
        self,
        engines: Sequence[RayProcess],
        *,
        timeout_s: float,
        sleeps: bool,
        start: Callable[[int], Coroutine[Any, Any, RayProcess]] | None = None,
    ) -> None:
        """`start(number)`: a new process for the engine at that position, with the weights of its
        checkpoint. None: a lost engine is not started again."""
        self.engines = tuple(engines)
        self.republish: Callable[[], Awaitable[None]] | None = None
        """Gives all engines the present weights. The engines are asleep meanwhile, where they
        sleep at all."""
        self.on_asleep: Callable[[Sequence[int]], None] | None = None
        """Called once with the bytes of each engine, when they sleep for the first time."""
        self.source: SampleSource | None = None
        """Plays the responses. None: the engines answer each prompt with one turn."""
        self._timeout_s = timeout_s
        self._sleeps = sleeps
        self._start = start
        self._awake = True
        self._lost: dict[int, EngineLostError] = {}
        self._losses = 0
        """Engines lost so far."""
        self._mending = asyncio.Lock()
        self._restarted: set[int] = set()
        self._version = -1
        self._restarts = 0
        self.durations = Durations()
        self._drawing = 0
        """Turns that are being drawn."""
        self._none_drawn = asyncio.Event()

    async def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_finished: Callable[[int], None] = lambda _: None,
        on_response: Callable[[int, Response], None] = lambda _, __: None,
    ) -> Rollouts:
        """Return sampling.n responses per prompt, groups contiguous and in the order of `prompts`.

        As soon as one is finished `on_finished` gets the count so far, `on_response` its position
        among all and the response.
        """
        if self.source is not None:
            return await self.source.generate(
                self.draw, prompts, sampling, on_finished=on_finished, on_response=on_response
            )
        responses: dict[tuple[int, int], Response] = {}

        async def run(number: int, share: range, only: list[tuple[int, int]] | None) -> None:
            shifted = sampling
            if sampling.seed is not None:
                shifted = replace(sampling, seed=sampling.seed + number * _SEED_STRIDE)
            tokens = [prompts[i].token_ids for i in share]
            arguments = [tokens, shifted]
            if only is not None:
                arguments.append(only)
            stream = self.engines[number].stream("generate", *arguments, timeout_s=self._timeout_s)
            async for part in stream:
                index = share[part.prompt_index]
                response = one_turn(prompts[index], part)
                responses[index, part.sample_index] = response
                on_finished(len(responses))
                on_response(index * sampling.n + part.sample_index, response)

        await self._mend()
        order = list(itertools.product(range(len(prompts)), range(sampling.n)))
        while len(responses) < len(order):
            runs: dict[int, Coroutine[Any, Any, None]] = {}
            for number in range(len(self.engines)):
                share = range(number, len(prompts), len(self.engines))
                owed = samples_owed(share, sampling.n, done=responses)
                if owed:
                    runs[number] = run(number, share, owed if responses else None)
            losses = self._losses
            await self._each(runs)
            missing = len(order) - len(responses)
            if missing and self._losses == losses:
                raise InfrastructureError(
                    f"the rollout engines gave {len(responses)} of {len(order)} samples and ended"
                    " without an error; it is a fault of theirs"
                )
            if missing:
                await self._mend()
                _log.info(f"{missing} of {len(order)} samples are drawn again")
        return Rollouts(responses=tuple(responses[place] for place in order), group_size=sampling.n)

    async def draw(self, tokens: Sequence[int], sampling: Sampling, key: str) -> Generation:
        """Return one sample behind `tokens`. One engine draws all samples with a `key`, and its
        cache has their common beginning. A lost engine is started again once the other engines have
        nothing under way, and asked once more, as in `generate`."""
        while True:
            async with self._mending:
                if self._lost:
                    while self._drawing:
                        self._none_drawn.clear()
                        await self._none_drawn.wait()
                    await self._start_lost()
                    await self.wake()
            number = zlib.crc32(key.encode()) % len(self.engines)
            losses = self._losses
            samples: list[Generation] = []
            self._drawing += 1
            try:
                await self._each({number: self._draw(number, tokens, sampling, samples)})
            finally:
                self._drawing -= 1
                if not self._drawing:
                    self._none_drawn.set()
            if samples:
                return samples[0]
            if self._losses == losses:
                raise InfrastructureError("a rollout engine ended a turn without a sample")

    async def _draw(
        self,
        number: int,
        tokens: Sequence[int],
        sampling: Sampling,
        samples: list[Generation],
    ) -> None:
        stream = self.engines[number].stream(
            "generate", [list(tokens)], sampling, timeout_s=self._timeout_s
        )
        async for sample in stream:
            samples.append(sample)

    async def answer(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float
    ) -> list[list[TextOutput]]:
        """Return the texts of a reward's requests, `sampling.n` for each, from the weights of the
        moment. The requests are dealt to the engines in turn. A lost engine is started again and
        asked once more, as in `generate`. `timeout_s` counts from the last progress of an engine,
        be it with these requests or with others that it works on: StallError."""
        texts: dict[int, list[TextOutput]] = {}

        async def ask(number: int, share: list[int]) -> None:
            some = [requests[i] for i in share]
            found = await self.engines[number].call("answer", some, timeout_s=timeout_s)
            texts.update(zip(share, found, strict=True))

        while len(texts) < len(requests):
            await self._mend()
            await self.wake()
            works: dict[int, Coroutine[Any, Any, None]] = {}
            for number in range(len(self.engines)):
                share = range(number, len(requests), len(self.engines))
                owed = [i for i in share if i not in texts]
                if owed:
                    works[number] = ask(number, owed)
            await self._each(works)
        return [texts[i] for i in range(len(requests))]

    async def load_weights(self, paths: Sequence[str], *, version: int) -> None:
        """Load new weights into every engine, each from its own path; caches of the old ones are
        dropped."""

        async def load(number: int) -> None:
            await self.engines[number].call(
                "load_weights", paths[number], timeout_s=self._timeout_s, version=version
            )

        with self.durations("perf/rollout/load_weights_s"):
            await self._each({number: load(number) for number in range(len(self.engines))})
            if self._lost:
                numbers = await self.restart_lost()
                await asyncio.gather(*map(load, numbers))
        self.have_weights(version)

    def have_weights(self, version: int) -> None:
        """Record that all engines have the weights of `version`: with new ones each may be started
        again once more."""
        if version != self._version:
            self._restarted.clear()
        self._version = version

    async def find_lost(self) -> bool:
        """Call every engine. Return whether one is lost. Raises EngineLostError where it may not be
        started again."""
        checks: dict[int, Coroutine[Any, Any, None]] = {
            number: engine.alive(timeout_s=self._timeout_s)
            for number, engine in enumerate(self.engines)
        }
        await self._each(checks)
        return bool(self._lost)

    async def restart_asleep(self) -> None:
        """Start the lost engines again, beside others that sleep: the new ones sleep as well, where
        engines sleep at all, and have no weights."""
        numbers = await self.restart_lost()
        if self._sleeps and not self._awake:
            calls: list[Coroutine[Any, Any, Any]] = [
                self.engines[number].call("sleep", 2, timeout_s=self._timeout_s)
                for number in numbers
            ]
            await asyncio.gather(*calls)

    async def restart_lost(self) -> list[int]:
        """Start the engines again that were lost, and return their positions. They have the weights
        of the checkpoint. Raises EngineLostError where one may not be started again."""
        if not self._lost:
            return []
        for number, error in self._lost.items():
            if number in self._restarted or loss() is not None:
                raise error
        numbers = sorted(self._lost)
        for number in numbers:
            _log.warning(f"{self._lost[number]}; starting rollout engine {number} again")
            await self.engines[number].kill()
        assert self._start is not None
        async with heartbeat("still loading the policy into a rollout engine"):
            started = await all_or_none(*map(self._start, numbers))
        engines = list(self.engines)
        for number, engine in zip(numbers, started, strict=True):
            engines[number] = engine
        self.engines = tuple(engines)
        self._restarted.update(numbers)
        self._restarts += len(numbers)
        self._lost.clear()
        return numbers

    def take_restarts(self) -> int:
        """Return the number of restarts since the last call of this method."""
        restarts = self._restarts
        self._restarts = 0
        return restarts

    async def wake(self) -> None:
        if not self._awake:
            with self.durations("perf/rollout/wake_s"):
                await self._everywhere("wake")
            self._awake = True

    async def sleep(self, *, level: int = 1) -> None:
        """Free the devices, if the run is configured to share them."""
        if self._sleeps and self._awake:
            with self.durations("perf/rollout/sleep_s"):
                await self._everywhere("sleep", level)
            self._awake = False
            report = self.on_asleep
            self.on_asleep = None
            if report is None:
                return
            calls: list[Coroutine[Any, Any, Any]] = [
                engine.call("resident_bytes", timeout_s=_MEASURE_DEADLINE_S)
                for engine in self.engines
            ]
            # An engine that does not answer is noticed by the next call that needs it.
            with contextlib.suppress(InfrastructureError, StallError):
                report(await asyncio.gather(*calls))

    async def close(self) -> None:
        self._awake = False
        if self.source is not None:
            await self.source.close()
        for engine in self.engines:
            await engine.kill()

    async def _mend(self) -> None:
        """Start the lost engines again, if there are any, and give all of them the present
        weights."""
        async with self._mending:
            if self._lost:
                await self._start_lost()

    async def _start_lost(self) -> None:
        await self.restart_lost()
        assert self.republish is not None
        await self.republish()

    async def _everywhere(self, method: str, *args: object) -> None:
        works = {
            number: engine.call(method, *args, timeout_s=self._timeout_s)
            for number, engine in enumerate(self.engines)
        }
        await self._each(works)

    async def _each(self, works: Mapping[int, Coroutine[Any, Any, Any]]) -> None:
        """Await the work of all engines. One that is lost is noted, if it may be started again."""

        async def noted(number: int, work: Coroutine[Any, Any, Any]) -> None:
            try:
                await work
            except EngineLostError as error:
                if self._start is None or number in self._restarted:
                    raise
                self._lost[number] = error
                self._losses += 1

        await asyncio.gather(*(noted(number, work) for number, work in works.items()))


def one_turn(prompt: Prompt, sample: Generation) -> Response:
    """Return a sample as the response to a prompt."""
    return Response(
        prompt=prompt,
        text=sample.text,
        token_ids=sample.token_ids,
        logprobs=sample.logprobs,
        finish_reason=sample.finish_reason,
        policy_version=sample.policy_version,
    )


def samples_owed(
    share: Sequence[int], samples: int, *, done: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return (place in the share, sample) of what an engine has not given yet. `share`: the prompts
    of the engine; `done`: prompt and sample of what is there."""
    owed: list[tuple[int, int]] = [
        (place, sample)
        for place, sample in itertools.product(range(len(share)), range(samples))
        if (share[place], sample) not in done
    ]
    return owed
