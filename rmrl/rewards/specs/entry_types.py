"""Types of a reward's entries: whether a value has the annotated one, and what to give instead.

Pydantic compares in its strict mode: True is no number, 1 is no text, NaN is no number at all.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_NAMES: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a name",
    type(None): "null",
    Callable[..., Any]: "a function",
}


def fits(value: Any, annotation: Any) -> bool:
    """Return whether a value has the annotated type, with all of its parts."""
    from pydantic import ValidationError  # here: many rewards have no entries to check

    try:
        _reader(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _reader(annotation: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation, config={"strict": True, "allow_inf_nan": False})


def advice(value: Any, annotation: Any) -> str:
    """Return what to give instead of a value, e.g. "give a whole number or null"."""
    sentence = f"give {in_words(annotation)}"
    parts = [value]
    if isinstance(value, Mapping | list | tuple):
        parts += value
    if "name" in sentence and any(isinstance(part, bool) for part in parts):
        sentence += "; YAML reads yes, no, on, off, true and false as True or False: quote a name"
    return sentence


def in_words(annotation: Any) -> str:
    """Return a type for people, e.g. "a list, each a finite number"."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    inner = typing.get_args(annotation)
    if isinstance(annotation, types.UnionType):
        return " or ".join(map(in_words, inner))
    origin = typing.get_origin(annotation)
    if origin is None:
        return "another value"
    name = "a list"
    if issubclass(origin, Mapping):
        name = "names and their values"
    elif issubclass(origin, tuple):
        inner = inner[:1]
    if inner[-1] is Any:
        return name
    return f"{name}, each {in_words(inner[-1])}"
