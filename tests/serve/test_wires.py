"""Wires of other trainers: their requests and answers, by hand, with the rule `length` (characters
/ 10; "silent" has no verdict)."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.adapters.trl import reward_funcs
from rmrl.errors import ConfigError
from tests.serve.conftest import Served

WIRES = "serve.wires=[openrlhf,slime,nemo_gym,trl]"


async def posted(served: Served, path: str, body: Any, *overrides: str) -> Any:
    """The JSON of an answer that is no error."""
    async with served.client(WIRES, *overrides) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(served: Served, path: str, body: Any) -> tuple[int, str]:
    """Status code and field of an error."""
    async with served.client(WIRES) as client:
        answer = await client.post(path, json=body)
    return answer.status_code, answer.json()["error"]["field"]


# --- columns

COLUMNS = "data.columns={prompt: q, response: out.text, reference: gold.v1, data_source: kind}"


async def test_rows_of_requests_have_the_columns_that_the_configuration_names(
    served: Served,
) -> None:
    row: dict[str, Any] = {"q": "2?", "out": {"text": "four"}, "gold.v1": "4", "kind": "sums"}
    async with served.client("serve.wires=[native,openrlhf]", COLUMNS) as client:
        answer = await client.post("/v1/score", json={"rows": [row]})
        assert answer.json()["rows"][0]["reward"] == 0.4
        del row["gold.v1"]
        answer = await client.post("/v1/score", json={"rows": [{**row, "gold": "4"}]})
        sentence = "data.columns.reference=gold.v1: no row has such a column; did you mean"
        assert answer.status_code == 422
        assert sentence in answer.json()["error"]["message"]
        # Other wires have names of their own.
        body = {"query": ["Who?four"], "prompts": ["Who?"], "labels": [""]}
        answer = await client.post("/get_reward", json=body)
        assert answer.json()["rewards"] == [0.4]


# --- OpenRLHF


async def test_openrlhf_cuts_the_response_out_of_the_query(served: Served) -> None:
    body = {
        "query": ["How much?four</s>", "<s>Who?silent<|im_end|>\n"],
        "prompts": ["How much?", "Who?"],
        "labels": ["4", ""],
    }
    assert await posted(served, "/get_reward", body) == {
        "rewards": [0.4, None],
        "scores": [0.4, None],
        "extra_logs": {"length": [0.4, None], "missing": [0.0, 1.0]},
    }


async def test_a_client_that_cannot_read_null_gets_the_number_that_was_set(served: Served) -> None:
    body = {"query": ["Who?silent"], "prompts": ["Who?"], "labels": [""]}
    answer = await posted(served, "/get_reward", body, "serve.missing_reward=-1")
    assert answer["rewards"] == [-1.0]
    assert answer["extra_logs"] == {"length": [-1.0], "missing": [1.0]}
    sample = {"prompt": "Who?", "response": "silent", "label": None}
    assert await posted(served, "/slime", sample, "serve.missing_reward=-1") == -1.0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"query": ["ab"], "prompts": ["x"]}, "prompts[0]"),
        ({"query": ["ab", "cd"], "prompts": ["a"]}, "prompts"),
        ({"query": ["ab"], "prompts": ["a"], "labels": ["1", "2"]}, "labels"),
        ({"query": "ab", "prompts": ["a"]}, "query"),
        ({"query": ["ab"]}, "prompts"),
        ({"query": ["ab"], "prompts": ["a"], "labels": [True]}, "labels[0]"),
    ],
)
async def test_openrlhf_names_the_bad_field(
    served: Served, body: dict[str, Any], field: str
) -> None:
    assert await refused(served, "/get_reward", body) == (422, field)


async def test_openrlhf_may_send_an_empty_prompt(served: Served) -> None:
    body = {"query": ["four</s>", "How?four"], "prompts": ["", "How?"], "labels": ["4", "4"]}
    assert (await posted(served, "/get_reward", body))["rewards"] == [0.4, 0.4]
    body = {"query": ["four"], "prompts": [""], "labels": [""]}
    assert (await posted(served, "/get_reward", body))["rewards"] == [0.4]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_the_number_for_missing_rewards_is_one_of_json(served: Served, value: str) -> None:
    with pytest.raises(ConfigError, match=r"serve\.missing_reward=\w+: JSON has no such number"):
        served.checked(f"serve.missing_reward={value}")


# --- columns of the trainers

BONUS = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return extra_info["bonus"] + extra_info["kept"] + float(ground_truth)
"""


