"""A rollout engine without a model: tokens from a hash.

`settings.kwargs` scripts it:
    vocabulary     tokens are drawn from 0 .. vocabulary - 1 (default 256)
    lengths        [shortest, longest] response in tokens (default [1, 16]); cut at max_tokens with
      finish_reason "length"
    judge          text of every answer to a reward (default: the weights' version)
    text           text of every response (default: the tokens in decimal, joined by spaces)
    delay_s        seconds between two samples
    answer_s       seconds that each answer to a reward takes
    fail_on_sample number of the sample (from 1, over the engine's life) at which
      InfrastructureError is raised
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from rmrl.errors import InfrastructureError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput, overlong_texts
from rmrl.inference.rollout_base import (
    RolloutEngineSettings,
    not_ready,
    refuse_overlong,
    samples_to_draw,
)
from rmrl.types import Generation, Sampling

_BYTES = 2**30


class FakeRollout:
    """A `RolloutEngine`. Equal seed, prompt, sample number and policy version give equal tokens;
    logprobs are uniform.

    `published` lists `load_weights`' paths, `log` the other calls.
    """

    answers: ClassVar[bool] = True
    widens_head: ClassVar[Callable[[], bool]] = staticmethod(lambda: True)

    def __init__(self, settings: RolloutEngineSettings) -> None:
        self.settings = settings
        self.version = 0
        self.published: list[str] = []
        self.log: list[str] = []
        self._script: dict[str, Any] = dict(settings.kwargs)
        self._state = "cold"
        self._samples = 0
        self._answered = 0

    async def start(self) -> None:
        """Set the state. There is nothing to load."""
        self.log.append("start")
        self._state = "awake"

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        """Yield samples in the prompts' order."""
        if self._state != "awake":
            raise not_ready(self._state)
        refuse_overlong(prompts, self.settings.max_model_len)
        vocabulary = int(self._script.get("vocabulary", 256))
        shortest, longest = self._script.get("lengths", (1, 16))
        seed = self.settings.seed if sampling.seed is None else sampling.seed
        for prompt_index, sample_index in samples_to_draw(len(prompts), sampling.n, only):
            prompt = prompts[prompt_index]
            await asyncio.sleep(float(self._script.get("delay_s", 0.0)))
            self._samples += 1
            if self._samples == self._script.get("fail_on_sample"):
                raise InfrastructureError(
                    f"the rollout engine was scripted to fail on sample {self._samples}"
                )
            # Greedy samples are all the same.
            drawn_as = 0 if sampling.temperature == 0 else sample_index
            key = f"{seed}|{self.version}|{drawn_as}|{list(prompt)}".encode()
            draw = random.Random(hashlib.sha256(key).digest())
            length = draw.randint(shortest, longest)
            count = min(length, sampling.max_tokens)
            tokens = tuple(draw.randrange(vocabulary) for _ in range(count))
            yield Generation(
                prompt_index=prompt_index,
                sample_index=sample_index,
                text=str(self._script.get("text", " ".join(map(str, tokens)))),
                token_ids=np.asarray(tokens),
                logprobs=np.full(len(tokens), -math.log(vocabulary)),
                finish_reason="stop" if length <= sampling.max_tokens else "length",
                policy_version=self.version,
            )

    async def answer(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Return the scripted text for each sample; equal log-probabilities for `choice_tokens`."""
        self.log.append(f"answer {len(requests)}")
        if self._state != "awake":
            raise not_ready(self._state)
        outputs: list[list[TextOutput]] = []
        for request in requests:
            count = len(request.token_ids)
            if count >= self.settings.max_model_len:
                outputs.append(overlong_texts(request, self.settings.max_model_len))
                continue
            text = str(self._script.get("judge", self.version))
            await asyncio.sleep(float(self._script.get("answer_s", 0.0)))
            self._answered += 1
            logprobs = (0.0,) * len(request.choice_tokens)
            outputs.append([TextOutput(text, "stop", count, 1, logprobs)] * request.sampling.n)
        return outputs

    def progress(self) -> int:
        """Return how many samples and answers there were so far."""
        return self._samples + self._answered

    async def load_weights(self, path: str, *, version: int) -> None:
        """Record the path. Later samples carry `version` and differ from earlier ones."""
        self.published.append(str(path))
        self.version = version

    async def sleep(self, level: int = 1) -> None:
        """Make `generate` fail until `wake`."""
        self.log.append(f"sleep {level}")
        self._state = f"asleep {level}"

    async def wake(self, tags: Sequence[str] | None = None) -> None:
        """Wake. The engine is awake once no tags, or "kv_cache", were named."""
        self.log.append(f"wake {','.join(tags)}" if tags else "wake")
        if not tags or "kv_cache" in tags:
            self._state = "awake"

    async def resident_bytes(self) -> int:
        """Return 1 GiB awake, half at level 1, nothing at level 2."""
        return {"awake": _BYTES, "asleep 1": _BYTES // 2}.get(self._state, 0)

    async def shutdown(self) -> None:
        """Return to the state "cold"."""
        self.log.append("shutdown")
        self._state = "cold"
