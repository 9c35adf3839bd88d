"""Write the fixtures beside this file with the peers' own classes.

    PYTHONPATH=<verifiers 0.4.0 and openenv 0.10.0, unpacked> python write_fixtures.py

Packages that these import and that are not installed are replaced by empty ones: the classes of a
trace need none of them.
"""

from __future__ import annotations

import json
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

HERE = Path(__file__).parent
STOOD_IN = (
    "prime_sandboxes", "prime_runs", "prime_tunnel", "connectrpc", "pyqwest", "protobuf", "gepa",
    "modal", "e2b", "harbor", "docker", "fastmcp", "gradio", "websockets", "daytona",
)  # fmt: skip


class _Empty(ModuleType):
    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper():
            return type(name, (Exception,), {"__class_getitem__": classmethod(lambda cls, _: cls)})
        return MagicMock()


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in STOOD_IN else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())


def verifiers_fixtures() -> None:
    """Episodes as `write_episode` appends them, and traces as `to_record` returns them."""
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.episode import EnvInfo, Episode
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import State
    from verifiers.v1.task import WireTaskData
    from verifiers.v1.trace import AgentInfo, ModelCall, Trace, TraceTask
    from verifiers.v1.types import (
        AssistantMessage,
        SystemMessage,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from verifiers.v1.utils.trace_store import write_episode

    kind = Trace[WireTaskData, State, WireAgentConfig]

    def started(name: str = "agent", trainable: bool = True) -> Any:
        data = WireTaskData(idx=3, prompt="What is 17 * 23?", answer="391")
        config = WireAgentConfig.model_validate({})
        trace = kind(
            id=f"trace-{name}",
            task=TraceTask(type="Sum", data=data, key="sum-3"),
            agent=AgentInfo(config=config, name=name, trainable=trainable),
        )
        trace.timing.start = 0.0
        return trace

    def add(trace: Any, message: Any, *, parent: int | None = -1, ids: int = 0) -> None:
        number = len(trace.nodes)
        trace.nodes.append(
            MessageNode(
                parent=(number - 1 if number else None) if parent == -1 else parent,
                message=message,
                sampled=bool(ids),
                timestamp=0.0,
                token_ids=list(range(10 + ids)),
                mask=[False] * 10 + [True] * ids,
                logprobs=[-0.5] * ids,
            )
        )

    def solved(name: str = "agent", trainable: bool = True) -> Any:
        trace = started(name, trainable)
        add(trace, SystemMessage(content="Use the tool."))
        add(trace, UserMessage(content="What is 17 * 23?"))
        sum_call = ToolCall(id="c1", name="calculate", arguments='{"term": "17 * 23"}')
        add(trace, AssistantMessage(content="I ask the tool.", tool_calls=[sum_call]), ids=7)
        add(trace, ToolMessage(tool_call_id="c1", content="391"))
        last = AssistantMessage(content="It is 391.", reasoning_content="The tool says so.")
        add(trace, last, ids=5)
        trace.calls = [
            ModelCall(node=2, finish_reason="tool_calls"), ModelCall(node=4, finish_reason="stop"),
        ]  # fmt: skip
        trace.ok = True
        trace.stop("agent_completed")
        trace.record_reward("correct", 1.0)
        trace.record_reward("brief", 0.5, weight=0.2)
        trace.record_metric("tool_calls", 1)
        return trace

    failed = started()
    add(failed, SystemMessage(content="Use the tool."))
    add(failed, UserMessage(content="What is 17 * 23?"))
    add(failed, AssistantMessage(content="I ask the tool."), ids=7)
    failed.record_reward("correct", 0.0)
    failed.rewards["brief"] = None
    failed.record_error(ConnectionError("the sandbox is gone"))
    late = started()
    late.record_timeout("setup")
    limit = solved()
    limit.stop("max_turns", override=True)
    compacted = solved()
    add(compacted, SystemMessage(content="Use the tool."), parent=None)
    add(compacted, UserMessage(content="So far: 391. Go on."))
    add(compacted, AssistantMessage(content="391, then."), ids=3)
    file = HERE / "traces.jsonl"
    file.unlink(missing_ok=True)
    for traces in [[solved()], [failed], [late], [limit], [compacted], [solved("solver"), solved("judge", False)]]:  # fmt: skip
        episode = Episode(
            id=f"episode-{traces[0].id}",
            env=EnvInfo(id="sums"),
            task=traces[0].task,
            traces=traces,
            ok=all(trace.ok for trace in traces),
        )
        write_episode(HERE, episode)
    file.rename(HERE / "verifiers_episodes.jsonl")
    _write("verifiers_records.jsonl", [trace.to_record() for trace in (solved(), failed)])
    # `trace_to_nemo_response` writes NeMo Gym's response. What stands beside it is that of
    # nemo_gym/rollout_collection.py and BaseVerifyResponse (NVIDIA-NeMo/Gym 00536e7, 011c338).
    from verifiers.v1.tasksets.nemo_gym.response import trace_to_nemo_response

    asked = [
        {"role": "system", "content": "Use the tool.", "type": "message"},
        {"role": "user", "content": "What is 17 * 23?", "type": "message"},
    ]
    params = {"input": asked, "tools": []}
    row = {
        "responses_create_params": params,
        "response": trace_to_nemo_response(solved(), params, ["calculate"]),
        "reward": 1.0,
        "mask_sample": False,
        "failure_kind": None,
        "_ng_task_index": 3,
        "_ng_rollout_index": 0,
        "agent_ref": {"type": "responses_api_agents", "name": "simple_agent"},
    }
    masked = {"mask_sample": True, "failure_kind": "session_lost", "reward": 0.0}
    lost = {"_ng_failure_class": "timeout", "failure_reason": "no answer in 60 s", "reward": 0.0}
    _write("nemo_gym.jsonl", [row, {**row, **masked}, {**row, "response": None, **lost}])


def openenv_fixtures() -> None:
    """Traces as `TrainingTrace.model_dump` returns them."""
    from openenv.core.harness.training import TrainingTrace

    def turn(number: int, messages: list[Any], message: Any, reason: str = "stop") -> Any:
        return {
            "metadata": {"node_id": f"n{number}"},
            "prompt_token_ids": [1, 2, 3],
            "completion_token_ids": [4, 5],
            "per_token_logps": [-0.5, -0.25],
            "loss_mask": [0, 0, 0, 1, 1],
            "request": {"messages": messages, "tools": None},
            "response": {"choices": [{"message": message, "finish_reason": reason}]},
        }

    asked = [{"role": "user", "content": "What is 17 * 23?"}]
    function = {"name": "calculate", "arguments": '{"term": "17 * 23"}'}
    sum_call = {"id": "c1", "type": "function", "function": function}
    called = {"role": "assistant", "content": "I ask.", "tool_calls": [sum_call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "391"}
    final = {"role": "assistant", "content": "It is 391.", "tool_calls": None}
    whole = [turn(0, asked, called, "tool_calls"), turn(1, [*asked, called, result], final)]
    other = [{"role": "user", "content": "So far: 391. Go on."}]
    rewritten = [*whole, turn(2, other, final, "length")]
    rows = [TrainingTrace.from_entries(entries).model_dump() for entries in (whole, rewritten)]
    rows.append({**rows[0], "task_id": "sum-3", "reward": 1.0, "rewards": {"correct": 1.0}})
    _write("openenv.jsonl", rows)


def _write(name: str, rows: list[Any]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    globals()[f"{sys.argv[1]}_fixtures"]()
