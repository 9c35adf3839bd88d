"""The process of the code that is tested."""

from __future__ import annotations

import json
import operator
import os
import sys
from typing import Any

from rmrl.rewards.kinds.code.inside.values import Codec, containers

MOST_DETAIL = 300
"""Characters of a text in a verdict."""
OPERATIONS: dict[str, Any] = {
    "len": len,
    "item": operator.getitem,
    "iter": iter,
    "next": next,
}
"""What the tester may do with an object besides calls and attributes."""


def candidate(request_fd: int, answer_fd: int) -> None:
    """Load the code that the first line holds, then answer calls until the other end closes."""
    requests = os.fdopen(request_fd, "r", encoding="utf-8")
    answers = os.fdopen(answer_fd, "w", encoding="utf-8")
    codec = Codec()

    def send(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    module = type(sys)("candidate")
    sys.modules["candidate"] = module
    codec.pack_object(module)
    sources = json.loads(requests.readline())
    try:
        # Without the imports from __future__ of this file.
        for source in sources:
            exec(compile(source, "<candidate>", "exec", dont_inherit=True), module.__dict__)
        names: dict[str, Any] = {
            name: packed_name(codec, value)
            for name, value in list(module.__dict__.items())
            if not name.startswith("__")
        }
        send({"names": names})
    except BaseException as error:
        send(raised(codec, error))
        return
    for line in requests:
        send(answered(codec, json.loads(line)))


def packed_name(codec: Codec, value: Any) -> Any:
    """Return a name's value as the load reports it: a module, the number of something that can be
    called, or "v" and the number of the code's module, from which the tester gets the value when a
    test reads the name."""
    if isinstance(value, type(sys)):
        return codec.pack(value)
    return codec.pack_object(value) if callable(value) else ["v", 0]


def answered(codec: Codec, request: Any) -> Any:
    """The answer to one request: the value, for a call with the arguments as it left them, or the
    error."""
    try:
        target = codec.objects[request["object"]]
        if request["do"] == "get":
            return {"value": codec.pack(getattr(target, request["name"]))}
        if request["do"] == "set":
            setattr(target, request["name"], codec.unpack(request["value"]))
            return {"value": None}
        arguments = [codec.unpack(each) for each in request["arguments"]]
        if request["do"] in OPERATIONS:
            return {"value": codec.pack(OPERATIONS[request["do"]](target, *arguments))}
        named = {name: codec.unpack(each) for name, each in request["named"].items()}
        codec.shared = containers([arguments, named])
        value = target(*arguments, **named)
        codec.numbers = {id(each): place for place, each in enumerate(codec.shared)}
        return {"value": codec.pack([value, arguments, named])}
    except BaseException as error:
        codec.numbers = {}
        return raised(codec, error)
    finally:
        codec.numbers = {}


def raised(codec: Codec, error: BaseException) -> Any:
    """The answer in place of a value: the error's type and text, its nearest builtin class and its
    arguments."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    values = error.args
    if isinstance(error, OSError) and error.filename is not None:
        values = (error.errno, error.strerror, error.filename)
    try:
        arguments = [codec.pack(each) for each in values]
    except BaseException:
        arguments = []
    return {"error": described(error), "kind": kinds[0], "arguments": arguments}


def described(error: BaseException) -> list[str]:
    """Return the error's type and its text."""
    try:
        text = str(error)
    except BaseException:
        text = ""
    return [type(error).__name__, text[:MOST_DETAIL]]
