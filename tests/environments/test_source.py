"""Samples that an environment plays: tokens, failures, deadlines, the end of processes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rmrl.config.schema.rollout import VerifiersConfig
from rmrl.environments.endpoint import Conversing
from rmrl.environments.hosts import default_count
from rmrl.environments.source import read_tasks
from rmrl.errors import ConfigError, EngineLostError, InfrastructureError
from rmrl.rewards.session.turns import turn_items
from rmrl.trainer.step_rewards import step_token_rewards
from rmrl.types import Generation, Prompt, Response, Rollouts, Sampling, ScoreItem, Step
from tests.environments.conftest import Opened
from tests.patience import PATIENCE_S, expires

SAMPLING = Sampling(max_tokens=20, n=2, seed=7)


def prompt(number: int = 0, **task: Any) -> Prompt:
    return Prompt(
        id=f"p:{number}",
        messages=[{"role": "user", "content": "Q"}],
        token_ids=(1,),
        extra_info={"task": json.dumps({"text": "Q", **task})},
    )


async def draw(tokens: Any, sampling: Sampling, key: str) -> Generation:
    """Two tokens that depend on the seed, as an engine's."""
    rng = np.random.default_rng(sampling.seed)
    ids = rng.integers(10, 90, min(2, sampling.max_tokens))
    return Generation(
        prompt_index=0,
        sample_index=0,
        text="",
        token_ids=ids,
        logprobs=-rng.random(len(ids)),
        finish_reason="stop",
        policy_version=5,
    )


async def played(source: Any, *prompts: Prompt, drawn: Any = draw) -> Rollouts:
    counts: list[int] = []
    arrived: dict[int, Response] = {}
    rollouts = await asyncio.wait_for(
        source.generate(
            drawn,
            prompts,
            SAMPLING,
            on_finished=counts.append,
            on_response=arrived.__setitem__,
        ),
        PATIENCE_S,
    )
    assert counts == list(range(1, len(rollouts.responses) + 1))
    assert [arrived[i] for i in range(len(arrived))] == list(rollouts.responses)
    return rollouts


async def test_a_response_has_exactly_the_tokens_that_were_drawn(opened: Opened):
    async with opened() as source:
        rollouts = await played(source, prompt(0), prompt(1))
    assert rollouts.group_size == 2
    first = rollouts.responses[0]
    assert first.prompt.token_ids == (1, 2, 3)
    # two tokens, the tool's 4, the template's 5, two tokens
    assert first.mask.tolist() == [True, True, False, False, True, True]
    assert first.token_ids[2:4].tolist() == [4, 5]
    assert first.logprobs[2:4].tolist() == [0, 0]
    assert (first.logprobs[[0, 1, 4, 5]] < 0).all()
    turns = [(turn.start, turn.end, turn.role) for turn in first.turns]
    assert turns == [(0, 2, "assistant"), (2, 3, "tool"), (3, 6, "assistant")]
    assert (first.text, first.finish_reason, first.policy_version) == ("two", "stop", 5)
    assert first.branches == ()
    talk = first.prompt.conversation
    assert [turn["role"] for turn in talk.messages[talk.first :]] == [
        "assistant",
        "tool",
        "assistant",
    ]
    assert talk.rewards == {"right": 1.0, "later": None, "reward": 2.0}
    assert talk.stop == "agent_completed"


async def test_samples_differ_and_a_seeded_step_repeats_itself(opened: Opened):
    async with opened() as source:
        once = await played(source, prompt(0))
        again = await played(source, prompt(0))
    tokens = [response.token_ids.tolist() for response in once.responses]
    assert tokens[0] != tokens[1]
    assert tokens == [response.token_ids.tolist() for response in again.responses]


async def test_a_context_that_is_no_continuation_is_a_branch(opened: Opened):
    async with opened() as source:
        rollouts = await played(source, prompt(does="forks"))
    response = rollouts.responses[0]
    assert [branch.prompt_ids for branch in response.branches] == [(1, 2, 3), (1, 2, 3, 99, 5)]
    assert [branch.length for branch in response.branches] == [2, 2]
    assert response.mask.all()
    # the first turn is part of the response, not of its prompt
    talk = response.prompt.conversation
    assert [turn["content"] for turn in talk.messages[talk.first :]] == ["one", "more", "two"]
    assert [turn.number for turn in response.turns] == [0, 1]


