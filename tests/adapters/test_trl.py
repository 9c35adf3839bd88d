"""`rmrl.adapters.trl`: rewards as TRL calls them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmrl.adapters.shared import shared_rewards
from rmrl.adapters.trl import check_processes, reward_funcs, rows_of
from rmrl.data.groups import group_of
from rmrl.data.schema import as_messages
from rmrl.errors import ConfigError, DataError, MissingVerdictsError
from tests.rewards.parts import checkpoint

Make = Callable[..., dict[str, Any]]

PROMPTS = ["2 + 2?", "2 + 2?", "3 + 4?", "3 + 4?"]
COMPLETIONS = ["4", "it is 5", "7!", "silent"]
IDS = [[1], [2, 3, 4], [5, 6], [7]]
CALL: dict[str, Any] = {
    "prompts": PROMPTS,
    "completions": COMPLETIONS,
    "completion_ids": IDS,
    "ground_truth": ["4", "4", "7", "7"],
    "trainer_state": object(),
}


def test_each_component_has_its_name_its_weight_and_its_scores(config: Make) -> None:
    funcs = reward_funcs(config("right", "length", weights=[1.0, 0.5]))
    assert [func.__name__ for func in funcs] == ["right", "length"]
    assert isinstance(funcs, list)  # GRPOTrainer takes anything else for a single function
    assert funcs.weights == [1.0, 0.5]
    values = [func(**CALL) for func in funcs]
    assert values[0] == [1.0, 0.0, 1.0, None]
    # "silent" has a length, but no reward: it leaves TRL's sum and the mean of its group.
    assert values[1] == [0.1, 0.7, 0.2, None]
    assert funcs.combined(**CALL) == [1.05, 0.35, 1.1, None]


def size(solution_str: str) -> float:
    return len(solution_str)


def test_a_function_and_its_file_are_configurations(tmp_path: Path) -> None:
    file = tmp_path / "length.py"
    file.write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return len(solution_str)\n"
    )
    (func,) = reward_funcs(str(file))
    assert func.__name__ == "length"
    assert func(**CALL) == [1.0, 7.0, 2.0, 6.0]
    for given in (size, [size], {"models": [size]}):
        (func,) = reward_funcs(given)
        assert func.__name__ == "size"
        assert func(**CALL) == [1.0, 7.0, 2.0, 6.0]
    for other in (3, None):
        with pytest.raises(ConfigError, match="need a section `reward`"):
            reward_funcs(other)  # type: ignore[arg-type]


def test_the_weighted_sum_that_trl_makes_is_the_combined_reward(config: Make) -> None:
    """Transforms and an imputed verdict: 0.25 stands in for that of "silent"."""
    section = config(
        "right",
        "length",
        weights=[2.0, 0.5],
        transforms={"length": {"kind": "scale", "factor": 3.0}},
        specs={"right": {"on_missing": {"impute": 0.25}}},
    )
    funcs = reward_funcs(section)
    values = [func(**CALL) for func in funcs]
    assert values[0] == [1.0, 0.0, 1.0, 0.25]
    assert values[1] == pytest.approx([0.3, 2.1, 0.6, 1.8])
    sums = [2.0 * right + 0.5 * length for right, length in zip(*values, strict=True)]
    assert funcs.combined(**CALL) == pytest.approx(sums)


def test_one_step_is_scored_once_and_an_equal_step_again(config: Make, tmp_path: Path) -> None:
    funcs = reward_funcs(config("counted", "length", weights=[1.0, 1.0]))
    log = tmp_path / "calls.txt"
    call = {**CALL, "log": [str(log)] * 4}
    funcs[1](**call)  # before its first batch each rule is tried on a row
    log.write_text("")
    for func in (funcs[1], funcs[0], funcs.combined):
        func(**call)
    assert sorted(log.read_text().splitlines()) == sorted(COMPLETIONS)
    for func in funcs:
        func(**call)
    assert sorted(log.read_text().splitlines()) == sorted(COMPLETIONS * 2)


def test_a_batch_that_was_changed_in_place_is_scored_anew(config: Make) -> None:
    funcs = reward_funcs(config("right", "length", weights=[1.0, 1.0]))
    call = {**CALL, "completions": list(COMPLETIONS)}
    funcs[0](**call)
    call["completions"][0] = "four"
    assert funcs[1](**call)[0] == 0.4


def test_columns_that_json_lacks_are_columns(config: Make) -> None:
    funcs = reward_funcs(config("right", "length", weights=[1.0, 1.0]))
    column = [{1: "a", (2, 3): b"b", None: {4}}] * len(COMPLETIONS)
    assert [f(**CALL, odd=column) for f in funcs] == [f(**CALL) for f in funcs]


def test_conversations_are_prompts_and_completions(config: Make) -> None:
    (func,) = reward_funcs(config("right"))
    prompts = [[{"role": "user", "content": text}] for text in PROMPTS]
    completions: list[Any] = [[{"role": "assistant", "content": text}] for text in COMPLETIONS]
    completions[0] = [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": [{"type": "text", "text": "so: 4"}]},
    ]
    call = {**CALL, "prompts": prompts, "completions": completions}
    assert func(**call) == [1.0, 0.0, 1.0, None]


def test_a_transcript_has_the_turns_before_the_response():
    call = {"name": "add", "arguments": {}}
    completion = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "4"},
        {"role": "assistant", "content": "so: 4"},
    ]
    (row,) = rows_of(["2 + 2?"], [completion], None, {})
    assert row["response"] == "so: 4"
    assert row["prompt"] == [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "4", "name": "add"},
    ]
    (alone,) = rows_of(["2 + 2?"], [completion[-1:]], None, {})
    assert alone["prompt"] == "2 + 2?"
    # both are responses to one prompt
    keys = [group_of(each, as_messages(each["prompt"], "prompt"), ()) for each in (row, alone)]
    assert keys[0] == keys[1]
    (other,) = rows_of(["3 + 4?"], [completion], None, {})
    assert group_of(other, as_messages(other["prompt"], "prompt"), ()) != keys[0]


def test_turns_of_a_prompt_that_only_call_tools_have_no_text(config: Make) -> None:
    (func,) = reward_funcs(config("right"))
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]},
        {"role": "tool", "content": "4"},
    ]
    assert func(prompts=[turns], completions=["4"], answer=["4"]) == [1.0]


def test_scores_of_parts_of_a_response_are_refused(config: Make, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "model", head=True)
    spec = {"kind": "process", "path": str(path), "to_tokens": True, "engine": {"name": "hf"}}
    with pytest.raises(ConfigError, match="steps: scores go to parts of a response"):
        reward_funcs(config("steps", specs={"steps": spec}), combined=True)


def test_engines_on_gpus_beside_several_processes_are_refused(config: Make, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "model", head=True)
    section = config("scalar", specs={"scalar": {"path": str(path), "engine": {"name": "hf"}}})
    shared = shared_rewards(section)
    plans = shared.rewards.checked.engines
    check_processes(plans, 8)  # on CPU each process has its own
    on_gpu = [replace(plan, spec=replace(plan.spec, device="cuda")) for plan in plans]
    check_processes(on_gpu, 1)
    with pytest.raises(ConfigError, match="scalar: each of the 8 training processes"):
        check_processes(on_gpu, 8)


def test_the_trainer_gets_the_statuses_and_the_share_of_missing_verdicts(config: Make) -> None:
    columns: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    logging = {"log_extra": columns.__setitem__, "log_metric": metrics.__setitem__}
    funcs = reward_funcs(config("right", "length", weights=[1.0, 1.0]))
    for func in funcs:
        func(**CALL, **logging)
    assert columns["status_right"] == ["ok", "ok", "ok", "unparseable"]
    assert metrics == {"rewards/right/missing": 0.25, "rewards/length/missing": 0.0}
    columns.clear()
    funcs.combined(**CALL, **logging)
    assert columns["score_length"] == [0.1, 0.7, 0.2, 0.6]


def test_rules_see_the_columns_of_the_data_set_and_the_length_in_tokens(
    config: Make, tmp_path: Path
) -> None:
    (tmp_path / "reads.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info, response_tokens):\n"
        "    assert data_source == 'sums' and ground_truth == '4'\n"
        "    return extra_info['level'] + response_tokens / 10\n"
    )
    (func,) = reward_funcs(config("reads"))
    call = {
        "prompts": ["p", "q"],
        "completions": ["a", "b"],
        "completion_ids": [[1, 2], [1, 2, 3]],
        "solution": ["4", "4"],
        "data_source": ["sums", "sums"],
        "level": [1, 2],
    }
    assert func(**call) == [1.2, 2.3]


def test_a_file_is_a_configuration_and_a_function_survives_pickling(
    config: Make, tmp_path: Path
) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text(yaml.safe_dump(config("right")))
    (func,) = reward_funcs(path)
    again = pickle.loads(pickle.dumps(func))
    assert again.__name__ == "right"
    assert again(**CALL) == [1.0, 0.0, 1.0, None]


REFUSED: dict[str, dict[str, Any]] = {
    "reward.combine=product": {"combine": "product"},
    "on_missing=renormalize of 'right'": {"specs": {"right": {"on_missing": "renormalize"}}},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_sum_cannot_express_is_refused_and_the_combined_reward_has_it(
    config: Make, reason: str
) -> None:
    section = config("right", "length", weights=[1.0, 1.0], **REFUSED[reason])
    with pytest.raises(ConfigError, match="combined=True") as caught:
        reward_funcs(section)
    assert reason in str(caught.value)
    funcs = reward_funcs(section, combined=True)
    assert [func.__name__ for func in funcs] == ["reward"]
    assert funcs.weights == [1.0]


def test_the_product_is_one_function(config: Make) -> None:
    section = config("right", "length", weights=[1.0, 1.0], combine="product")
    (func,) = reward_funcs(section, combined=True)
    assert func(**CALL) == [0.1, 0.0, 0.2, None]


def test_running_statistics_go_on_from_step_to_step(config: Make) -> None:
    transforms = {"length": {"kind": "standardize", "by": "running"}}
    (func,) = reward_funcs(config("length", transforms=transforms))
    first = func(**CALL)
    assert func(**CALL) != first


def test_more_missing_verdicts_than_allowed_stop_the_training(config: Make) -> None:
    """As in rmrl's own training: a dead judge must not train a policy."""
    (func,) = reward_funcs(config("right", max_missing=0.2))
    with pytest.raises(MissingVerdictsError, match=r"1 of 4 responses \(25.0%\)"):
        func(**CALL)
    (func,) = reward_funcs({**config("right", max_missing=0.2), "over_budget": "warn"})
    assert func(**CALL) == [1.0, 0.0, 1.0, None]


def test_lists_of_different_lengths_and_completions_without_text_are_refused(config: Make) -> None:
    (func,) = reward_funcs(config("right"))
    with pytest.raises(DataError, match="'completions' has 3 values for 4 prompts"):
        func(**{**CALL, "completions": COMPLETIONS[:3]})
    with pytest.raises(DataError, match="need a string, or a list of messages"):
        func(**{**CALL, "completions": [5, *COMPLETIONS[1:]]})
