"""verifiers' reward functions and Rubrics (0.1 to 0.3) as rules that take lists, in TRL's form.

A reward function is called with what it names of prompt, completion, answer, info, state, task,
parser and the row's columns (`Rubric._call_individual_reward_func`). A Rubric scores a group's
states (`Rubric.score_group`) and writes `reward` and `metrics` into each. It turns a function that
raises into 0 and a line in its log, which is an error here.

Rule workers import this module: beside the standard library it needs rmrl.logs only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmrl.logs import logged_errors_raised

LOGGER = "verifiers"
"""Parent of all Rubrics' loggers."""
_NOT_INFO = ("answer", "ground_truth", "solution", "info", "prompts", "completions")


def takes_one_completion(names: Sequence[str]) -> bool:
    """Return whether a function with these parameters is a reward function of verifiers."""
    others = ("solution_str", "completions", "prompts", "queries")
    return "completion" in names and not any(name in names for name in others)


def is_rubric(target: Any) -> bool:
    """Return whether the object scores states, singly and in groups, as a Rubric of verifiers."""
    if inspect.isclass(target):
        return False
    methods = [getattr(target, name, None) for name in ("score_rollout", "score_group")]
    return all(map(inspect.iscoroutinefunction, methods))


def of_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule of lists that calls a reward function of verifiers once per response."""
    parameters = inspect.signature(function).parameters
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    async def rule(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[Any]:
        verdicts: list[Any] = []
        for state in states_of(prompts, completions, columns):
            fields = {**state["input"], **state, "state": state, "parser": None}
            arguments: dict[str, Any] = {
                name: value for name, value in fields.items() if any_name or name in parameters
            }
            verdict = function(**arguments)
            verdicts.append(await verdict if inspect.isawaitable(verdict) else verdict)
        return verdicts

    rule.__name__ = getattr(function, "__name__", type(function).__name__)
    return rule


def of_rubric(rubric: Any) -> Callable[..., Any]:
    """Return a rule of lists that has a Rubric score the responses to a prompt as a group. The
    rubric's metrics become score columns."""

    async def rule(
        prompts: Sequence[Any], completions: Sequence[Any], log_extra: Any = None, **columns: Any
    ) -> list[float]:
        states = states_of(prompts, completions, columns)
        with logged_errors_raised(LOGGER):
            await rubric.score_group(states)
        metrics: dict[str, None] = {}
        for state in states:
            metrics |= dict.fromkeys(state.get("metrics") or ())
        for name in metrics:
            values = [(state.get("metrics") or {}).get(name) for state in states]
            if log_extra is not None:
                log_extra(name, values)
        return [state["reward"] for state in states]

    rule.__name__ = type(rubric).__name__
    return rule


def states_of(
    prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Return one state per response, as an environment of verifiers leaves it after its only
    turn."""
    states: list[dict[str, Any]] = []
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        own = {name: values[i] for name, values in columns.items()}
        info = own.get("info")
        if not isinstance(info, Mapping):
            info = {name: value for name, value in own.items() if name not in _NOT_INFO}
        answer = own.get("answer", "")
        fields = {**own, "prompt": prompt, "answer": "" if answer is None else answer}
        state: dict[str, Any] = {
            "input": {**fields, "info": dict(info), "example_id": i},
            "prompt": prompt,
            "completion": completion,
            "answer": fields["answer"],
            "info": dict(info),
            "task": own.get("task", own.get("data_source", "")),
            "trajectory": [],
            "is_completed": True,
        }
        states.append(state)
    return states
