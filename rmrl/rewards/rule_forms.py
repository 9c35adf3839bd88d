"""The forms a rule may have, told apart by its parameters, and how each is called with one response.

    compute_score(data_source, solution_str, ground_truth, extra_info=None) -> number, None or dict
    reward(prompts, completions, completion_ids, **columns) -> list of numbers and None        as TRL calls it
    a class with __call__(completions, **columns) -> list of numbers                           as ms-swift calls it

Each may be async. The list forms get lists of one. Rule workers import this module: it needs the standard library and `rmrl.errors` only.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.errors import RewardFunctionError

RULE_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""What `compute_score` is called with, by keyword."""

RULE_EXTRAS = ("finish_reason", "response_tokens")
"""What `compute_score` gets as well where its signature names it."""

LIST_ARGUMENTS = ("prompts", "completions", "completion_ids")
"""A rule that names one of these takes lists."""

COLUMNS = ("ground_truth", "answer", "solution", "data_source", "extra_info", "finish_reason", "response_tokens")
"""What a rule that takes lists may name besides the entries of extra_info, which win; the first three are the ground truth."""

LOGS = ("log_extra", "log_metric")
"""Functions that TRL hands over; what they are called with becomes extra columns of the score."""

RULE_SIGNATURE = "compute_score(data_source, solution_str, ground_truth, extra_info=None)"
LIST_SIGNATURE = "reward(prompts, completions, completion_ids, **columns)"
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


class MisfitError(Exception):
    """A rule and a row do not fit: the end of a sentence that begins with the rule's name."""


