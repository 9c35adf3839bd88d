"""How long a call of the vLLM rollout engine may take: vLLM itself is played by a script, whose
steps take the time that they are told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import StallError
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.scoring_base import GenerateRequest
from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.types import Sampling

REQUESTS = [GenerateRequest((1, 2), Sampling(max_tokens=1))] * 8


class Steps:
    """Finishes a request with every `every`-th step of `step_s` seconds; 0: never one."""

    def __init__(self, *, step_s: float, every: int) -> None:
        self.step_s, self.every = step_s, every
        self.waiting: list[str] = []
        self.steps = 0

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[Any]:
        time.sleep(self.step_s)
        self.steps += 1
        if not self.every or self.steps % self.every:
            return []
        sample = SimpleNamespace(text="7", token_ids=(3,), logprobs=None, finish_reason="stop")
        return [SimpleNamespace(request_id=self.waiting.pop(0), finished=True, outputs=[sample])]

    def abort_request(self, ids: Sequence[str]) -> None:
        self.waiting = [i for i in self.waiting if i not in ids]


class Scripted(VLLMRollout):
    def __init__(self, steps: Steps, *, timeout_s: float) -> None:
        settings = RolloutEngineSettings.of(
            RolloutConfig(),
            path="toy",
            tokenizer=None,
            device="cpu",
            threads=1,
            max_model_len=64,
            trust_remote_code=False,
            timeout_s=timeout_s,
        )
        super().__init__(settings)
        self._engine = steps
        texts: Any = SimpleNamespace(fill=lambda output, params: None)
        self._texts = texts

    def _submit_requests(self, ids: Sequence[str]) -> None:
        self._engine.waiting += ids


async def test_answers_may_take_longer_than_the_deadline_in_all() -> None:
    """8 answers, each after 4 steps of 0.05 s: 1.6 s, of which no 0.8 s pass without an answer."""
    engine = Scripted(Steps(step_s=0.05, every=4), timeout_s=0.8)
    assert [texts[0].text for texts in await engine.answer(REQUESTS)] == ["7"] * 8
    assert engine.progress() == 32


async def test_an_engine_that_finishes_nothing_is_a_stall() -> None:
    engine = Scripted(Steps(step_s=0.01, every=0), timeout_s=0.3)
    with pytest.raises(StallError, match=r"finished nothing for .*rollout\.timeout_s=0\.3 s"):
        await engine.answer(REQUESTS)
    assert engine._engine.waiting == []
    assert engine.progress() > 0


async def test_the_deadline_counts_from_what_was_finished_last() -> None:
    """Three answers, and then none: the engine ends 0.3 s after the third."""
    steps = Steps(step_s=0.1, every=1)
    engine = Scripted(steps, timeout_s=0.3)
    whole = steps.step

    def step() -> list[Any]:
        if steps.steps == 3:
            steps.every = 0
        return whole()

    steps.step = step  # type: ignore[method-assign]
    started = time.monotonic()
    with pytest.raises(StallError):
        await engine.answer(REQUESTS)
    assert time.monotonic() - started > 0.55
