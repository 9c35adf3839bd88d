"""Seeds of samples, or of calls, that the vLLM rollout engine gives; vLLM is not imported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.inference.rollout_base import RolloutEngineSettings, call_seed
from rmrl.inference.vllm import rollout
from rmrl.inference.vllm.rollout import VLLMRollout, seeds_samples
from rmrl.types import Sampling

PROMPTS = [[1, 2], [3, 4]]


def settings_of(*, device: str, seed_per_sample: bool | None = None) -> RolloutEngineSettings:
    config = RolloutConfig(seed_per_sample=seed_per_sample)
    decided: dict[str, Any] = {"path": "toy", "tokenizer": None, "threads": 1, "seed": 5}
    return RolloutEngineSettings.of(
        config, device=device, max_model_len=64, trust_remote_code=False, **decided
    )


@pytest.mark.parametrize(
    ("device", "first_runner", "chosen", "per_sample"),
    [
        ("cpu", True, None, True),
        ("cuda", True, None, False),
        ("cuda", False, None, True),
        ("cuda", True, True, True),
        ("cpu", True, False, False),
    ],
)
def test_samples_have_seeds_where_they_cost_nothing_or_are_asked_for(
    device: str, first_runner: bool, chosen: bool | None, per_sample: bool
) -> None:
    settings = settings_of(device=device, seed_per_sample=chosen)
    assert seeds_samples(settings, first_runner=first_runner) is per_sample


class Recorder:
    """An engine that notes the seeds it is given."""

    def __init__(self) -> None:
        self.samples: list[int | None] = []
        self.calls: list[int] = []

    def add_request(self, _: str, __: object, params: Any) -> None:
        self.samples.append(params.seed)

    def collective_rpc(self, method: str, args: tuple[int, ...]) -> None:
        assert method == "seed_sampling"
        self.calls.extend(args)


def submitted(per_sample: bool, monkeypatch: pytest.MonkeyPatch, *, seed: int | None) -> Recorder:
    """The seeds of a call with two samples of two prompts."""
    monkeypatch.setattr(rollout, "sampling_params", lambda _, **fields: SimpleNamespace(**fields))
    engine: Any = VLLMRollout(settings_of(device="cuda"))
    engine._engine, engine._seeds_samples = Recorder(), per_sample
    engine._texts = SimpleNamespace(needs_vllm=lambda _: False)
    requests = {
        f"{prompt}{sample}": rollout._Pending(prompt, sample, 0, engine._thread)
        for prompt in range(2)
        for sample in range(2)
    }
    engine._submit(requests, PROMPTS, Sampling(max_tokens=1, n=2, seed=seed))
    return engine._engine


def test_a_seed_for_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = submitted(True, monkeypatch, seed=7)
    assert (seeds.samples, seeds.calls) == ([7, 8, 9, 10], [])


def test_a_seed_for_the_call_needs_no_generator_of_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = submitted(False, monkeypatch, seed=7)
    drawn = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert seeds.samples == [None] * 4
    assert seeds.calls == [call_seed(7, 5, PROMPTS, drawn)]
    assert submitted(False, monkeypatch, seed=None).calls == []


def test_no_two_calls_draw_the_same_numbers() -> None:
    """Other prompts, other samples of them, another engine and another step have other seeds; the
    same call has the same."""
    calls = [
        call_seed(7, 5, PROMPTS, [(0, 0)]),
        call_seed(7, 5, PROMPTS, [(0, 1)]),
        call_seed(7, 5, PROMPTS[:1], [(0, 0)]),
        call_seed(7, 6, PROMPTS, [(0, 0)]),
        call_seed(8, 5, PROMPTS, [(0, 0)]),
    ]
    assert len(set(calls)) == 5
    assert call_seed(7, 5, PROMPTS, [(0, 0)]) == calls[0]
