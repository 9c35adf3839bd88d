"""How a rule may be called: distinguished by its parameters, each with its call for one response.

    compute_score(data_source, solution_str, ground_truth, extra_info=None) -> number, None or dict
    reward(prompts, completions, completion_ids, **columns) -> list of numbers and None        as
      TRL calls it
    a class with __call__(completions, **columns) -> list of numbers                           as
      ms-swift calls it

    compute_score(data_sources, solution_strs, ground_truths, extra_infos)                     as
      verl's batch manager calls it
    reward_func(queries, prompts, labels)                                                      as
      OpenRLHF calls it
    reward(completion, answer, **fields) -> number                                             as a
      Rubric of verifiers calls it. A Rubric itself is made a function of lists (`rubrics`)
    compute_score(reward_inputs), reward(prompt, completions, ...), custom_rm(args, sample),
      reward(task_info, action)                                                                as
      `peer_forms` has them

Each may be async. The list forms get the responses to one prompt together (`list_signatures`). A
rule may have its own arguments, set in the configuration, and so may its maker: a class, or a
function that returns a rule. Rule workers import this module: it needs the standard library,
`rmrl.errors` and its neighbours only.
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
from rmrl.rewards.dropins.list_signatures import InLists, MisfitError, awaited, shape_of
from rmrl.rewards.dropins.peer_forms import peer_form
from rmrl.rewards.dropins.verifiers_rubric import (
    is_rubric,
    of_rubric,
    of_single,
    takes_one_completion,
)

__all__ = [
    "InLists",
    "MisfitError",
    "OneByOne",
    "RuleForm",
    "bound",
    "instantiated",
    "keyword_names",
    "parameters_of",
    "rule_form",
    "takes",
]

RULE_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""Keyword arguments of `compute_score`."""

RULE_EXTRAS = ("finish_reason", "response_tokens", "num_turns")
"""Further keyword arguments of `compute_score` where its signature names them."""

LIST_ARGUMENTS = (
    *("prompts", "completions", "completion_ids", "solution_strs", "queries"),
    *("infer_requests", "response_token_ids"),
)
"""A rule that names one of these takes lists (`list_signatures`)."""

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
        """Return the function's result, awaited where it is async. Its errors are not caught."""
        arguments: dict[str, Any] = {name: offered[name] for name in self.names if name in offered}
        return awaited(self.function(**arguments))

    @classmethod
    def of(cls, function: Callable[..., Any], where: str) -> OneByOne:
        """The rule that is called with one response. Raises RewardFunctionError, naming `where`,
        for a parameter that no rule gets."""
        parameters = parameters_of(function, where)
        named = keyword_names(parameters)
        any_name = takes(parameters, inspect.Parameter.VAR_KEYWORD)
        offered = {*RULE_ARGUMENTS, *RULE_EXTRAS}.intersection(named)
        unknown: list[str] = []
        for parameter in parameters:
            if parameter.name in offered or parameter.default is not parameter.empty:
                continue
            if parameter.kind in (*_BY_NAME, *_BY_POSITION):
                unknown.append(parameter.name)
        problem = ""
        if unknown:
            problem = (
                f"needs {', '.join(unknown)}, which no rule is given; give its own arguments with"
                f" reward.specs.<name>.arguments.{unknown[0]}=..."
            )
        elif "solution_str" not in named and not any_name:
            problem = "does not take solution_str, the response's text"
        if problem:
            raise RewardFunctionError(
                f"{where}: {_seen(function)} {problem}. A rule is {RULE_SIGNATURE}; it is called by"
                " keyword, and may leave out what it does not need and add"
                f" {', '.join(RULE_EXTRAS)}. With lists it is {LIST_SIGNATURE}."
            )
        names = [
            name
            for name in (*RULE_ARGUMENTS, *RULE_EXTRAS)
            if name in named or (any_name and name in RULE_ARGUMENTS)
        ]
        return cls(function, tuple(names))


RuleForm = OneByOne | InLists


