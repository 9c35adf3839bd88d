"""Rows scored by two LoRA adapters and their base, on one engine in a process of its own: the scores
of three checkpoints on three engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl import Rewards
from rmrl.errors import ConfigError
from tests.engine_models import write_adapter, write_llama

NAMES = ("plain", "kind", "exact")


def test_one_load_for_three_rewards(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = write_llama(tmp_path / "judge")
    models: dict[str, dict[str, Any]] = {"plain": {"path": str(base)}}
    merged: dict[str, dict[str, Any]] = {"plain": {"path": str(base)}}
    for seed, name in enumerate(NAMES[1:], start=1):
        folder = tmp_path / name
        write_adapter(folder, base, seed=seed, merged=tmp_path / f"{name}-merged")
        models[name] = {"path": str(base), "adapter": str(folder)}
        merged[name] = {"path": str(tmp_path / f"{name}-merged")}

    def scored(specs: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
        for entries in specs.values():
            entries["score_tokens"] = {"a": 1, "b": 0}
        section = {
            "models": list(NAMES),
            "specs": specs,
            "engine": {"name": "hf", "dtype": "float32", "max_model_len": 1024, "threads": 1},
        }
        caplog.clear()
        with Rewards({"reward": section, "trainer": {"device": "cpu"}}) as rewards:
            table = rewards.score(["What is it?", "And now?"], ["A cat.", "Nothing at all."])
        return {name: table[f"score_{name}"] for name in NAMES}

    shared = scored(models)
    loads = [message for message in caplog.messages if message.startswith("loading ")]
    assert len(loads) == 1
    alone = scored(merged)
    assert shared["plain"] == alone["plain"]
    for name in NAMES[1:]:
        assert shared[name] == pytest.approx(alone[name], abs=1e-5)
        assert shared[name] != pytest.approx(shared["plain"], abs=1e-3)


def test_there_is_no_policy_where_rows_are_scored(tmp_path: Path) -> None:
    section = {"models": ["judge"], "specs": {"judge": {"path": "policy", "rubric": "Good."}}}
    with pytest.raises(ConfigError, match="no policy trains here; give its checkpoint"):
        Rewards({"reward": section, "trainer": {"device": "cpu"}})