async def test_turns_are_numbered_as_rewards_read_them(opened: Opened):
    """A turn from before a compaction is read by nobody; one that the harness writes has no
    tokens."""
    async with opened() as source:
        rollouts = await played(source, prompt(does="compacts"))
    response = rollouts.responses[0]
    assert response.mask.tolist() == [True] * 4 + [False] * 2 + [True] * 2
    numbers = [turn.number for turn in response.turns]
    assert numbers == [None, 0, None, None, 2]
    talk = response.prompt.conversation
    item = ScoreItem(prompt_id="p:0", messages=(), response="", rm_prompt="", conversation=talk)
    assert [turn.response for turn in turn_items(item)] == ["two", "noted", "three"]
    steps = [tuple(Step(0, value, turn=turn) for turn, value in enumerate([1.0, 2.0, 4.0]))]
    (rewards,) = step_token_rewards(steps, [response], repr).rows()
    assert rewards.tolist() == [0, 0, 0, 1.0, 0, 0, 0, 4.0]


async def test_a_trace_with_a_token_that_nobody_drew_ends_the_run(opened: Opened):
    async with opened() as source:
        with pytest.raises(InfrastructureError, match="tokens that no rollout engine drew"):
            await played(source, prompt(does="lies"))


async def test_two_agents_that_train_are_refused(opened: Opened):
    async with opened() as source:
        with pytest.raises(InfrastructureError, match="several agents that train"):
            await played(source, prompt(does="two_agents"))


async def test_a_failed_episode_is_a_status_and_no_tokens(opened: Opened):
    async with opened() as source:
        rollouts = await played(source, prompt(0, does="fails"), prompt(1))
    failed = rollouts.responses[0]
    assert failed.sampled == 0
    talk = failed.prompt.conversation
    assert (talk.status, talk.detail) == (
        "provider_error",
        "the environment failed: RuntimeError: the tool is gone",
    )
    assert rollouts.responses[2].sampled == 4


@pytest.mark.parametrize(
    ("task", "max_model_len", "stop", "sampled"),
    [
        ({"stop": "max_turns"}, 64, "max_turns", 4),
        ({"finish": "length"}, 64, "length", 4),
        # 3 of the prompt, then 2 sampled tokens and one of the template for each turn
        ({"does": "goes_on"}, 9, "max_total_tokens", 4),
        ({"does": "goes_on"}, 99, "max_output_tokens", 20),
    ],
)
async def test_a_limit_is_a_stop_reason_and_no_zero(
    opened: Opened, task: Any, max_model_len: int, stop: str, sampled: int
):
    """The fake environment gives 1.0."""
    for on_limit, status in (("missing", "overlong"), ("score", "ok")):
        async with opened(max_model_len=max_model_len, on_limit=on_limit) as source:
            rollouts = await played(source, prompt(**task))
        response = rollouts.responses[0]
        talk = response.prompt.conversation
        assert (talk.stop, response.finish_reason, response.sampled) == (stop, "length", sampled)
        if on_limit == "missing" or "does" not in task:
            assert talk.status == status
        else:
            # its harness recorded an error
            assert talk.status == "provider_error"


async def test_stragglers_are_abandoned(opened: Opened):
    async with opened(wait_share=0.5, straggler_s=expires(0.2)) as source:
        rollouts = await played(source, prompt(0), prompt(1, does="hangs"))
    assert [response.sampled for response in rollouts.responses] == [4, 4, 0, 0]
    talk = rollouts.responses[2].prompt.conversation
    assert (talk.status, talk.stop) == ("timeout", "abandoned")


async def test_a_turn_that_is_being_drawn_is_cancelled_before_the_engines_may_sleep(opened: Opened):
    """The quick samples draw once the slow ones are being drawn, which never end by themselves."""
    being_drawn: list[str] = []
    both = asyncio.Event()
    cancelled: list[str] = []

    async def gated(tokens: Any, sampling: Sampling, trace: str) -> Generation:
        if sampling.seed in slow_seeds:
            being_drawn.append(trace)
            if len(being_drawn) == 2:
                both.set()
            try:
                await asyncio.Event().wait()
            finally:
                # an engine needs a moment to let go
                await asyncio.sleep(0.01)
                cancelled.append(trace)
        else:
            await both.wait()
        return await draw(tokens, sampling, trace)

    # seeds of first turns: those of the sample's own seed behind the prompt (1, 2, 3)
    slow_seeds = {
        Conversing(draw=draw, sampling=replace(SAMPLING, seed=SAMPLING.seed + position))
        .sampling_behind([1, 2, 3])
        .seed
        for position in (2, 3)
    }
    async with opened(wait_share=0.5, straggler_s=expires(0.2)) as source:
        rollouts = await played(source, prompt(0), prompt(1), drawn=gated)
        assert len(cancelled) == 2
        assert sorted(cancelled) == sorted(being_drawn)
    assert [response.sampled for response in rollouts.responses] == [4, 4, 0, 0]


