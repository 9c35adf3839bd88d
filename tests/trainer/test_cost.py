"""The sentence on what a step takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.schema import Config
from rmrl.models.checkpoint_inspect import parameter_count
from rmrl.telemetry.clock import rough_duration
from rmrl.trainer import cost
from rmrl.trainer.cost import step_cost


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (40, "40 s"),
        (119, "119 s"),
        (720, "12 min"),
        (9 * 3600, "9 h"),
        (3 * 86400, "3 days"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (2 * 86400, "2 days"),
    ],
)
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text


def config(policy: Path, *, prompts: int) -> Config:
    made = Config()
    made.actor_rollout_ref.model.path = str(policy)
    made.actor_rollout_ref.rollout.n = 8
    made.data.train_batch_size = prompts
    return made


def test_the_time_of_a_step_on_two_cores(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(2 + 6) operations x parameters x 8,192 responses x (100 + 512) tokens / (2 x 45e9)."""
    monkeypatch.setattr(cost, "cores", lambda: 2)
    seconds = 8 * parameter_count(str(tiny_llama)) * 8192 * 612 / 90e9
    sentence = step_cost(
        config(tiny_llama, prompts=1024), device="cpu", reference=False, prompt_tokens=100
    )
    assert sentence.startswith(
        "one step samples and trains on 8,192 responses of up to 512 tokens: at full length about "
    )
    assert f"about {rough_duration(seconds)} on this CPU (2 cores)" in sentence


def test_advice_comes_with_steps_of_more_than_ten_minutes_only(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "CPU_FLOPS_PER_CORE", 1e6)
    assert "to try things out: data.train_batch_size=8" in step_cost(
        config(tiny_llama, prompts=1024), device="cpu", reference=True, prompt_tokens=10
    )
    monkeypatch.setattr(cost, "CPU_FLOPS_PER_CORE", 1e15)
    assert "to try" not in step_cost(
        config(tiny_llama, prompts=1024), device="cpu", reference=True, prompt_tokens=10
    )


def test_on_a_gpu_no_time_is_guessed(tiny_llama: Path) -> None:
    sentence = step_cost(
        config(tiny_llama, prompts=4), device="cuda", reference=False, prompt_tokens=10
    )
    assert sentence == "one step samples and trains on 32 responses of up to 512 tokens"