def rule_form(function: Callable[..., Any], where: str) -> RuleForm:
    """Return the form in which a rule is called. Raises RewardFunctionError, naming `where`, when
    none fits."""
    parameters = parameters_of(function, where)
    named = keyword_names(parameters)
    form = peer_form(named)
    if form is not None:
        function = form.rule(function, where)
    elif takes_one_completion(named):
        function = of_single(function)
    parameters = parameters_of(function, where)
    named = keyword_names(parameters)
    lists = [name for name in LIST_ARGUMENTS if name in named]
    if lists and "solution_str" in named:
        raise RewardFunctionError(
            f"{where}: {_seen(function)} names both solution_str and {', '.join(lists)}: it is"
            f" either {RULE_SIGNATURE}, or, with lists, {LIST_SIGNATURE}."
        )
    if not lists:
        return OneByOne.of(function, where)
    by_place: list[str] = []
    for parameter in parameters:
        positional_only = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        if positional_only and parameter.default is parameter.empty:
            by_place.append(parameter.name)
    if by_place:
        raise RewardFunctionError(
            f"{where}: {_seen(function)} takes {', '.join(by_place)} by position only; it is called"
            " by keyword."
        )
    any_column = takes(parameters, inspect.Parameter.VAR_KEYWORD)
    return InLists(
        function,
        named,
        required=keyword_names(p for p in parameters if p.default is p.empty),
        any_column=any_column,
        as_text=not isinstance(function, _FUNCTIONS),
        shape=shape_of(named) or "trl",
    )


def parameters_of(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    """Return a signature's parameters. RewardFunctionError, naming `where`, if unreadable."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RewardFunctionError(
            f"{where}: its parameters cannot be read ({error}); wrap it in a Python function."
        ) from error


def keyword_names(parameters: Iterable[inspect.Parameter]) -> tuple[str, ...]:
    """Which parameters can be passed by keyword."""
    return tuple(p.name for p in parameters if p.kind in _BY_NAME)


def takes(parameters: Iterable[inspect.Parameter], kind: Any) -> bool:
    """Whether one has that kind, such as **kwargs."""
    return any(p.kind is kind for p in parameters)


def bound(
    function: Callable[..., Any], arguments: Mapping[str, Any], where: str
) -> Callable[..., Any]:
    """Bind `arguments` to `function`. Where the function takes nothing else, it is a maker: it is
    called, and the rule that it returns is the result.

    Raises RewardFunctionError for an argument that it does not take, and for a maker that raises or
    returns no function.
    """
    if not arguments:
        return function
    parameters = parameters_of(function, where)
    named = keyword_names(parameters)
    strange = [name for name in arguments if name not in named]
    if strange and not takes(parameters, inspect.Parameter.VAR_KEYWORD):
        raise RewardFunctionError(
            f"{where}: {_seen(function)} takes no argument"
            f" '{strange[0]}'{did_you_mean(strange[0], named)}"
        )
    if (
        "solution_str" in named
        or not set(LIST_ARGUMENTS).isdisjoint(named)
        or takes_one_completion(named)
        or peer_form(named) is not None
        or takes(parameters, inspect.Parameter.VAR_KEYWORD)
    ):
        return _partial(function, **arguments)
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
    if isinstance(rule, _FUNCTIONS):
        return rule
    # An object that a function made is called as TRL calls it; a class that is named is ms-swift's.
    return _partial(rule)


def instantiated(
    cls: type, where: str, arguments: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Instantiate a class that is named as a rule; entries of an argument `args` become its
    attributes, as ms-swift passes its settings. Raises RewardFunctionError when the class cannot be
    instantiated with its arguments, or the instance cannot be called."""
    arguments = dict(arguments or {})
    if isinstance(arguments.get("args"), Mapping):
        arguments["args"] = types.SimpleNamespace(**arguments["args"])
    try:
        instance = cls(**arguments)
    except Exception as error:
        listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        how = f"it is made with {listed}" if arguments else "it is made without arguments"
        raise RewardFunctionError(
            f"{where} is a class and {cls.__name__}({listed}) raised {type(error).__name__}:"
            f" {error}; {how}."
        ) from error
    if is_rubric(instance):
        return of_rubric(instance)
    if not callable(instance):
        raise RewardFunctionError(
            f"{where} is a class without __call__(completions, **columns); name a function, or give"
            " it one."
        )
    return instance


def _partial(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """Bind arguments and keep the function's name, for messages."""
    made: Any = functools.partial(function, **arguments)
    made.__name__ = getattr(function, "__name__", type(function).__name__)
    return made


def _seen(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"
