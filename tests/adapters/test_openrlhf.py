"""`rmrl.adapters.openrlhf`: called as OpenRLHF's SingleTurnAgentExecutor calls a reward file."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rmrl.adapters import gathered, openrlhf
from rmrl.errors import ConfigError, DataError, InfrastructureError, RewardError

Make = Callable[..., dict[str, Any]]


def loaded(path: str) -> Any:
    """As OpenRLHF loads the file of --reward.remote_url."""
    spec = importlib.util.spec_from_file_location("reward_func", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reward_func


async def test_the_adapters_own_file_serves_and_single_calls_come_from_threads(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(config("right", "length", weights=[1.0, 0.5])))
    monkeypatch.setenv("RMRL_REWARDS", str(path))
    reward_func = loaded(openrlhf.__file__)
    prompt = "<|user|>2 + 2?<|assistant|>"
    texts = ["4", "it is 5", "44"]
    calls = [
        asyncio.to_thread(reward_func, [f"{prompt}{text}</s>"], [prompt], ["4"]) for text in texts
    ]
    results = await asyncio.gather(*calls)
    rewards = torch.cat([result["rewards"] for result in results])
    assert rewards.tolist() == pytest.approx([1.05, 0.35, 1.1])
    assert rewards.dtype == torch.float32
    assert results[1]["scores"].tolist() == results[1]["rewards"].tolist()
    logs = results[1]["extra_logs"]
    assert {name: value.tolist() for name, value in logs.items()} == {
        "score_right": [0.0],
        "score_length": [pytest.approx(0.7)],
    }


def test_a_file_of_ones_own_names_its_configuration(config: Make, tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(config("right", max_missing=1.0)))
    file = tmp_path / "reward.py"
    file.write_text(
        "from rmrl.adapters.openrlhf import reward_func_of\n"
        f"reward_func = reward_func_of({str(path)!r}, missing_reward=-1.0)\n"
    )
    result = loaded(str(file))(["p4", "psilent"], ["p", "p"], ["4", "4"])
    assert result["rewards"].tolist() == [1.0, -1.0]
    assert result["extra_logs"]["score_right"].isnan().tolist() == [False, True]


def test_what_cannot_be_scored_is_an_error(config: Make) -> None:
    reward_func = openrlhf.reward_func_of(config("right", max_missing=1.0))
    with pytest.raises(DataError, match="the response is what stands behind the prompt"):
        reward_func(["other"], ["prompt"], ["4"])
    with pytest.raises(RewardError, match="'right' unparseable"):
        reward_func(["psilent"], ["p"], ["4"])


def test_a_response_whose_scoring_thread_died_is_an_error(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(gathered.Gathered, "_serve", lambda _: None)
    reward_func = openrlhf.reward_func_of(config("length"))
    with pytest.raises(InfrastructureError, match="the thread that scores responses ended"):
        reward_func(["p4"], ["p"], ["4"])


def test_the_file_that_is_missing_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RMRL_REWARDS", raising=False)
    with pytest.raises(ConfigError, match="RMRL_REWARDS is not set"):
        openrlhf.reward_func(["p4"], ["p"], ["4"])


def test_marks_around_the_response_are_no_part_of_it(config: Make) -> None:
    reward_func = openrlhf.reward_func_of(config("length"))
    prompt = "2 + 2? (asked in a prompt that is cut)"
    queries = [
        f"<s>{prompt}four<|im_end|>",
        f"{prompt}four<end_of_turn>",
        f"{prompt}four<|im_end|><|endoftext|>",
        f"{prompt}four<|im_end|>\n",
        f"{prompt[4:]}four",
    ]
    result = reward_func(queries, [prompt] * 5, ["4"] * 5)
    assert result["rewards"].tolist() == pytest.approx([0.4] * 5)