@dataclass(frozen=True, slots=True)
class OneByOne:
    """`compute_score`: one response, one verdict."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    """The keyword arguments it is called with."""

    def call(self, offered: Mapping[str, Any]) -> Any:
        """What the function returns, awaited where it is async. Whatever it raises comes through."""
        return _awaited(self.function(**{name: offered[name] for name in self.names if name in offered}))


@dataclass(frozen=True, slots=True)
class InLists:
    """TRL's and ms-swift's form: columns as lists, here of one entry each."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    """What it names; with `any_column` it is given every column besides."""
    required: tuple[str, ...]
    any_column: bool
    as_text: bool
    """Completions are strings even where the prompt is a conversation, as for ms-swift's classes."""

    def call(self, offered: Mapping[str, Any]) -> Any:
        """The one verdict of the returned list. MisfitError: a column is missing, or what was returned is no list of one."""
        logged: dict[str, Any] = {}
        columns = {**_columns(offered), **self._own(offered)} | _logs(logged)
        missing = [name for name in self.required if name not in columns]
        if missing:
            raise MisfitError(self._lacks(missing, offered))
        wanted = {k: v for k, v in columns.items() if k in self.names or (self.any_column and k not in (*LOGS, "completion_ids"))}
        verdict = _only(_awaited(self.function(**wanted)))
        return {"score": verdict, **logged} if logged and not isinstance(verdict, Mapping) else verdict

    def _own(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """prompts, completions and, where they are known, completion_ids."""
        text, turns = offered["solution_str"], offered["messages"]
        plain = offered["plain_text"]
        completion = text if plain or self.as_text else [{"role": "assistant", "content": text}]
        prompt = turns[0]["content"] if plain else turns
        ids = offered.get("completion_ids")
        return {"prompts": [prompt], "completions": [completion]} | ({"completion_ids": [list(ids)]} if ids else {})

    def _lacks(self, missing: list[str], offered: Mapping[str, Any]) -> str:
        if "completion_ids" in missing:
            return "needs completion_ids, and this response came as text, without its tokens"
        entries = ", ".join(map(str, offered["extra_info"])) or "none"
        return (
            f"needs {', '.join(missing)}, which this row does not have: a column is {', '.join(COLUMNS)}, or an entry of the row's "
            f"extra_info (here: {entries})"
        )


RuleForm = OneByOne | InLists


def rule_form(function: Callable[..., Any], where: str) -> RuleForm:
    """How a rule is called. RewardFunctionError, naming `where`, when it cannot be called in any of the forms."""
    parameters = parameters_of(function, where)
    named = tuple(p.name for p in parameters if p.kind in _BY_NAME)
    lists = [name for name in LIST_ARGUMENTS if name in named]
    if lists and "solution_str" in named:
        raise RewardFunctionError(
            f"{where}: {_seen(function)} names both solution_str and {', '.join(lists)}: it is either {RULE_SIGNATURE}, or, with lists, "
            f"{LIST_SIGNATURE}."
        )
    return _in_lists(function, parameters, named, where) if lists else _one_by_one(function, parameters, named, where)


def parameters_of(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    """RewardFunctionError, naming `where`, when they cannot be read."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RewardFunctionError(f"{where}: its parameters cannot be read ({error}); wrap it in a Python function.") from error


def takes(parameters: Iterable[inspect.Parameter], kind: Any) -> bool:
    """Whether one of them is of that kind, such as **kwargs."""
    return any(p.kind is kind for p in parameters)


def made(cls: type, where: str) -> Callable[..., Any]:
    """An instance of a class that is named as a rule. RewardFunctionError when it cannot be made without arguments, or called."""
    try:
        instance = cls()
    except Exception as error:
        raise RewardFunctionError(
            f"{where} is a class and {cls.__name__}() raised {type(error).__name__}: {error}; it is made without arguments."
        ) from error
    if not callable(instance):
        raise RewardFunctionError(f"{where} is a class without __call__(completions, **columns); name a function, or give it one.")
    return instance


def _one_by_one(function: Callable[..., Any], parameters: list[inspect.Parameter], named: tuple[str, ...], where: str) -> OneByOne:
    required = [p.name for p in parameters if p.default is p.empty and p.kind in (*_BY_NAME, *_BY_POSITION)]
    offered = (*RULE_ARGUMENTS, *RULE_EXTRAS)
    unknown = [n for n in dict.fromkeys(required) if n not in offered or n not in named]
    any_name = takes(parameters, inspect.Parameter.VAR_KEYWORD)
    if unknown or ("solution_str" not in named and not any_name):
        what = f"needs {', '.join(unknown)}, which no rule is given" if unknown else "does not take solution_str, the response's text"
        raise RewardFunctionError(
            f"{where}: {_seen(function)} {what}. A rule is {RULE_SIGNATURE}; it is called by keyword, and may leave out "
            f"what it does not need and add {' and '.join(RULE_EXTRAS)}. With lists it is {LIST_SIGNATURE}."
        )
    return OneByOne(function, tuple(n for n in offered if n in named or (any_name and n in RULE_ARGUMENTS)))


def _in_lists(function: Callable[..., Any], parameters: list[inspect.Parameter], named: tuple[str, ...], where: str) -> InLists:
    by_place = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY and p.default is p.empty]
    if by_place:
        raise RewardFunctionError(f"{where}: {_seen(function)} takes {', '.join(by_place)} by position only; it is called by keyword.")
    required = tuple(p.name for p in parameters if p.default is p.empty and p.kind in _BY_NAME)
    any_column = takes(parameters, inspect.Parameter.VAR_KEYWORD)
    return InLists(function, named, required, any_column, as_text=not isinstance(function, _FUNCTIONS))


def _seen(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"


def _columns(offered: Mapping[str, Any]) -> dict[str, list[Any]]:
    truth = offered.get("ground_truth")
    known = {"ground_truth": truth, "answer": truth, "solution": truth} | {k: offered[k] for k in COLUMNS if k in offered}
    return {str(name): [value] for name, value in {**known, **offered["extra_info"]}.items()}


def _logs(logged: dict[str, Any]) -> dict[str, Callable[[str, Any], None]]:
    def log_extra(column: str, values: Any) -> None:
        logged[str(column)] = values[0] if isinstance(values, list | tuple) and len(values) == 1 else values

    def log_metric(name: str, value: Any) -> None:
        logged[str(name)] = value

    return {"log_extra": log_extra, "log_metric": log_metric}


def _only(returned: Any) -> Any:
    """The entry of a list (or tuple, array, tensor) of one."""
    if isinstance(returned, str | bytes | Mapping) or not hasattr(returned, "__len__") or not getattr(returned, "shape", (1,)):
        shown = repr(returned)[:80]
        raise MisfitError(f"returned {shown} ({type(returned).__name__}); a list with one reward per completion is needed")
    if len(returned) != 1:
        raise MisfitError(f"returned {len(returned)} rewards for 1 completion; return exactly one per completion, in order")
    return returned[0]


def _awaited(returned: Any) -> Any:
    return _loop().run(_result_of(returned)) if inspect.isawaitable(returned) else returned


async def _result_of(returned: Any) -> Any:
    return await returned


@functools.cache
def _loop() -> Any:
    """One event loop for all calls of a process: clients that a module keeps belong to the loop they were first used on."""
    import asyncio  # here, not above: most rules are not async, and every new worker would wait for it

    return asyncio.Runner()
