"""`rmrl.adapters.verifiers`: a Rubric as environments up to 0.3 call it, a reward function as tasks
of 0.4 do. The package is not installed here: its Rubric is one with the same constructor."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from rmrl.adapters import verifiers
from rmrl.errors import ConfigError, RewardError

Make = Callable[..., dict[str, Any]]
PROMPT = [{"role": "user", "content": "2 + 2?"}]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("verifiers")

    class Rubric:
        def __init__(self, funcs: list[Any] | None = None) -> None:
            self.funcs = funcs or []

    module.Rubric = Rubric  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", module)
    return module


def state(text: str, **columns: Any) -> dict[str, Any]:
    return {
        "prompt": PROMPT,
        "completion": [{"role": "assistant", "content": text}],
        "answer": "4",
        "info": {},
        "input": {"prompt": PROMPT, "answer": "4", "example_id": 3},
        "trajectory": [{"advantage": None, "reward": None}, {"advantage": 5.0, "reward": 5.0}],
        **columns,
    }


async def test_a_rollout_has_the_combined_reward_and_the_components_as_metrics(
    config: Make, package: ModuleType
) -> None:
    rubric = verifiers.rubric(config("right", "length", weights=[1.0, 0.5]))
    assert isinstance(rubric, package.Rubric)
    states = [state("4"), state("it is 5")]
    await asyncio.gather(*map(rubric.score_rollout, states))
    assert [each["reward"] for each in states] == pytest.approx([1.05, 0.35])
    assert states[1]["metrics"] == {"reward": 0.35, "right": 0.0, "length": 0.7}


async def test_a_group_is_scored_together_and_has_advantages(
    config: Make, package: ModuleType
) -> None:
    transforms = {"length": {"kind": "standardize", "by": "group"}}
    rubric = verifiers.rubric(config("length", transforms=transforms))
    states = [state("x"), state("xxx")]
    await rubric.score_group(states)
    first, second = (each["reward"] for each in states)
    assert first == pytest.approx(-second) != 0.0
    assert states[0]["advantage"] == pytest.approx(first)  # the mean is 0
    turns = states[0]["trajectory"]
    assert turns[0] == {"advantage": states[0]["advantage"], "reward": first}
    assert turns[1] == {"advantage": 5.0, "reward": 5.0}
    with pytest.raises(ConfigError, match="verifiers hands over one response at a time"):
        await rubric.score_rollout(state("x"))


async def test_a_rollout_without_a_reward_is_an_error_or_the_typed_number(
    config: Make, package: ModuleType
) -> None:
    section = config("right", max_missing=1.0)
    with pytest.raises(RewardError, match="'right' unparseable"):
        await verifiers.rubric(section).score_rollout(state("silent"))
    silent = state("silent")
    await verifiers.rubric(section, missing_reward=-1.0).score_rollout(silent)
    assert silent["reward"] == -1.0
    assert math.isnan(silent["metrics"]["right"])


async def test_a_rollout_that_failed_leaves_its_group_the_scores(
    config: Make, package: ModuleType
) -> None:
    section = config("right")
    states = [state("4"), state("", completion=[]), state("", completion=None), state("silent")]
    with pytest.raises(RewardError, match=r"'right' unparseable: a completion is \[\]"):
        await verifiers.rubric(section).score_group(states)
    assert states[0]["reward"] == 1.0
    await verifiers.rubric(section, missing_reward=-1.0).score_group(states)
    assert [each["reward"] for each in states] == [1.0, -1.0, -1.0, -1.0]
    # the mean is -0.5
    assert [each["advantage"] for each in states] == [1.5, -0.5, -0.5, -0.5]
    assert math.isnan(states[1]["metrics"]["right"])
    single = state("", completion=[])
    await verifiers.rubric(section, missing_reward=-1.0).score_rollout(single)
    assert single["reward"] == -1.0


async def test_a_group_without_rollouts_has_no_scores(config: Make, package: ModuleType) -> None:
    await verifiers.rubric(config("right")).score_group([])


async def test_rules_see_the_columns_of_the_input_and_of_info(
    config: Make, package: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "reads.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
        "    return extra_info['example_id'] + extra_info['level'] / 10\n"
    )
    scored = state("4", info={"level": 5})
    await verifiers.rubric(config("reads")).score_rollout(scored)
    assert scored["reward"] == 3.5


def test_a_version_without_rubrics_is_refused(
    config: Make, package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(package, "Rubric")
    with pytest.raises(ConfigError, match=r"rmrl\.adapters\.verifiers:reward"):
        verifiers.rubric(config("right"))


class TaskData(SimpleNamespace):
    """The data of a task of verifiers 0.4."""

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        assert exclude_none
        return dict(vars(self))


class Trace(SimpleNamespace):
    """What a reward function reads and writes of a trace of verifiers 0.4."""

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value


async def test_a_function_for_tasks_scores_the_last_reply(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(config("right", "length", weights=[1.0, 0.5])))
    monkeypatch.setenv("RMRL_REWARDS", str(path))
    task = TaskData(idx=0, prompt="2 + 2?", answer="4")
    trace = Trace(last_reply="it is 4", branches=[], metrics={})
    assert await verifiers.reward(task, trace) == pytest.approx(1.35)
    assert trace.metrics == {"right": 1.0, "length": 0.7}


async def test_a_trace_without_a_reward_is_invalid(config: Make) -> None:
    task = TaskData(prompt=PROMPT, answer="4")
    section = config("right", max_missing=1.0)
    with pytest.raises(RewardError, match="'right' unparseable"):
        await verifiers.reward_of(section)(
            task, Trace(last_reply="silent", branches=[], metrics={})
        )
    trace = Trace(last_reply="silent", branches=[], metrics={})
    assert await verifiers.reward_of(section, missing_reward=0.0)(task, trace) == 0.0
    assert trace.metrics == {}


def branch(*turns: tuple[str, str], sampled_from: int) -> SimpleNamespace:
    """A path through the messages of a trace: those of the model from `sampled_from` on are
    sampled."""
    nodes: list[SimpleNamespace] = []
    for place, (role, content) in enumerate(turns):
        sampled = role == "assistant" and place >= sampled_from
        nodes.append(SimpleNamespace(message={"role": role, "content": content}, sampled=sampled))
    return SimpleNamespace(nodes=nodes)


ASKED = [("system", "Be brief. You have tools."), ("user", "2 + 2?")]
TALK = [("assistant", "add(2, 2)"), ("tool", "4"), ("user", "So?"), ("assistant", " it is 4\n")]


def test_a_trace_is_a_conversation() -> None:
    """The task's own prompts, not those of the harness; of another branch nothing."""
    task = TaskData(prompt="2 + 2?", system_prompt="Be brief.", answer="4")
    aside = branch(*ASKED, ("assistant", "a summary"), sampled_from=2)
    talk = branch(*ASKED, *TALK, sampled_from=2)
    for branches in ([talk, aside], [aside, talk]):
        row = verifiers.trace_row(task, Trace(last_reply="it is 4", branches=branches))
        assert [(turn["role"], turn["content"]) for turn in row["prompt"]] == [
            ("system", "Be brief."),
            ("user", "2 + 2?"),
            ("assistant", "add(2, 2)"),
            ("tool", "4"),
            ("user", "So?"),
        ]
        assert row["response"] == "it is 4"
        assert row["ground_truth"] == "4"
    elsewhere = verifiers.trace_row(task, Trace(last_reply="four", branches=[talk, aside]))
    assert [turn["content"] for turn in elsewhere["prompt"]] == ["Be brief.", "2 + 2?"]


