"""`rmrl.adapters.verl`: per response, per batch and as a reward manager, called as verl's sources
call them."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rmrl.adapters import shared
from rmrl.adapters.shared import shared_rewards
from rmrl.adapters.verl import (
    RewardManager,
    compute_score,
    compute_score_async,
    compute_score_batch,
)
from rmrl.errors import ConfigError, DataError, MissingVerdictsError, RewardError

Make = Callable[..., dict[str, Any]]


def call(text: str, **extra_info: Any) -> dict[str, Any]:
    return {
        "data_source": "sums",
        "solution_str": text,
        "ground_truth": "4",
        "extra_info": {"num_turns": None, "rollout_reward_scores": {}, **extra_info},
    }


def test_a_response_has_its_reward_and_its_components(config: Make) -> None:
    section = config("right", "length", weights=[1.0, 0.5])
    scored = compute_score(**call("it is 4"), rewards=section, reward_router_address=None)
    assert scored == {
        "score": pytest.approx(1.35),
        "score_right": 1.0,
        "score_length": 0.7,
        "status_right": "ok",
        "status_length": "ok",
        "missing": 0.0,
    }


def test_calls_of_many_threads_are_scored_together(config: Make) -> None:
    """As verl's loop calls a function that is not async: from the threads of an executor."""
    section = config("length")
    with ThreadPoolExecutor(8) as threads:
        texts = ["x" * (i + 1) for i in range(24)]
        scored = list(threads.map(lambda text: compute_score(**call(text), rewards=section), texts))
    assert [entry["score"] for entry in scored] == [(i + 1) / 10 for i in range(24)]


async def test_the_async_form_is_recognized_and_scores(config: Make) -> None:
    assert inspect.iscoroutinefunction(compute_score_async)
    section = config("length")
    calls = [compute_score_async(**call("x" * i), rewards=section) for i in range(1, 9)]
    scored = await asyncio.gather(*calls)
    assert [entry["score"] for entry in scored] == [i / 10 for i in range(1, 9)]


def test_the_file_may_stand_in_the_environment(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"type export RMRL_REWARDS=reward\.yaml"):
        compute_score(**call("4"))
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(config("right")))
    monkeypatch.setenv("RMRL_REWARDS", str(path))
    assert compute_score(**call("4"))["score"] == 1.0


