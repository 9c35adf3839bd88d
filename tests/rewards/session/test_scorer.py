"""From responses to one reward each, with real rules in real worker processes and engines that
follow a script."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.errors import (
    EngineLostError,
    InfrastructureError,
    MissingVerdictsError,
    RewardError,
    RewardFunctionError,
)
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.telemetry.names import score_metrics
from rmrl.types import Prompt, RewardBatch, Sampling
from tests.patience import PATIENCE_S
from tests.rewards.parts import JUDGE, engine, fake_host, judge, make_scorer, rows, rule, scalar
from tests.support.fake_processes import FakeHost

RECORDING = engine(name="tests.rewards.parts:RecordingEngine", kwargs={"text": "7"})
Score = Callable[..., Any]


@pytest.fixture
def score(tokenizer: Any) -> Score:
    """score(specs, responses, host=..., **settings of the scorer): the batch; the scorer is closed
    afterwards."""

    async def run(
        specs: Sequence[RewardSpec],
        responses: Sequence[str],
        *,
        host: FakeHost | None = None,
        rounds: int = 1,
        **settings: Any,
    ) -> RewardBatch:
        scorer = make_scorer(specs, tokenizer, host=host, **settings)
        try:
            for _ in range(rounds):
                batch = await asyncio.wait_for(scorer.score(rows(*responses)), PATIENCE_S)
        finally:
            await scorer.close()
        return batch

    return run


async def test_rules_and_models_become_one_reward(score: Score, tmp_path: Path):
    specs = [
        rule(tmp_path, "length", "return len(solution_str)", weight=0.5),
        judge(tmp_path, engine=RECORDING, weight=2.0),
    ]
    batch = await score(specs, ["ab", "abcd"])
    assert batch.scores.names == ("length", "judge")
    assert batch.scores.values_BC.tolist() == [[2.0, 7.0], [4.0, 7.0]]
    assert batch.rewards_B.tolist() == [15.0, 16.0]  # 0.5 * 2 + 2 * 7;  0.5 * 4 + 2 * 7
    assert batch.metrics["engine/judge/loads"] == 1
    judged = batch.scores.results[1][0]
    assert (judged.rendered, judged.raw_text) == ("Q ab", "7")
    assert judged.latency_s > 0


async def test_a_missing_verdict_is_nan_and_masks(score: Score, tmp_path: Path):
    batch = await score(
        [rule(tmp_path, "some", "return None if solution_str == 'x' else 1")], ["x", "y"]
    )
    assert np.isnan(batch.scores.values_BC[0, 0])
    assert batch.keep_B.tolist() == [False, True]
    assert [r.status for r in batch.scores.results[0]] == ["unparseable", "ok"]


async def test_nan_of_a_users_function_is_never_a_number(score: Score, tmp_path: Path):
    code = JUDGE.replace("[float(text) if", "[float('nan') if")
    batch = await score(
        [
            judge(tmp_path, code=code, engine=RECORDING),
            rule(tmp_path, "nan", "return float('nan')"),
        ],
        ["x"],
    )
    assert [column[0].status for column in batch.scores.results] == ["user_error", "user_error"]
    assert "returned nan" in batch.scores.results[0][0].detail
    assert batch.keep_B.tolist() == [False]


PREPROCESS = "rm_preprocess(text_prompts, text_responses, tgt_tokenizer)"
POSTPROCESS = "rm_postprocess(results)"


@pytest.mark.parametrize(
    ("function", "body", "words"),
    [
        (PREPROCESS, "return ['1']", "returned 1 inputs for 2 responses"),
        (POSTPROCESS, "return ['1']", "returned 1 scores for 2 responses"),
        (POSTPROCESS, "return ['1'] * 3", "returned 3 scores for 2 responses"),
        (POSTPROCESS, "return 0.5", "returned float; a list with one score per response"),
    ],
)
async def test_a_wrong_count_names_the_scorer_and_both_numbers(
    score: Score, tmp_path: Path, function: str, body: str, words: str
):
    code = f"{JUDGE}\ndef {function}:\n    {body}\n"
    name = function.partition("(")[0]
    with pytest.raises(RewardFunctionError, match=f"{name} of reward 'judge' {words}"):
        await score([judge(tmp_path, code=code)], ["a", "b"])


@pytest.mark.parametrize("function", [PREPROCESS, POSTPROCESS])
async def test_a_drop_in_that_raises_is_named_with_its_line(
    score: Score, tmp_path: Path, function: str
):
    code = JUDGE + f"\ndef {function}:\n    raise KeyError('verdict')\n"
    line = len(JUDGE.splitlines()) + 3
    place = rf"raised KeyError: 'verdict' \(.*judge\.py:{line} in rm_.* on the response 'a'"
    with pytest.raises(MissingVerdictsError, match=place):
        await score([judge(tmp_path, code=code)], ["a", "b"], max_missing=0.5)


async def test_too_many_missing_verdicts_stop_the_run(score: Score, tmp_path: Path):
    spec = rule(tmp_path, "half", "return 1 / int(solution_str)")
    responses = ["1", "0", "2", "0"]
    with pytest.raises(MissingVerdictsError) as caught:
        await score([spec], responses, max_missing=0.25)
    message = str(caught.value)
    assert "reward 'half' gave no verdict for 2 of 4 responses (2 user_error)" in message
    assert "reward.max_missing=0.25 allows 25%" in message
    assert "ZeroDivisionError" in message
    assert caught.value.exit_code == 3
    batch = await score([spec], responses, max_missing=0.5)
    assert batch.keep_B.tolist() == [True, False, True, False]


async def test_a_file_is_scored_whole_whatever_its_budget(tmp_path: Path):
    spec = rule(tmp_path, "half", "return 1 / int(solution_str)")
    scorer = make_scorer([spec], None, max_missing=0.25)
    try:
        batch = await scorer.score(rows("1", "0", "2", "0"), within_budget=False)
    finally:
        await scorer.close()
    assert batch.keep_B.tolist() == [True, False, True, False]


async def test_a_dead_judge_of_weight_zero_ends_nothing_and_stays_visible(
    score: Score, tmp_path: Path
):
    dead = rule(tmp_path, "dead", "return None", weight=0.0, on_missing=OnMissing(policy="fail"))
    specs = [rule(tmp_path, "one", "return 1"), dead]
    batch = await score(specs, ["a", "b"], max_missing=0.0, max_missing_by_cause={"data": 0.0})
    assert batch.rewards_B.tolist() == [1.0, 1.0]
    metrics = score_metrics(batch.scores, batch, [1, 1])
    assert metrics["score/dead/missing"] == metrics["score/dead/missing_unparseable"] == 1.0
    assert metrics["reward/kept"] == 1.0


@pytest.mark.parametrize(
    ("on_missing", "rewards"),
    [
        (OnMissing(policy="renormalize"), [4.0, 4.0]),
        (OnMissing(policy="impute", value=-1.0), [-2.0, 4.0]),
        (OnMissing(policy="fail"), None),
    ],
    ids=str,
)
async def test_on_missing(
    score: Score, tmp_path: Path, on_missing: OnMissing, rewards: list[float] | None
):
    body = "return None if solution_str == '' else 1"
    some = rule(tmp_path, "some", body, weight=3.0, on_missing=on_missing)
    specs = [rule(tmp_path, "one", "return 1"), some]
    if rewards is None:
        words = (
            "reward 'some' gave no verdict for 1 of 2 responses and on_missing=fail: unparseable"
        )
        with pytest.raises(RewardError, match=words):
            await score(specs, ["", "x"])
    else:
        assert (await score(specs, ["", "x"])).rewards_B.tolist() == rewards


@pytest.mark.parametrize(
    ("temperature", "responses", "requests"), [(0.0, "abaa", 2), (1.0, "aa", 2)]
)
async def test_equal_inputs_are_asked_once_of_a_greedy_judge_alone(
    score: Score,
    tmp_path: Path,
    engine_calls: list[Any],
    temperature: float,
    responses: str,
    requests: int,
):
    sampling = Sampling(max_tokens=4, temperature=temperature)
    batch = await score([judge(tmp_path, engine=RECORDING, sampling=sampling)], list(responses))
    assert len(batch.rewards_B) == len(responses)
    ((_, sent),) = engine_calls
    assert len(sent) == requests


async def test_two_rewards_of_one_engine_make_one_process_and_one_call(
    score: Score, tmp_path: Path, engine_calls: list[Any]
):
    host = fake_host()
    batch = await score(
        [judge(tmp_path, "a", engine=RECORDING), judge(tmp_path, "b", engine=RECORDING)],
        ["x", "y"],
        host=host,
    )
    assert len(host.spawned) == 1
    ((_, requests),) = engine_calls
    assert len(requests) == 4
    assert batch.rewards_B.tolist() == [14.0, 14.0]


async def test_two_engines_take_turns(score: Score, tmp_path: Path):
    host = fake_host()
    specs = [scalar(residency="on_demand"), judge(tmp_path, residency="on_demand")]
    await score(specs, ["x"], host=host, rounds=2)
    assert [p.calls for p in host.spawned] == [
        ["start", "classify", "sleep", "wake", "classify", "sleep"],
        ["start", "generate", "sleep", "wake", "generate", "sleep"],
    ]


async def test_a_failing_reward_does_not_hang_the_one_beside_it(
    score: Score, tmp_path: Path, engine_calls: list[Any]
):
    failing = judge(
        tmp_path, "b", code=f"{JUDGE}\ndef {PREPROCESS}:\n    return []\n", engine=RECORDING
    )
    with pytest.raises(RewardFunctionError, match="returned 0 inputs"):
        await score([judge(tmp_path, "a", engine=RECORDING), failing], ["x"])
    assert len(engine_calls) <= 1


async def test_a_failing_engine_ends_waiting_rules_too(score: Score, tmp_path: Path):
    broken = engine(kwargs={"fail_on_call": 1})
    slow = rule(tmp_path, "slow", "import time; time.sleep(600); return 1", timeout_s=600.0)
    with pytest.raises(InfrastructureError, match="scripted to fail"):
        await score([slow, judge(tmp_path, engine=broken)], ["x"])  # within PATIENCE_S


async def test_an_engine_that_loses_results_is_an_error(score: Score, tmp_path: Path):
    with pytest.raises(InfrastructureError, match="returned 1 results of generate for 2 requests"):
        await score(
            [judge(tmp_path, engine=engine(name="tests.rewards.parts:FewEngine"))], ["a", "b"]
        )


async def test_one_death_costs_nothing_and_two_end_the_run(score: Score, tmp_path: Path):
    batch = await score([judge(tmp_path, engine=RECORDING)], ["a"], host=fake_host(p0=2))
    assert batch.rewards_B.tolist() == [7.0]
    with pytest.raises(EngineLostError, match="judge"):
        await score([judge(tmp_path, engine=RECORDING)], ["a"], host=fake_host(p0=2, p1=2))


async def test_a_cancelled_step_leaves_no_engine_busy(tokenizer: Any, tmp_path: Path):
    class Hangs:
        """A host whose processes never finish a call to generate."""

        def __init__(self) -> None:
            self.killed = 0
            self.called = asyncio.Event()

        async def spawn(self, factory: str, settings: Any, *, name: str) -> Any:
            return self

        async def call(self, method: str, *args: Any, timeout_s: float) -> float:
            if method == "generate":
                self.called.set()
                await asyncio.Event().wait()
            return 0.0

        def remember_family(self) -> None:
            pass

        async def kill(self) -> None:
            self.killed += 1

    host = Hangs()
    scorer = make_scorer([judge(tmp_path)], tokenizer, host=host)
    work = asyncio.create_task(scorer.score(rows("a")))
    await asyncio.wait_for(host.called.wait(), PATIENCE_S)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(work, PATIENCE_S)
    assert host.killed == 1
    assert scorer.residency.states == {"judge": "unloaded"}
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []
    await scorer.close()


async def test_no_responses(score: Score, tmp_path: Path):
    batch = await score([rule(tmp_path, "r", "return 1"), judge(tmp_path), scalar()], [])
    assert batch.rewards_B.shape == (0,)


def prompt_with(**rm_prompts: str) -> Prompt:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "last"},
    ]
    return Prompt(
        id="t:0",
        messages=messages,
        token_ids=(1,),
        rm_prompts={k.lstrip("_"): v for k, v in rm_prompts.items()},
        data_source="src",
    )


@pytest.mark.parametrize(
    ("rm_prompts", "read"),
    [
        ({"_judge": "by name", "_0": "by position", "_": "for all"}, "by name"),
        ({"_0": "by position", "_": "for all", "_1": "another's"}, "by position"),
        ({"_": "for all", "_1": "another's", "_other": "another's"}, "for all"),
        ({"_judge": "", "_": "for all"}, "for all"),
        ({}, "last"),
    ],
)
def test_which_prompt_a_reward_reads(tmp_path: Path, rm_prompts: dict[str, str], read: str):
    prompt = prompt_with(**rm_prompts)
    row = ResponseRow(prompt=prompt, text="text", finish_reason="length", tokens=3, group=5)
    item = score_item(row, judge(tmp_path))
    assert item.rm_prompt == read
    assert (item.response, item.finish_reason) == ("text", "length")
    assert (item.response_tokens, item.data_source, item.group) == (3, "src", 5)


def test_a_reward_may_read_the_whole_conversation(tmp_path: Path):
    whole = dataclasses.replace(judge(tmp_path), rm_prompt="conversation")
    row = ResponseRow(prompt=prompt_with(_="for all"), text="text")
    assert score_item(row, whole).rm_prompt == row.prompt.messages
    named = ResponseRow(prompt=prompt_with(_judge="by name"), text="text")
    assert score_item(named, whole).rm_prompt == "by name"
    (*_, last) = row.prompt.messages
    single = ResponseRow(prompt=dataclasses.replace(row.prompt, messages=[last]), text="text")
    assert score_item(single, whole).rm_prompt == "last"


def test_a_rule_has_no_position(tmp_path: Path):
    row = ResponseRow(prompt=prompt_with(_0="first model's", _="for all"), text="text")
    assert score_item(row, rule(tmp_path, "r", "return 1")).rm_prompt == "for all"
