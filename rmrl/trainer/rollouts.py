"""Responses for a batch of prompts, from one or several rollout engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from rmrl.cluster.processes import RayProcess
from rmrl.types import Generation, Prompt, Response, Rollouts, Sampling

_SEED_STRIDE = 1_000_003
"""Keeps the seeds of several engines apart: each engine numbers its samples from the seed it is
given."""


class RolloutPool:
    """Rollout engines that hold the same weights. Prompts are dealt to them in turn."""

    def __init__(self, engines: Sequence[RayProcess], *, timeout_s: float, sleeps: bool) -> None:
        self.engines = tuple(engines)
        self._timeout_s = timeout_s
        self._sleeps = sleeps
        self._awake = True

    async def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_finished: Callable[[int], None] = lambda _: None,
        on_response: Callable[[int, Response], None] = lambda _, __: None,
    ) -> Rollouts:
        """sampling.n responses per prompt, groups contiguous and in the order of `prompts`.

        As soon as one is finished `on_finished` gets the count so far, `on_response` its position
        among all and the response.
        """
        found: dict[tuple[int, int], Response] = {}

        async def run(engine: RayProcess, mine: Sequence[int], seed_shift: int) -> None:
            if sampling.seed is None:
                shifted = sampling
            else:
                shifted = replace(sampling, seed=sampling.seed + seed_shift * _SEED_STRIDE)
            tokens = [prompts[i].token_ids for i in mine]
            async for part in engine.stream("generate", tokens, shifted, timeout_s=self._timeout_s):
                index = mine[part.prompt_index]
                response = found[index, part.sample_index] = _response(prompts[index], part)
                on_finished(len(found))
                on_response(index * sampling.n + part.sample_index, response)

        count = len(self.engines)
        shares = [list(range(e, len(prompts), count)) for e in range(count)]
        await asyncio.gather(
            *(
                run(e, share, k)
                for k, (e, share) in enumerate(zip(self.engines, shares, strict=True))
                if share
            )
        )
        ordered = tuple(found[p, s] for p in range(len(prompts)) for s in range(sampling.n))
        return Rollouts(responses=ordered, group_size=sampling.n)

    async def load_weights(self, paths: Sequence[str], *, version: int) -> None:
        """New weights in every engine, each from its own path; what was cached under the old ones
        is dropped."""
        loads = zip(self.engines, paths, strict=True)
        await asyncio.gather(
            *(
                e.call("load_weights", path, timeout_s=self._timeout_s, version=version)
                for e, path in loads
            )
        )

    async def wake(self) -> None:
        if not self._awake:
            await self._all("wake")
            self._awake = True

    async def sleep(self, *, level: int = 1) -> None:
        """Give the devices to others, if the run is configured to."""
        if self._sleeps and self._awake:
            await self._all("sleep", level)
            self._awake = False

    async def close(self) -> None:
        self._awake = False
        for engine in self.engines:
            await engine.kill()

    async def _all(self, method: str, *args: object, **kwargs: object) -> None:
        await asyncio.gather(
            *(
                engine.call(method, *args, timeout_s=self._timeout_s, **kwargs)
                for engine in self.engines
            )
        )


def _response(prompt: Prompt, part: Generation) -> Response:
    return Response(
        prompt=prompt,
        text=part.text,
        token_ids=tuple(part.token_ids),
        logprobs=None if part.logprobs is None else tuple(part.logprobs),
        finish_reason=part.finish_reason,
        policy_version=part.policy_version,
    )
