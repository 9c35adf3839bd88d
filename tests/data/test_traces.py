"""Traces of verifiers, OpenEnv and NeMo Gym, as their own classes wrote them
(`tests/data/traces/write_fixtures.py`), and conversations with tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.responses import AnsweredRow, answered_rows
from rmrl.data.rows import read_rows
from rmrl.data.traces.table import TRACE_FORMATS, as_row
from rmrl.errors import DataError
from tests.inputs import write_lines

TRACES = Path(__file__).parent / "traces"
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "calculate", "arguments": '{"term": "17 * 23"}'},
}
FIXTURES = {
    "verifiers": ["verifiers_episodes.jsonl", "verifiers_records.jsonl"],
    "openenv": ["openenv.jsonl"],
    "nemo_gym": ["nemo_gym.jsonl"],
}


def fields(name: str, row: int = 0) -> dict[str, Any]:
    return list(read_rows(TRACES / name))[row].fields


def rows(path: Path) -> list[AnsweredRow]:
    return list(answered_rows(ScoreDataConfig(files=str(path))))


@pytest.mark.parametrize("name", [name for names in FIXTURES.values() for name in names])
def test_every_row_can_be_scored(name: str):
    answered = rows(TRACES / name)
    talks = [row.prompts[0].conversation for row in answered]
    assert talks[0] is not None
    assert talks[0].status == "ok"
    roles = [turn["role"] for turn in talks[0].messages[talks[0].first :]]
    assert roles == ["assistant", "tool", "assistant"]
    assert answered[0].texts == ("It is 391.",)
    called: Any = talks[0].messages[talks[0].first]
    assert called["tool_calls"] == [CALL]
    result: Any = talks[0].messages[talks[0].first + 1]
    assert (result["name"], result["content"]) == ("calculate", "391")


def test_formats_are_told_apart():
    import json

    for form in TRACE_FORMATS:
        for name in FIXTURES.get(form.name, ()):
            for line in (TRACES / name).read_text(encoding="utf-8").splitlines():
                raw = json.loads(line)
                assert [other.name for other in TRACE_FORMATS if other.holds(raw)] == [form.name]


def test_verifiers_rewards_stand_beside_the_response():
    row = fields("verifiers_episodes.jsonl")
    # 1.0 * 1 + 0.5 * 0.2
    assert row["score_env.reward"] == pytest.approx(1.1)
    assert (row["score_env.correct"], row["score_env.brief"]) == (1.0, 0.5)
    assert (row["prompt_id"], row["ground_truth"], row["response_tokens"]) == ("sum-3", "391", 12)
    assert row["env.stop"] == "agent_completed"


def test_a_harness_error_is_a_status():
    failed = fields("verifiers_episodes.jsonl", 1)
    # The harness had recorded 0.0 for `correct` before the sandbox went away.
    assert failed["score_env.correct"] is None
    assert failed["status_env.correct"] == "provider_error"
    assert failed["env.detail"] == "ConnectionError: the sandbox is gone"
    late = fields("verifiers_episodes.jsonl", 2)
    assert (late["env.status"], late["response"]) == ("timeout", "")
    masked, lost = (fields("nemo_gym.jsonl", row) for row in (1, 2))
    assert (masked["env.status"], lost["env.status"]) == ("provider_error", "timeout")
    assert masked["score_env.reward"] is None
    assert lost["score_env.reward"] is None
    statuses = [row.prompts[0].conversation for row in rows(TRACES / "nemo_gym.jsonl")]
    assert [talk.status for talk in statuses if talk] == ["ok", "provider_error", "timeout"]


def test_a_limit_is_no_error():
    row = fields("verifiers_episodes.jsonl", 3)
    assert (row["env.status"], row["finish_reason"], row["env.stop"]) == (
        "ok",
        "length",
        "max_turns",
    )
    assert row["score_env.correct"] == 1.0


def test_the_last_branch_is_read():
    compacted = fields("verifiers_episodes.jsonl", 4)
    assert [turn["content"] for turn in compacted["response"]] == ["391, then."]
    # 12 in the branch that was given up, as training counts
    assert compacted["response_tokens"] == 15
    rewritten = fields("openenv.jsonl", 1)
    assert rewritten["prompt"] == [{"role": "user", "content": "So far: 391. Go on."}]
    assert (rewritten["response_tokens"], rewritten["finish_reason"]) == (2, "length")


def test_turns_that_a_later_branch_writes_again_belong_to_the_response():
    """The last branch holds the first turn as its context, unsampled."""

    def node(parent: int | None, role: str, content: str, sampled: int = 0) -> dict[str, Any]:
        return {
            "parent": parent,
            "message": {"role": role, "content": content},
            "sampled": bool(sampled),
            "mask": [False, *[True] * sampled],
        }

    nodes = [
        node(None, "user", "Q"),
        node(0, "assistant", "one", 2),
        node(None, "user", "Q"),
        node(2, "assistant", "one"),
        node(3, "user", "more"),
        node(4, "assistant", "two", 3),
    ]
    row = {"task": {"data": {"prompt": "Q"}}, "ok": True, "agent": {}, "nodes": nodes}
    read = as_row(row, "row 1")
    assert read["prompt"] == [{"role": "user", "content": "Q"}]
    assert [turn["content"] for turn in read["response"]] == ["one", "more", "two"]
    assert read["response_tokens"] == 5


def test_the_environments_rewards_go_with_the_conversation():
    answered = rows(TRACES / "verifiers_episodes.jsonl")
    talk = answered[0].prompts[0].conversation
    assert talk is not None
    assert talk.rewards == pytest.approx({"correct": 1.0, "brief": 0.5, "reward": 1.1})
    assert talk.stop == "agent_completed"


def test_agents_that_do_not_train_are_left_out():
    assert "responses" not in fields("verifiers_episodes.jsonl", 5)


def test_a_thought_belongs_to_its_turn():
    final = fields("nemo_gym.jsonl")["response"][-1]
    assert final["reasoning_content"] == "The tool says so."
    assert final["content"] == "It is 391."


def test_several_agents_are_several_responses(tmp_path: Path):
    import json

    lines = (TRACES / "verifiers_episodes.jsonl").read_text(encoding="utf-8").splitlines()
    solved, failed = json.loads(lines[0]), json.loads(lines[1])
    both = {**solved, "traces": [*solved["traces"], *failed["traces"]]}
    (row,) = rows(write_lines(tmp_path / "both.jsonl", [both]))
    assert row.texts == ("It is 391.", "I ask the tool.")
    talks = [prompt.conversation for prompt in row.prompts]
    assert [talk.status for talk in talks if talk] == ["ok", "provider_error"]
    other = json.loads(lines[4])
    mixed = {**solved, "traces": [*solved["traces"], *other["traces"]]}
    with pytest.raises(DataError, match="traces that begin with different messages"):
        rows(write_lines(tmp_path / "mixed.jsonl", [mixed]))


@pytest.mark.parametrize(
    "broken",
    [
        {"ok": True, "agent": {}, "task": {"data": {}}, "nodes": [{"parent": 0, "message": {}}]},
        {"ok": True, "agent": {}, "task": {"data": {}}, "nodes": [{"message": {"role": "user"}}, 7]},
        {"ok": True, "task": {"data": {}}, "traces": [{"nodes": []}]},
        {"schema_version": 1, "turns": [dict.fromkeys(("completion_token_ids", "loss_mask", "request", "response"))]},
        {"responses_create_params": {"input": 5}, "response": {"output": []}},
    ],
)  # fmt: skip
def test_a_malformed_trace_is_a_sentence(broken: dict[str, Any]):
    with pytest.raises(DataError, match=r"t.jsonl line 3 looks like a trace of \w+ and cannot"):
        as_row(broken, "t.jsonl line 3")


def test_other_rows_are_unchanged():
    row = {"prompt": "Q", "response": "A", "task": {"data": 1}, "turns": []}
    assert as_row(row, "here") is row


def test_a_chat_with_tools_begins_its_response_at_the_first_assistant_turn():
    talk = [
        {"role": "user", "content": "17 * 23?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "391"},
        {"role": "assistant", "content": "391."},
    ]
    row = as_row({"messages": talk}, "here")
    assert row["prompt"] == talk[:1]
    assert [turn["role"] for turn in row["response"]] == ["assistant", "tool", "assistant"]


TURNS = st.lists(
    st.tuples(st.sampled_from(["assistant", "tool", "user"]), st.text(max_size=20)), max_size=8
)


@given(TURNS, st.booleans())
def test_a_graph_and_a_list_are_the_same_conversation(turns: list[tuple[str, str]], forked: bool):
    """A trace's nodes in any order of branches give back the last branch's messages."""
    talk = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "c", "name": "f", "arguments": "{}"}]},
        *({"role": role, "content": text, **({"tool_call_id": "c"} if role == "tool" else {})} for role, text in turns),
    ]  # fmt: skip
    nodes: list[dict[str, Any]] = (
        [{"message": {"role": "user", "content": "old"}}] if forked else []
    )
    start = len(nodes)
    for number, message in enumerate(talk):
        parent = {"parent": start + number - 1} if number else {}
        nodes.append({"message": message, "sampled": message["role"] == "assistant", **parent})
    record = {"ok": True, "agent": {}, "task": {"data": {}}, "nodes": nodes}
    row = as_row(record, "here")
    whole = [*row["prompt"], *row["response"]]
    assert [(turn["role"], turn["content"]) for turn in whole] == [
        (message["role"], message["content"]) for message in talk
    ]
    assert all(turn["name"] == "f" for turn in whole if turn["role"] == "tool")