def test_a_missing_verdict_is_an_error_unless_a_number_was_typed(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = config("right", max_missing=1.0)
    with pytest.raises(RewardError, match=r"'right' unparseable.*missing_reward=<number>"):
        compute_score(**call("silent"), rewards=section)
    scored = compute_score(**call("silent"), rewards=section, missing_reward=-1.0)
    assert scored["score"] == -1.0
    assert math.isnan(scored["score_right"])
    assert (scored["status_right"], scored["missing"]) == ("unparseable", 1.0)
    monkeypatch.setenv("RMRL_MISSING_REWARD", "-2")
    assert compute_score(**call("silent"), rewards=section)["score"] == -2.0
    for name in ("nan", "inf"):
        with pytest.raises(ConfigError, match=f"missing_reward={name}.*finite"):
            compute_score(**call("silent"), rewards=section, missing_reward=float(name))
    monkeypatch.setenv("RMRL_MISSING_REWARD", "zero")
    with pytest.raises(ConfigError, match="RMRL_MISSING_REWARD='zero'; need a number"):
        compute_score(**call("silent"), rewards=section)


def test_the_batch_form_has_one_entry_per_response(config: Make) -> None:
    """The keywords of verl's BatchRewardManager; the columns are numpy arrays there."""
    scored = compute_score_batch(
        data_sources=np.array(["sums"] * 3, dtype=object),
        solution_strs=["4", "5", "44"],
        ground_truths=["4", "4", "4"],
        extra_infos=np.array([{}, {}, {}], dtype=object),
        rewards=config("right", "length", weights=[1.0, 1.0]),
    )
    assert [entry["score"] for entry in scored] == [1.1, 0.1, 1.2]


def test_single_responses_and_batches_share_a_scorer(config: Make) -> None:
    section = config("right")
    batch: dict[str, Any] = {"data_sources": ["sums"], "ground_truths": ["4"], "extra_infos": [{}]}
    assert compute_score(**call("4"), rewards=section)["score"] == 1.0
    (scored,) = compute_score_batch(**batch, solution_strs=["4"], rewards=section)
    assert scored["score"] == 1.0
    assert len(shared._SHARED) == 1
    # The budget of missing verdicts holds in batches; a single response has no share.
    with pytest.raises(MissingVerdictsError):
        compute_score_batch(**batch, solution_strs=["silent"], rewards=section, missing_reward=0.0)
    single = compute_score(**call("silent"), rewards=section, missing_reward=0.0)
    assert single["score"] == 0.0


def test_rewards_that_compare_need_the_batch_form_and_the_prompts(config: Make) -> None:
    section = config("length", transforms={"length": {"kind": "standardize", "by": "group"}})
    with pytest.raises(ConfigError, match="verl hands over one response at a time"):
        compute_score(**call("4"), rewards=section)
    texts = ["x", "xxx", "xx", "xx"]
    columns = {
        "data_sources": ["sums"] * 4,
        "solution_strs": texts,
        "ground_truths": ["4"] * 4,
    }
    with pytest.raises(DataError, match=r"extra_info\['prompt'\]"):
        compute_score_batch(**columns, extra_infos=[{}] * 4, rewards=section)
    prompts = [{"prompt": prompt} for prompt in ("p", "p", "q", "q")]
    scored = compute_score_batch(**columns, extra_infos=prompts, rewards=section)
    first, second, third, fourth = (entry["score"] for entry in scored)
    assert first == pytest.approx(-second) != 0.0
    assert third == fourth == 0.0


class Data(list[Any]):
    """The part of verl's DataProto that its reward managers read; items are its rows."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Data(found) if isinstance(key, slice) else found


def item(text: str, **fields: Any) -> SimpleNamespace:
    """A row of 2 prompt tokens and 8 response tokens, of which the text's are valid."""
    ids = torch.zeros(8, dtype=torch.int64)
    mask = torch.zeros(10, dtype=torch.int64)
    ids[: len(text)] = torch.tensor([ord(letter) for letter in text])
    mask[: 2 + len(text)] = 1
    plain = {"data_source": "sums", "reward_model": {"ground_truth": "4"}, "extra_info": {}}
    return SimpleNamespace(
        batch={"responses": ids, "attention_mask": mask}, non_tensor_batch={**plain, **fields}
    )


class Letters:
    """A tokenizer of a token per letter."""

    def decode(self, ids: torch.Tensor, *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(map(chr, ids.tolist()))


async def test_the_reward_manager_scores_the_last_sequence_with_its_prompt(
    config: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "reads.py").write_text(
        "def reads(prompts, completions, response_tokens, **columns):\n"
        "    return [len(p[-1]['content']) + n / 10 for p, n in zip(prompts, response_tokens)]\n"
    )
    section = config("right", "reads", weights=[1.0, 1.0])
    section["reward"]["specs"] = {"reads": {"function": f"{tmp_path}/reads.py:reads"}}
    settings = {"rewards": section}
    verl = SimpleNamespace(reward={"reward_kwargs": settings})
    manager = RewardManager(
        verl, Letters(), None, reward_router_address=None, reward_model_tokenizer=None
    )
    turns = [{"role": "user", "content": "2+2?"}]
    data = Data([item("not this"), item("is 4", raw_prompt=turns)])
    scored = await manager.run_single(data)
    assert scored["reward_score"] == pytest.approx(1.0 + 4.4)
    assert scored["reward_extra_info"]["score_reads"] == pytest.approx(4.4)
    assert any("reads: takes lists, and verl hands over one" in text for text in caplog.messages)


async def test_the_reward_manager_passes_turns_and_scores_of_the_rollout(
    config: Make, tmp_path: Path
) -> None:
    (tmp_path / "turns.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
        "    return extra_info['num_turns'] + extra_info['rollout_reward_scores'].get('tool', 0)\n"
    )
    verl = SimpleNamespace(reward={"reward_kwargs": {"rewards": config("turns")}})
    manager = RewardManager(verl, Letters())
    fields = {"__num_turns__": np.int32(2), "reward_scores": {"tool": 0.5}}
    scored = await manager.run_single(Data([item("4", **fields)]))
    assert scored["reward_score"] == 2.5
    scored = await manager.run_single(Data([item("4", __num_turns__=3)]))
    assert scored["reward_score"] == 3.0


def test_running_statistics_go_on_from_response_to_response(config: Make) -> None:
    transforms = {"length": {"kind": "standardize", "by": "running"}}
    section = config("length", transforms=transforms)
    rewards = [compute_score(**call("x" * n), rewards=section)["score"] for n in (10, 20, 30)]
    assert rewards[0] == 0.0
    assert 0.0 < rewards[1] != rewards[2] > 0.0


def test_a_file_that_is_edited_during_a_run_changes_no_reward(config: Make, tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(config("right")))
    assert compute_score(**call("4"), rewards=path)["score"] == 1.0
    path.write_text(yaml.safe_dump(config("length")))
    assert compute_score(**call("4"), rewards=str(path))["score"] == 1.0


def test_a_configuration_of_omegaconf_is_the_same_configuration(config: Make) -> None:
    from omegaconf import OmegaConf

    section = config("right", "length", weights=[1.0, 0.5])
    of_hydra = OmegaConf.create(section)
    assert shared_rewards(of_hydra) is shared_rewards(section)
    assert compute_score(**call("4"), rewards=of_hydra)["score"] == 1.05


def test_rewards_are_placed_at_the_last_tokens(config: Make) -> None:
    items = [item("abc"), item("abcdefgh")]
    batch = {
        "prompts": torch.zeros(2, 2, dtype=torch.int64),
        "responses": torch.stack([each.batch["responses"] for each in items]),
        "attention_mask": torch.stack([each.batch["attention_mask"] for each in items]),
    }
    rewards = RewardManager.assemble_rm_scores(SimpleNamespace(batch=batch), [0.5, -1.0])
    assert rewards.dtype == torch.float32
    assert rewards.nonzero().tolist() == [[0, 2], [1, 7]]
    assert rewards.sum(dim=1).tolist() == [0.5, -1.0]