async def test_a_deadline_is_a_timeout(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rmrl.environments.source._GRACE_S", 0.0)
    async with opened(seconds=expires(0.5)) as source:
        rollouts = await played(source, prompt(does="hangs"))
    talk = rollouts.responses[0].prompt.conversation
    assert talk.status == "timeout"
    assert talk.detail.startswith("the environment gave no trace")


async def test_a_host_that_dies_is_started_again_once(opened: Opened, tmp_path: Path):
    async with opened() as source:
        rollouts = await played(source, prompt(0, does="dies", mark=str(tmp_path / "a")), prompt(1))
        assert [response.sampled for response in rollouts.responses] == [4, 4, 4, 4]
        with pytest.raises(EngineLostError, match="the environment's process has ended"):
            await played(source, prompt(0, does="dies"))


async def test_several_processes_play_the_same_samples_and_each_may_end_once(
    opened: Opened, tmp_path: Path
):
    def hosts() -> list[psutil.Process]:
        children = psutil.Process().children(recursive=True)
        return [process for process in children if "fake_host.py" in " ".join(process.cmdline())]

    async with opened() as source:
        one = await played(source, *map(prompt, range(4)))
    async with opened(processes=2) as source:
        before = hosts()
        assert len(before) == 2
        two = await played(source, *map(prompt, range(4)))
        tokens = [
            [each.token_ids.tolist() for each in rollouts.responses] for rollouts in (one, two)
        ]
        assert tokens[0] == tokens[1]
        # one process ends, or both where both samples look for the mark at once
        again = await played(source, prompt(0, does="dies", mark=str(tmp_path / "a")), prompt(1))
        assert [response.sampled for response in again.responses] == [4, 4, 4, 4]
        assert len(hosts()) == 2
        assert set(hosts()) != set(before)
        with pytest.raises(EngineLostError, match="the environment's process has ended"):
            await played(source, prompt(0, does="dies"))
    assert hosts() == []


@pytest.mark.parametrize(("machine", "count"), [(2, 1), (8, 2), (128, 16)])
def test_a_process_for_every_four_cores(machine: int, count: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rmrl.environments.hosts.cores", lambda: machine)
    assert default_count() == count


async def test_an_engine_that_is_lost_for_good_ends_the_run(opened: Opened):
    async def lost(tokens: Any, sampling: Any, key: str) -> Generation:
        raise EngineLostError("the rollout engine has died twice")

    async with opened() as source:
        with pytest.raises(EngineLostError, match="died twice"):
            await played(source, prompt(), drawn=lost)


async def test_a_loss_in_the_last_turns_ends_the_run_too(opened: Opened):
    """The host takes the refused turn as the end of its episode."""

    async def lost(tokens: Any, sampling: Sampling, trace: str) -> Generation:
        if len(tokens) > 3:
            raise EngineLostError("the rollout engine has died twice")
        return await draw(tokens, sampling, trace)

    async with opened() as source:
        with pytest.raises(EngineLostError, match="died twice"):
            await played(source, prompt(), drawn=lost)


async def test_no_process_is_left(opened: Opened):
    mine = psutil.Process()
    before = set(mine.children(recursive=True))
    async with opened() as source:
        await played(source, prompt())
        assert set(mine.children(recursive=True)) - before
    assert not set(mine.children(recursive=True)) - before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"env": "missing"}, "the environment cannot be opened .*taskset 'missing' not found"),
        ({"env": "no_verifiers"}, "needs verifiers 0.4.*python -m venv agents"),
        ({"python": "/nowhere/python"}, "verifiers.python=/nowhere/python cannot be started"),
    ],
)
async def test_an_environment_that_cannot_be_opened(opened: Opened, settings: Any, said: str):
    with pytest.raises(ConfigError, match=said):
        async with opened(**settings):
            pass


async def test_tasks_are_read(opened: Opened, tmp_path: Path):
    tasks = await read_tasks(VerifiersConfig(env="fake"), 2, log=tmp_path / "log")
    assert tasks == [{"text": "0"}, {"text": "1"}]


async def test_a_row_without_a_task(opened: Opened):
    async with opened() as source:
        bare = Prompt(id="p:0", messages=[{"role": "user", "content": "Q"}], token_ids=(1,))
        with pytest.raises(InfrastructureError, match="row p:0 has no task"):
            await played(source, bare)
