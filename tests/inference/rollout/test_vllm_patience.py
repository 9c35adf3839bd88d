"""How long a call of the vLLM rollout engine may take: vLLM itself is played by a script, whose
steps move the clock on by the time that they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import StallError
from rmrl.inference.reward_engine_base import GenerateRequest
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.types import Sampling
from tests.virtual_time import VirtualLoop

pytestmark = pytest.mark.virtual_time

REQUESTS = [GenerateRequest((1, 2), Sampling(max_tokens=1))] * 8


class Steps:
    """Finishes a request with every `every`-th step of `step_s` seconds; 0: never one."""

    def __init__(self, *, step_s: float, every: int) -> None:
        self.step_s, self.every = step_s, every
        self.loop = virtual_loop()
        self.waiting: list[str] = []
        self.steps = 0

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[Any]:
        self.loop.now += self.step_s
        self.steps += 1
        if not self.every or self.steps % self.every:
            return []
        sample = SimpleNamespace(text="7", token_ids=(3,), logprobs=None, finish_reason="stop")
        return [SimpleNamespace(request_id=self.waiting.pop(0), finished=True, outputs=[sample])]

    def abort_request(self, ids: Sequence[str]) -> None:
        self.waiting = [i for i in self.waiting if i not in ids]


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


class Scripted(VLLMRollout):
    """Its answers may be 8 s apart."""

    def __init__(self, steps: Steps) -> None:
        settings = RolloutEngineSettings.of(
            RolloutConfig(),
            path="toy",
            tokenizer=None,
            device="cpu",
            threads=1,
            max_model_len=64,
            trust_remote_code=False,
            timeout_s=8.0,
        )
        super().__init__(settings, clock=steps.loop.time)
        self._engine = steps
        texts: Any = SimpleNamespace(fill=lambda output, params: None)
        self._texts = texts

    def _submit_requests(self, ids: Sequence[str]) -> None:
        self._engine.waiting += ids


async def test_answers_may_take_longer_than_the_deadline_in_all() -> None:
    """8 answers, each after 4 steps of 1.5 s."""
    engine = Scripted(Steps(step_s=1.5, every=4))
    assert [texts[0].text for texts in await engine.answer(REQUESTS)] == ["7"] * 8
    assert engine.progress() == 32
    assert virtual_loop().now == 48


async def test_an_engine_that_finishes_nothing_is_a_stall() -> None:
    engine = Scripted(Steps(step_s=0.5, every=0))
    with pytest.raises(StallError, match=r"finished nothing for .*rollout\.timeout_s=8 s"):
        await engine.answer(REQUESTS)
    # A step more has begun, and is finished.
    assert 8 <= virtual_loop().now <= 9
    assert engine._engine.waiting == []
    assert engine.progress() > 0


async def test_the_deadline_counts_from_what_was_finished_last() -> None:
    """Three answers after 3, 6 and 9 s, and then none."""
    steps = Steps(step_s=3.0, every=1)
    engine = Scripted(steps)
    whole = steps.step

    def step() -> list[Any]:
        if steps.steps == 3:
            steps.every = 0
            steps.step_s = 0.5
        return whole()

    steps.step = step  # type: ignore[method-assign]
    with pytest.raises(StallError):
        await engine.answer(REQUESTS)
    assert 17 <= virtual_loop().now <= 18
