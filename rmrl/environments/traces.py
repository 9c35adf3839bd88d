"""A played trace as a response with tokens, holes, turns and branches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from rmrl.data.traces.stored_trace import Trace
from rmrl.data.traces.verifiers import (
    LIMITS,
    VerifiersTraces,
    last_path,
    path_to,
    without_thinking,
)
from rmrl.environments.endpoint import Conversing
from rmrl.errors import InfrastructureError
from rmrl.turns import Branch, ResponseTurn
from rmrl.types import Conversation, Prompt, Response

Node = Mapping[str, Any]


def response_of(
    episode: Mapping[str, Any],
    prompt: Prompt,
    samples: Mapping[str, Conversing],
    *,
    on_limit: str,
) -> Response:
    """Convert an episode with one trace that trains. `samples`: its traces' turns, by their ids.
    `on_limit`: "missing" or "score", for one that a limit on turns or tokens ended.

    Raises InfrastructureError for several, whose rewards would be mixed, and where no engine drew a
    sampled token in the trace.
    """
    traces = [each for each in episode["traces"] if each["agent"].get("trainable", True)]
    if len(traces) > 1:
        names = ", ".join(each["agent"].get("name", "agent") for each in traces)
        raise InfrastructureError(
            f"the environment plays several agents that train ({names}); a sample has one: set"
            " trainable to false for the others"
        )
    trace = VerifiersTraces().traces(episode)[0]
    if not traces:
        return failed(prompt, trace.status, trace.detail, stop=trace.stop)
    nodes: Sequence[Node] = traces[0]["nodes"]
    sample = samples[traces[0]["id"]]
    parts = _Parts()
    for path in _paths(nodes):
        parts.add(path, sample)
    parts.number_turns(nodes, first=trace.first)
    return parts.response(prompt, _limited(trace, sample.limit, on_limit))


def _limited(trace: Trace, refused: str, on_limit: str) -> Trace:
    """Return the trace with the limit that ended it as its stop reason and status."""
    if refused:
        trace = dataclasses.replace(trace, cut=True, stop=refused)
    elif trace.cut and trace.stop not in LIMITS:
        trace = dataclasses.replace(trace, stop="length")
    if not trace.cut or on_limit == "score":
        return trace
    detail = (
        f"a limit ended the response ({trace.stop}): raise it, or set rollout.verifiers.on_limit="
        "score"
    )
    return dataclasses.replace(trace, status="overlong", detail=detail)


def failed(prompt: Prompt, status: Any, detail: str, *, stop: str = "") -> Response:
    """Return a response without tokens, for a sample without a trace."""
    conversation = Conversation(
        messages=prompt.messages,
        first=len(prompt.messages),
        status=status,
        detail=detail,
        stop=stop or status,
    )
    return Response(
        prompt=dataclasses.replace(prompt, conversation=conversation),
        text="",
        token_ids=np.zeros(0, np.int32),
        logprobs=np.zeros(0, np.float32),
        finish_reason="stop",
        policy_version=-1,
    )


def _paths(nodes: Sequence[Node]) -> list[list[tuple[int, Node]]]:
    """Return the way to each leaf whose turns train, with the nodes' numbers. A compaction that the
    harness gave up does not count."""
    parents = {node.get("parent") for node in nodes}
    accepted = {
        link["node"]
        for node in nodes
        for link in node.get("semantic_parents") or ()
        if link["type"] == "compaction"
    }
    paths: list[list[tuple[int, Node]]] = []
    for leaf in range(len(nodes)):
        links = nodes[leaf].get("semantic_parents") or ()
        given_up = any(link["type"] == "compaction_attempt" for link in links)
        if leaf in parents or (given_up and leaf not in accepted):
            continue
        paths.append([(number, nodes[number]) for number in path_to(nodes, leaf)])
    return paths


class _Parts:
    """A response's tokens, branch by branch."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._turns: list[ResponseTurn] = []
        self._turn_of: dict[int, int] = {}
        """A sampled message -> its turn."""
        self._branches: list[Branch] = []
        self._versions: set[int] = set()

    def add(self, path: Sequence[tuple[int, Node]], sample: Conversing) -> None:
        """Add the turns that no earlier path has. What follows the last sampled one is left out."""
        own = [i for i, (n, node) in enumerate(path) if _samples(node) and n not in self._turn_of]
        if not own:
            return
        context = list(chain.from_iterable(node["token_ids"] for _, node in path[: own[0]]))
        start = len(self._tokens)
        begun = False
        for number, node in path[own[0] : own[-1] + 1]:
            ids = list(node["token_ids"])
            mask = list(node["mask"])
            if not begun:
                # What opens the first turn belongs to its context.
                opening = mask.index(True)
                context += ids[:opening]
                ids = ids[opening:]
                mask = mask[opening:]
                begun = True
            if _samples(node):
                self._turn_of[number] = len(self._turns)
            self._add_turn(node, ids, mask, before=[*context, *self._tokens[start:]], sample=sample)
        length = len(self._tokens) - start
        self._branches.append(Branch(prompt_ids=tuple(context), length=length))

    def _add_turn(
        self,
        node: Node,
        ids: list[int],
        mask: list[bool],
        *,
        before: list[int],
        sample: Conversing,
    ) -> None:
        start = len(self._tokens)
        logprobs = [0.0] * len(ids)
        stop = ""
        end = len(ids)
        if True in mask:
            first = mask.index(True)
            end = first + sum(mask)
            drawn = sample.turn([*before, *ids[:first]], ids[first:end])
            if drawn is None:
                raise InfrastructureError(
                    "the environment's trace has tokens that no rollout engine drew, so they cannot"
                    " train: its template and its record disagree"
                )
            if drawn.logprobs is not None:
                logprobs[first:end] = drawn.logprobs.tolist()
            stop = drawn.finish_reason
            if node["message"].get("tool_calls"):
                stop = "tool_calls"
            self._versions.add(drawn.policy_version)
        self._tokens += ids
        self._mask += mask
        self._logprobs += logprobs
        role = node["message"]["role"]
        self._turns.append(ResponseTurn(start=start, end=start + end, role=role, stop=stop))

    def number_turns(self, nodes: Sequence[Node], *, first: int) -> None:
        """Number the turns as the rewards count them, who read the conversation from `first` on.

        Where a template is no prefix, the conversation holds an earlier turn as its own message,
        without the tokens, and perhaps without the thinking.
        """
        path = last_path(nodes)
        elsewhere = [n for n in self._turn_of if n not in path]
        read = [n for n in path[first:] if nodes[n]["message"]["role"] == "assistant"]
        for number, node in enumerate(read):
            words = without_thinking(nodes[node]["message"])
            copied = (n for n in elsewhere if without_thinking(nodes[n]["message"]) == words)
            drawn = node if node in self._turn_of else next(copied, None)
            if drawn in elsewhere:
                elsewhere.remove(drawn)
            if drawn is not None:
                turn = self._turn_of[drawn]
                self._turns[turn] = dataclasses.replace(self._turns[turn], number=number)

    def response(self, prompt: Prompt, trace: Trace) -> Response:
        """Return the response. Its prompt has the tokens that the first branch follows."""
        branches = tuple(self._branches)
        conversation = Conversation(
            messages=trace.messages,
            first=trace.first,
            status=trace.status,  # type: ignore[arg-type]
            detail=trace.detail,
            rewards=trace.rewards,
            stop=trace.stop,
        )
        text = ""
        for message in trace.messages[trace.first :]:
            if message["role"] == "assistant":
                text = message["content"]
        played = dataclasses.replace(
            prompt,
            messages=trace.messages[: trace.first] or prompt.messages,
            token_ids=branches[0].prompt_ids if branches else prompt.token_ids,
            conversation=conversation,
            # verifiers takes the thinking out of a turn's text
            opens_thinking=False,
        )
        return Response(
            prompt=played,
            text=text,
            token_ids=np.asarray(self._tokens, dtype=np.int32),
            logprobs=np.asarray(self._logprobs, dtype=np.float32),
            mask=np.asarray(self._mask, dtype=np.bool_),
            turns=tuple(self._turns),
            branches=branches if len(branches) > 1 else (),
            finish_reason="length" if trace.cut else "stop",
            policy_version=min(self._versions, default=-1),
        )


def _samples(node: Node) -> bool:
    return True in (node.get("mask") or ())