def test_turns_of_an_example_in_the_prompt_are_prompt() -> None:
    """The model wrote the last turn alone."""
    example = [("user", "1 + 1?"), ("assistant", "2")]
    prompt = [{"role": role, "content": content} for role, content in [*example, ASKED[1]]]
    shown = branch(*example, ASKED[1], ("assistant", "4"), sampled_from=3)
    row = verifiers.trace_row(TaskData(prompt=prompt), Trace(last_reply="4", branches=[shown]))
    assert row["prompt"] == prompt
    opened = verifiers.trace_row(TaskData(prompt=None), Trace(last_reply="4", branches=[shown]))
    assert opened["prompt"] == prompt


async def test_a_transcript_has_the_earlier_turns_of_a_trace(config: Make, tmp_path: Path) -> None:
    (tmp_path / "turns.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n"
        "    return float(solution_str.count('[assistant]\\n')) + 10 * ('[tool]\\n4' in solution_str)\n"
    )
    task = TaskData(prompt="2 + 2?")
    trace = Trace(
        last_reply="it is 4", branches=[branch(*ASKED, *TALK, sampled_from=2)], metrics={}
    )
    read = {"specs": {"turns": {"reads": "transcript"}}}
    assert await verifiers.reward_of(config("turns", **read))(task, trace) == 12.0
