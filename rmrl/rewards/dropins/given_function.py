"""Functions that a program gives as rules, and how the processes that run rules get them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import cloudpickle

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import FunctionSource


def source_of(function: Callable[..., Any], arguments: str = "") -> FunctionSource:
    """Return a function's source: its module, or a copy where a notebook, a script, a closure or an
    object has it. A copy has the values that the function uses now.

    Raises RewardFunctionError for a function that cannot be copied.
    """
    module = getattr(function, "__module__", None) or "__main__"
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if module != "__main__" and _in_module(module, name) is function:
        return FunctionSource(module, name, arguments=arguments)
    try:
        copy: bytes = cloudpickle.dumps(function)
    except Exception as error:  # any object inside may refuse to be copied
        raise RewardFunctionError(
            f"{module}:{name} cannot be copied to the processes that run rules"
            f" ({type(error).__name__}: {error}): let it make within itself what cannot be copied,"
            " or put it into a file and give rules.py:name"
        ) from error
    return FunctionSource(module, name, arguments=arguments, copy=copy)


def _in_module(module: str, name: str) -> Any:
    try:
        return reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
