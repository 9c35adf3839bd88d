"""Reward functions of EasyR1, AReaL, slime, rLLM and open-instruct as rules."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.list_signatures import InLists, MisfitError
from rmrl.rewards.dropins.peer_forms import PEER_FORMS, peer_form
from rmrl.rewards.dropins.signatures import bound, rule_form
from tests.rewards.dropins import test_list_signatures as list_signatures

FORMS = {" ".join(form.marks): form for form in PEER_FORMS}


def offered(response: str, **entries: Any) -> dict[str, Any]:
    defaults = {"plain_text": False, "finish_reason": "stop", "response_tokens": 3}
    return list_signatures.offered(response, **{**defaults, **entries})


def scored(function: Any, *group: dict[str, Any]) -> list[Any]:
    form = rule_form(function, "here")
    assert isinstance(form, InLists)
    return form.call_group(group)


@pytest.mark.parametrize("names", sorted(FORMS))
def test_every_form_is_known_by_its_parameters_and_by_no_others(names: str):
    assert peer_form([*names.split(), "further"]) is FORMS[names]
    assert peer_form(names.split()[1:]) is None


@pytest.mark.parametrize(
    "names",
    [
        "data_source solution_str ground_truth extra_info",
        "prompts completions completion_ids",
        "completion answer prompt state",
        "queries prompts labels",
        "completions solution",
    ],
)
def test_the_forms_of_other_trainers_stay_theirs(names: str):
    assert peer_form(names.split()) is None


def test_easyr1_scores_a_list_of_inputs_and_its_overall_is_the_score():
    seen: list[Any] = []

    def compute_score(reward_inputs: list[dict[str, Any]], format_weight: float = 0.1) -> Any:
        seen.extend(reward_inputs)
        return [
            {"overall": 1 - format_weight, "accuracy": float(each["response"] == "4")}
            for each in reward_inputs
        ]

    assert scored(compute_score, offered("4"), offered("5", response_tokens=0)) == [
        {"score": 0.9, "accuracy": 1.0},
        {"score": 0.9, "accuracy": 0.0},
    ]
    assert seen[0] == {"level": 2, "response": "4", "response_length": 3, "ground_truth": "4"}
    with pytest.raises(MisfitError, match=r"give data\.tokenizer=<the policy's>"):
        _ = seen[1]["response_length"]  # nobody counted them
    with pytest.raises(KeyError):
        _ = seen[1]["level_of_none"]
    scored(compute_score, offered(" \n", response_tokens=0))
    assert seen[-1]["response_length"] == 0
    with_weight = bound(compute_score, {"format_weight": 0.5}, "here")
    assert scored(with_weight, offered("4"))[0]["score"] == 0.5


def test_easyr1_scores_one_input_where_its_parameter_says_so():
    def compute_score(reward_input: dict[str, Any]) -> dict[str, float]:
        return {"overall": float(reward_input["response"] == reward_input["ground_truth"])}

    assert scored(compute_score, offered("4"), offered("")) == [{"score": 1.0}, {"score": 0.0}]


def test_arguments_that_nobody_gave_are_named_before_the_start():
    def compute_score(reward_inputs: list[Any], max_response_length: int) -> list[Any]:
        return [max_response_length for _ in reward_inputs]

    with pytest.raises(RewardFunctionError, match=r"arguments\.max_response_length="):
        rule_form(compute_score, "here")
    given = bound(compute_score, {"max_response_length": 8}, "here")
    assert scored(given, offered("4")) == [8]


def test_areal_gets_texts_and_the_row_s_columns():
    def reward(
        prompt: str,
        completions: str,
        prompt_ids: Any,
        completion_ids: Any,
        answer: str,
        **rest: Any,
    ) -> float:
        assert prompt == "2 + 2?"
        assert prompt_ids is None
        assert rest["level"] == 2
        return len(completion_ids or ()) + float(completions == answer)

    assert scored(reward, offered("4"), offered("5")) == [1.0, 0.0]
    assert scored(reward, offered("4", completion_ids=[7, 8])) == [3.0]


def test_areal_s_missing_columns_are_named():
    def reward(
        prompt: str, completions: str, prompt_ids: Any, completion_ids: Any, tests: Any
    ) -> float:
        return 1.0

    with pytest.raises(MisfitError, match="needs tests, which this row does not have"):
        scored(reward, offered("4"))


async def slime_rule(args: Any, sample: Any, **kwargs: Any) -> Any:
    assert sample.metadata == {"level": 2}
    score = float(sample.response == sample.label)
    if getattr(args, "reward_key", None):
        return {args.reward_key: score, "length": sample.response_length}
    return score


def test_slime_gets_a_sample_and_its_arguments():
    assert scored(slime_rule, offered("4"), offered("5")) == [1.0, 0.0]
    keyed = bound(slime_rule, {"args": {"reward_key": "acc"}}, "here")
    assert scored(keyed, offered("4")) == [{"acc": 1.0, "length": 3, "score": 1.0}]


def test_slime_gets_the_samples_of_a_prompt_together():
    async def batched(args: Any, samples: list[Any]) -> list[float]:
        return [sample.index + len(samples) for sample in samples]

    assert scored(batched, offered("4"), offered("5")) == [2, 3]


@dataclass
class Sample:
    class Status(Enum):
        COMPLETED = "completed"
        TRUNCATED = "truncated"

    group_index: int
    index: int
    prompt: Any
    tokens: list[int]
    response: str
    response_length: int
    label: str
    metadata: dict[str, Any]
    status: Status
    reward: Any = field(default=None)


def test_a_sample_is_slime_s_own_where_the_function_has_imported_it(monkeypatch: Any):
    monkeypatch.setitem(sys.modules, "slime.utils.types", SimpleNamespace(Sample=Sample))

    def cut(args: Any, sample: Any) -> float:
        return float(sample.status is Sample.Status.TRUNCATED)

    assert scored(cut, offered("4", finish_reason="length"), offered("4")) == [1.0, 0.0]


def test_rllm_gets_the_task_and_its_output_is_a_score_with_columns():
    def reward(task_info: dict[str, Any], action: str) -> Any:
        right = action == task_info["ground_truth"] and task_info["level"] == 2
        return SimpleNamespace(reward=0.5 * right, is_correct=right, metadata={"note": "n"})

    assert scored(reward, offered("4"), offered("5")) == [
        {"note": "n", "is_correct": True, "score": 0.5},
        {"note": "n", "is_correct": False, "score": 0.0},
    ]


def test_rllm_may_return_a_number():
    assert scored(lambda task_info, action: 0.25, offered("4")) == [0.25]


class Verifier:
    def __call__(
        self, tokenized_prediction: list[int], prediction: str, label: Any, query: str | None = None
    ) -> Any:
        score = float(prediction == str(label) and query == "2 + 2?")
        return SimpleNamespace(score=score, cost=0.0, reasoning=None if score else "wrong")


def test_open_instruct_s_verifiers_are_instances_that_get_text_label_and_query():
    assert scored(Verifier(), offered("4"), offered("5")) == [
        1.0,
        {"score": 0.0, "reasoning": "wrong"},
    ]
    with pytest.raises(MisfitError, match="needs label, and this row has no reference answer"):
        scored(Verifier(), offered("4", ground_truth=None))