async def test_further_columns_reach_rules_as_in_the_adapters(served: Served) -> None:
    (served.bench.folder / "functions" / "bonus.py").write_text(BONUS)
    keys = "reward.models=[bonus]"
    row = {"bonus": 5, "extra_info": {"kept": 30}, "answer": "100"}
    lists = {name: [value] for name, value in row.items()}
    batch = {"prompts": ["q"], "completions": ["r"], **lists}
    assert (await posted(served, "/trl", batch, keys))["rewards"] == [135.0]
    sample = {"prompt": "q", "response": "r", **row}
    assert await posted(served, "/slime", sample, keys) == 135.0
    body = episode("r", **row)
    del body["expected_answer"]
    assert (await posted(served, "/verify", body, keys))["reward"] == 135.0
    config = {
        "reward": {
            "models": ["bonus"],
            "functions_dir": f"{served.bench.folder}/functions",
            "rule_workers": 1,
        },
        "trainer": {"device": "cpu"},
    }
    assert reward_funcs(config)[0](batch["prompts"], batch["completions"], **lists) == [135.0]


# --- slime and miles

EQUAL = """
def compute_score(data_source, solution_str, ground_truth):
    return float(solution_str == str(ground_truth))
"""


async def test_a_number_as_label_reaches_a_rule_as_it_was_sent(served: Served) -> None:
    (served.bench.folder / "functions" / "equal.py").write_text(EQUAL)
    keys = "reward.models=[equal]"
    for label, response in ((4, "4"), (4.5, "4.5"), ("04", "04")):
        sample = {"prompt": "q", "response": response, "label": label}
        assert await posted(served, "/slime", sample, keys) == 1.0
        body = {"query": ["q" + response], "prompts": ["q"], "labels": [label]}
        assert (await posted(served, "/get_reward", body, keys))["rewards"] == [1.0]


async def test_a_label_may_be_a_mapping_as_search_r1_has_it(served: Served) -> None:
    rule = "def compute_score(solution_str, ground_truth):\n    return solution_str in ground_truth['t']\n"
    (served.bench.folder / "functions" / "listed.py").write_text(rule)
    sample = {"prompt": "q", "response": "four", "label": {"t": ["4", "four"]}}
    assert await posted(served, "/slime", sample, "reward.models=[listed]") == 1.0


async def test_slime_gets_a_number_or_the_components(served: Served) -> None:
    sample = {"prompt": [{"role": "user", "content": "q"}], "response": "four", "label": "4"}
    silent = {"prompt": "q", "response": "silent", "label": None}
    assert await posted(served, "/slime", sample) == 0.4
    assert await posted(served, "/slime", silent) is None
    assert await posted(served, "/slime", [sample, silent]) == [0.4, None]
    whole = await posted(served, "/slime/components", [sample, silent])
    assert [each["score"] for each in whole] == [0.4, None]
    assert [each["status_length"] for each in whole] == ["ok", "unparseable"]
    assert (await posted(served, "/slime/components", sample))["score_length"] == 0.4


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "", "response": "a"}, "prompt"),
        ([{"prompt": "q", "response": "a"}, {"prompt": "", "response": "a"}], "[1].prompt"),
        ({"prompt": "q", "response": "a", "label": True}, "label"),
        ([{"prompt": "q", "response": "a"}, {"prompt": "q"}], "[1].response"),
        ([{"prompt": "q", "response": "a"}, 3], "[1]"),
        ([], "body"),
        ("text", "body"),
    ],
)
async def test_slime_names_the_bad_field(served: Served, body: Any, field: str) -> None:
    assert await refused(served, "/slime", body) == (422, field)


# --- TRL


