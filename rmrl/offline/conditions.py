"""Conditions over a scored row's columns, as typed: `judge != rule`, `reward < 0.5 and status_judge
== 'ok'`.

A condition is parsed into Python's syntax tree, which is walked. Nothing in it is executed, and no
Python attribute or function can be reached. Allowed are column names, numbers, texts, `None`,
comparisons (also `in` a text), `and`, `or`, `not`, + - * / and `abs`. A column whose name is not a
Python name is written `column["gpt-4"]`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

Condition = Callable[[Mapping[str, Any]], Any]
"""Columns of a row -> the expression's value."""

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, text: item in text,
    ast.NotIn: lambda item, text: item not in text,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_NEED = 'conditions look like "judge != rule" or "reward < 0.5 and status_judge == \'ok\'"'


def condition(text: str) -> Condition:
    """Compile the condition to a function over a row's columns.

    A comparison or a sum with a missing value (None) is false, apart from == and !=. Raises
    ConfigError for text that is not a condition. The function raises ConfigError for a column that
    the row lacks.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"--where {text!r} cannot be read ({error}); {_NEED}") from error
    return _build(tree.body, text)


def _build(node: ast.expr, text: str) -> Condition:
    match node:
        case ast.Constant(value=int() | float() | str() | None as value):
            return lambda _: value
        case ast.Name(id=name):
            return lambda row: _column(row, name)
        case ast.Subscript(value=ast.Name(id="column"), slice=ast.Constant(value=str() as name)):
            return lambda row: _column(row, name)
        case ast.BoolOp(op=op, values=values):
            quantifier = all if isinstance(op, ast.And) else any
            parts = [_build(value, text) for value in values]
            return lambda row: quantifier(part(row) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _build(operand, text)
            return lambda row: not inner(row)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _guarded(operator.neg, [_build(operand, text)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _guarded(_ARITHMETIC[type(op)], [_build(left, text), _build(right, text)])
        case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
            return _guarded(abs, [_build(argument, text)])
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _comparison([_build(each, text) for each in (left, *others)], ops)
        case _:
            raise ConfigError(
                f"--where {text!r}: {ast.unparse(node)!r} is not allowed in a condition; {_NEED}"
            )


def _guarded(function: Callable[..., Any], arguments: list[Condition]) -> Condition:
    """Evaluate a function, None where an argument is missing or has an unsupported type."""

    def evaluate(row: Mapping[str, Any]) -> Any:
        try:
            return function(*[argument(row) for argument in arguments])
        except (TypeError, ZeroDivisionError):
            return None

    return evaluate


def _comparison(sides: list[Condition], ops: list[ast.cmpop]) -> Condition:
    def evaluate(row: Mapping[str, Any]) -> bool:
        values = [side(row) for side in sides]
        try:
            for op, left_side, right_side in zip(ops, values, values[1:], strict=False):
                if not _COMPARISONS[type(op)](left_side, right_side):
                    return False
        except TypeError:  # None < 1, 1 < "a"
            return False
        return True

    return evaluate


def _column(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise ConfigError(f"--where: no column '{name}'{did_you_mean(name, list(row))}")
    return row[name]
