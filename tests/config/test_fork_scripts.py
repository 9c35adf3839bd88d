"""The run scripts of VeRL-with-RMs: every override is accepted, and lists and defaults mean what
its code did with them.

What that was is worked out here from the overrides alone, by the rules of its trainer:

    similarity   added first, with bge_weight, where use_bge
    per model    reward_function, else rider_reward;  reward_weight, else 0.5;  reward_combine_func,
      else add;  temperature, else 0.6
    all of them  count where the rule of the row is 1
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rmrl.config.check import config_problems
from rmrl.config.compat import start_from_rules, translate
from rmrl.config.compat.use import needs_rule_of_source
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from rmrl.errors import ConfigError

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "scripts" / "overrides.json"
PREFIX = "fork/runs/"
SCRIPTS: dict[str, list[str]] = {}
if FILE.is_file():
    SCRIPTS = {
        name: words
        for name, words in json.loads(FILE.read_text(encoding="utf-8")).items()
        if name.startswith(PREFIX)
    }
WITHOUT_A_MODEL = f"{PREFIX}h_fork_0702_test_grm_qwq_w03_multiply.sh"
"""Its variable for the checkpoint is not set: model.path=[] for one function, which that trainer
refused as well."""
pytestmark = pytest.mark.skipif(not SCRIPTS, reason=f"{FILE} is not here")


def overrides(name: str) -> list[str]:
    return [word for word in SCRIPTS[name] if "=" in word]


def of_each(value: Any, count: int, default: Any) -> list[Any]:
    if value is None:
        return [default] * count
    return list(value) if isinstance(value, list) else [value] * count


def meant(words: list[str]) -> dict[str, Any]:
    """What the trainer of these scripts did with the reward, from the words of a command line."""
    typed = OmegaConf.to_container(
        OmegaConf.from_dotlist([word for word in words if word.startswith("reward_model.")])
    )
    assert isinstance(typed, dict)
    section: dict[str, Any] = dict(typed.get("reward_model", {}))  # type: ignore[call-overload]
    if not section.get("enable"):
        return {}
    paths = of_each(section["model"]["path"], 1, None)
    rollout, count = section.get("reward_vllm_rollout", {}), len(paths)
    similar = bool(section.get("use_bge"))
    return {
        "models": [
            *(["bge"] if similar else []),
            *of_each(section.get("reward_function"), count, "rider_reward"),
        ],
        "weights": [
            *([float(section["bge_weight"])] if similar else []),
            *map(float, of_each(section.get("reward_weight"), count, 0.5)),
        ],
        "ops": [
            *(["add"] if similar else []),
            *of_each(section.get("reward_combine_func"), count, "add"),
        ],
        "paths": paths,
        "temperatures": of_each(rollout.get("temperature"), count, 0.6),
        "memory": of_each(rollout.get("gpu_memory_utilization"), count, None),
        "tensor_parallel": rollout.get("tensor_model_parallel_size"),
    }


def seen(config: Config) -> dict[str, Any]:
    """The same of a translated configuration."""
    reward = config.reward
    judges = [
        reward.specs[name] for name in reward.models if reward.specs[name]["kind"] == "generative"
    ]
    (parallel,) = {spec["engine"].get("tensor_parallel_size") for spec in judges}
    return {
        "models": reward.models,
        "weights": reward.weights,
        "ops": reward.combine_ops,
        "paths": [spec["path"] for spec in judges],
        "temperatures": [spec["sampling"]["temperature"] for spec in judges],
        "memory": [spec["engine"].get("gpu_memory_utilization") for spec in judges],
        "tensor_parallel": parallel,
    }


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_means_what_it_meant(name: str):
    from rmrl.trainer.check_strategy import strategy_problems  # imports torch

    words = overrides(name)
    config = compose_config(words)
    if name == WITHOUT_A_MODEL:
        with pytest.raises(ConfigError, match=r"model\.path has 0 .*reward_function 1 entry"):
            translate(config)
        return
    translate(config)
    expected = meant(words)
    assert needs_rule_of_source(config) == bool(expected)
    if not expected:
        assert config.reward.models == []  # the rule of each row's data_source alone
        return
    assert seen(config) == expected
    assert {
        spec["sampling"]["max_tokens"]
        for spec in config.reward.specs.values()
        if "sampling" in spec
    } == {4096}
    start_from_rules(config, {"rider_format": ["rider"]})
    assert config.reward.models == ["rider_format", *expected["models"]]
    assert all(
        config.reward.specs[each]["counts_at"] == {"rider_format": 1} for each in expected["models"]
    )
    assert config_problems(config) == []
    assert list(strategy_problems(config, device="cuda")) == []


def test_the_scripts_are_all_there():
    assert len(SCRIPTS) == 31
    assert sum(len(overrides(name)) for name in SCRIPTS) == 1416