async def test_trl_sends_columns_and_gets_lists(served: Served) -> None:
    conversation = [{"role": "user", "content": "q"}]
    body = {
        "prompts": ["p", conversation],
        "completions": ["four", [{"role": "assistant", "content": "silent"}]],
        "completion_ids": [[1], [2]],
        "ground_truth": ["4", "5"],
        "data_source": ["a", "b"],
    }
    assert await posted(served, "/trl", body) == {
        "rewards": [0.4, None],
        "scores": {"length": [0.4, None]},
        "statuses": {"length": ["ok", "unparseable"]},
    }


async def test_of_several_turns_the_last_one_is_the_response(served: Served) -> None:
    turns = [
        {"role": "assistant", "content": "let me look"},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "four"},
    ]
    body = {"prompts": ["p"], "completions": [turns]}
    assert (await posted(served, "/trl", body))["rewards"] == [0.4]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"completions": ["a", "b"]}, "completions"),
        ({"ground_truth": "4"}, "ground_truth"),
        ({"ground_truth": [True]}, "ground_truth[0]"),
        ({"data_source": [3]}, "completions[0]"),
    ],
)
async def test_trl_names_the_bad_field(served: Served, more: dict[str, Any], field: str) -> None:
    body = {"prompts": ["p"], "completions": ["a"], **more}
    assert await refused(served, "/trl", body) == (422, field)


# --- NeMo Gym


def episode(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "id": "m", "content": content}
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "q"}], "top_p": 1.0},
        "response": {"id": "x", "model": "m", "output": [reasoning, message]},
        "expected_answer": "4",
        **more,
    }


async def test_nemo_gym_gets_its_fields_back_with_the_reward(served: Served) -> None:
    body = episode("four", verifier_metadata={"a": [1]})
    assert await posted(served, "/verify", body) == {
        **body,
        "reward": 0.4,
        "reward_components": {"length": 0.4},
        "missing_components": {},
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }


async def test_an_episode_without_a_verdict_is_masked(served: Served) -> None:
    answer = await posted(served, "/verify", episode("silent"), "serve.missing_reward=-1")
    assert (answer["reward"], answer["mask_sample"]) == (0.0, True)
    assert answer["failure_kind"] == "judge_unparseable"
    assert answer["failure_reason"].startswith("length unparseable")
    assert answer["_ng_failure_class"] == "judge_failed"
    assert answer["reward_components"] == {}
    assert answer["missing_components"]["length"].startswith("unparseable")


async def test_calls_of_tools_belong_to_the_prompt(served: Served) -> None:
    call = {"type": "function_call", "name": "look", "arguments": '{"x": 1}', "call_id": "c"}
    result = {"type": "function_call_output", "call_id": "c", "output": "4"}
    body = episode("four")
    body["response"]["output"] = [call, result, *body["response"]["output"]]
    body["responses_create_params"]["input"] = "q"
    assert (await posted(served, "/verify", body))["reward"] == 0.4


async def test_an_agent_may_begin_an_episode(served: Served) -> None:
    assert await posted(served, "/seed_session", {"task": 1}) == {}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"response": {"output": "a"}}, "response.output"),
        ({"responses_create_params": {}}, "responses_create_params.input"),
        ({"responses_create_params": {"input": ""}}, "responses_create_params.input"),
        ({"ground_truth": True}, "body"),
    ],
)
async def test_nemo_gym_names_the_bad_field(
    served: Served, more: dict[str, Any], field: str
) -> None:
    assert await refused(served, "/verify", episode("a", **more)) == (422, field)


async def test_a_reference_in_the_verifiers_metadata_is_read(served: Served) -> None:
    (served.bench.folder / "functions" / "equal.py").write_text(EQUAL)
    body = episode("4", verifier_metadata={"expected_answer": "4", "level": 1})
    del body["expected_answer"]
    answer = await posted(served, "/verify", body, "reward.models=[equal]")
    assert answer["reward"] == 1.0
    assert answer["verifier_metadata"] == body["verifier_metadata"]
    first = {**body, "expected_answer": "5"}
    assert (await posted(served, "/verify", first, "reward.models=[equal]"))["reward"] == 0.0
