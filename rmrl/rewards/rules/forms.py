"""The forms a rule may have, told apart by its parameters, and how each is called with one
response.

    compute_score(data_source, solution_str, ground_truth, extra_info=None) -> number, None or dict
    reward(prompts, completions, completion_ids, **columns) -> list of numbers and None        as
      TRL calls it
    a class with __call__(completions, **columns) -> list of numbers                           as
      ms-swift calls it

    compute_score(data_sources, solution_strs, ground_truths, extra_infos)                     as
      verl's batch manager calls it
    reward_func(queries, prompts, labels)                                                      as
      OpenRLHF calls it

Each may be async. The list forms get the responses to one prompt together (`rule_lists`). A rule
may have arguments of its own, given in the configuration, and so may what makes it: a class, or a
function that returns a rule. Rule workers import this module: it needs the standard library,
`rmrl.errors` and `rule_lists` only.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.registry import did_you_mean
from rmrl.rewards.rules.lists import InLists, MisfitError, awaited, shape_of

__all__ = [
    "InLists",
    "MisfitError",
    "OneByOne",
    "RuleForm",
    "bound",
    "made",
    "parameters_of",
    "rule_form",
    "takes",
]

RULE_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""What `compute_score` is called with, by keyword."""

RULE_EXTRAS = ("finish_reason", "response_tokens")
"""What `compute_score` gets as well where its signature names it."""

LIST_ARGUMENTS = ("prompts", "completions", "completion_ids", "solution_strs", "queries")
"""A rule that names one of these takes lists (`rule_lists`)."""

RULE_SIGNATURE = "compute_score(data_source, solution_str, ground_truth, extra_info=None)"
LIST_SIGNATURE = "reward(prompts, completions, completion_ids, **columns)"
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """`compute_score`: one response, one verdict."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    """The keyword arguments it is called with."""

    def call(self, offered: Mapping[str, Any]) -> Any:
        """What the function returns, awaited where it is async. Whatever it raises comes
        through."""
        return awaited(
            self.function(**{name: offered[name] for name in self.names if name in offered})
        )


RuleForm = OneByOne | InLists


def rule_form(function: Callable[..., Any], where: str) -> RuleForm:
    """How a rule is called. RewardFunctionError, naming `where`, when it cannot be called in any of
    the forms."""
    parameters = parameters_of(function, where)
    named = tuple(p.name for p in parameters if p.kind in _BY_NAME)
    lists = [name for name in LIST_ARGUMENTS if name in named]
    if lists and "solution_str" in named:
        raise RewardFunctionError(
            f"{where}: {_seen(function)} names both solution_str and {', '.join(lists)}: it is"
            f" either {RULE_SIGNATURE}, or, with lists, {LIST_SIGNATURE}."
        )
    if lists:
        return _in_lists(function, parameters, named, where)
    return _one_by_one(function, parameters, named, where)


def parameters_of(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    """RewardFunctionError, naming `where`, when they cannot be read."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RewardFunctionError(
            f"{where}: its parameters cannot be read ({error}); wrap it in a Python function."
        ) from error


def takes(parameters: Iterable[inspect.Parameter], kind: Any) -> bool:
    """Whether one of them is of that kind, such as **kwargs."""
    return any(p.kind is kind for p in parameters)


def bound(
    function: Callable[..., Any], arguments: Mapping[str, Any], where: str
) -> Callable[..., Any]:
    """`function` with arguments of its own; where these are all it takes, what it returns: a
    function that makes a rule.

    RewardFunctionError for an argument that it does not take, and for a maker that raises or
    returns no function.
    """
    if not arguments:
        return function
    parameters = parameters_of(function, where)
    named = [p.name for p in parameters if p.kind in _BY_NAME]
    strange = [name for name in arguments if name not in named]
    if strange and not takes(parameters, inspect.Parameter.VAR_KEYWORD):
        raise RewardFunctionError(
            f"{where}: {_seen(function)} takes no argument"
            f" '{strange[0]}'{did_you_mean(strange[0], named)}"
        )
    if (
        "solution_str" in named
        or any(name in named for name in LIST_ARGUMENTS)
        or takes(parameters, inspect.Parameter.VAR_KEYWORD)
    ):
        return functools.partial(function, **arguments)
    try:
        rule = function(**arguments)
    except Exception as error:
        raise RewardFunctionError(
            f"{where}: {_seen(function)} raised {type(error).__name__}: {error}"
        ) from error
    if not callable(rule):
        raise RewardFunctionError(
            f"{where} returned {type(rule).__name__} for its arguments; it is to return a rule."
        )
    return rule


def made(cls: type, where: str, arguments: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """An instance of a class that is named as a rule. RewardFunctionError when it cannot be made of
    its arguments, or called."""
    given = arguments or {}
    try:
        instance = cls(**given)
    except Exception as error:
        listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
        how = f"it is made with {listed}" if given else "it is made without arguments"
        raise RewardFunctionError(
            f"{where} is a class and {cls.__name__}({listed}) raised {type(error).__name__}:"
            f" {error}; {how}."
        ) from error
    if not callable(instance):
        raise RewardFunctionError(
            f"{where} is a class without __call__(completions, **columns); name a function, or give"
            " it one."
        )
    return instance


def _one_by_one(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    named: tuple[str, ...],
    where: str,
) -> OneByOne:
    required = [
        p.name for p in parameters if p.default is p.empty and p.kind in (*_BY_NAME, *_BY_POSITION)
    ]
    offered = (*RULE_ARGUMENTS, *RULE_EXTRAS)
    unknown = [n for n in dict.fromkeys(required) if n not in offered or n not in named]
    any_name = takes(parameters, inspect.Parameter.VAR_KEYWORD)
    if unknown or ("solution_str" not in named and not any_name):
        if unknown:
            what = f"needs {', '.join(unknown)}, which no rule is given"
        else:
            what = "does not take solution_str, the response's text"
        raise RewardFunctionError(
            f"{where}: {_seen(function)} {what}. A rule is {RULE_SIGNATURE}; it is called by"
            " keyword, and may leave out what it does not need and add"
            f" {' and '.join(RULE_EXTRAS)}. With lists it is {LIST_SIGNATURE}."
        )
    return OneByOne(
        function, tuple(n for n in offered if n in named or (any_name and n in RULE_ARGUMENTS))
    )


def _in_lists(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    named: tuple[str, ...],
    where: str,
) -> InLists:
    by_place = [
        p.name
        for p in parameters
        if p.kind is inspect.Parameter.POSITIONAL_ONLY and p.default is p.empty
    ]
    if by_place:
        raise RewardFunctionError(
            f"{where}: {_seen(function)} takes {', '.join(by_place)} by position only; it is called"
            " by keyword."
        )
    required = tuple(p.name for p in parameters if p.default is p.empty and p.kind in _BY_NAME)
    any_column = takes(parameters, inspect.Parameter.VAR_KEYWORD)
    shape = shape_of(named) or "trl"
    return InLists(
        function,
        named,
        required,
        any_column,
        as_text=not isinstance(function, _FUNCTIONS),
        shape=shape,
    )


def _seen(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"


@functools.cache
def loop() -> Any:
    """One event loop for all calls of a process: clients that a module keeps belong to the loop
    they were first used on."""
    # here, not above: most rules are not async, and every new worker would wait for it
    import asyncio

    return asyncio.Runner()
