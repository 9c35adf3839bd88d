"""Values that go between the tester and the code that is tested."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
from typing import Any


class Codec:
    """Values as JSON: plain values as data, anything else as a number on one side's list."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        """Objects of this side that the other one knows by number."""
        self.known: dict[int, int] = {}
        """id of an object in `objects` -> its number."""
        self.shared: list[Any] = []
        """Lists, dicts, sets and deques of the call that is answered. Both sides have them."""
        self.numbers: dict[int, int] = {}
        """id -> place in `shared`, while the answer is packed."""

    def pack(self, value: Any) -> Any:
        """Return what JSON can hold. A subclass of a plain type is sent as the plain type."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int.__int__(value)
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, dict):
            packed = ["d", [[self.pack(k), self.pack(v)] for k, v in dict.items(value)]]
            return self.numbered(value, packed)
        own: Any = type(value)
        if isinstance(value, tuple) and hasattr(own, "_fields"):
            fields = [str(name) for name in own._fields]
            content = [self.pack(each) for each in tuple.__iter__(value)]
            return ["p", [own.__name__, fields, content]]
        kinds: Any = (("l", list), ("t", tuple), ("s", set), ("f", frozenset))
        for tag, kind in kinds:
            if isinstance(value, kind):
                packed = [tag, [self.pack(each) for each in kind.__iter__(value)]]
                return self.numbered(value, packed)
        return self.pack_other(value)

    def numbered(self, value: Any, packed: Any) -> Any:
        """Return the packed content of a container, with its number where the other side has it."""
        number = self.numbers.get(id(value))
        return packed if number is None else ["k", [number, packed]]

    def pack_other(self, value: Any) -> Any:
        """Return rarer values as data, and all others as a number."""
        if isinstance(value, complex):
            return ["c", [value.real, value.imag]]
        if isinstance(value, (bytes, bytearray)):
            return ["b", bytes(value).hex()]
        if isinstance(value, range):
            return ["r", [value.start, value.stop, value.step]]
        if isinstance(value, collections.deque):
            return self.numbered(value, ["q", [self.pack(each) for each in value]])
        if isinstance(value, slice):
            return ["y", [self.pack(each) for each in (value.start, value.stop, value.step)]]
        dates: Any = (datetime.datetime, datetime.date, datetime.time)
        for kind in dates:
            if isinstance(value, kind):
                return ["a", [kind.__name__, kind.isoformat(value)]]
        if isinstance(value, datetime.timedelta):
            return ["e", [value.days, value.seconds, value.microseconds]]
        if isinstance(value, fractions.Fraction):
            return ["n", ["Fraction", str(value)]]
        if isinstance(value, decimal.Decimal):
            return ["n", ["Decimal", str(value)]]
        if isinstance(value, type(decimal)):
            return ["m", value.__name__]
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return self.pack(value.tolist())
        if hasattr(type(value), "__next__"):
            return self.pack_iterator(value)
        return self.pack_object(value)

    def pack_iterator(self, value: Any) -> Any:
        """Return the number of an iterator: the other side fetches one value after another."""
        return ["i", self.pack_object(value)[1]]

    def pack_object(self, value: Any) -> Any:
        """Return the number of an object on this side."""
        number = self.known.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return ["o", number]

    def unpack(self, packed: Any) -> Any:
        """Return the value. Raises ValueError for anything that `pack` does not return."""
        if not isinstance(packed, list):
            return packed
        tag, content = packed
        if tag == "d":
            return {self.unpack(k): self.unpack(v) for k, v in content}
        kinds = {"l": list, "t": tuple, "s": set, "f": frozenset, "q": collections.deque, "g": iter}
        if tag in kinds:
            return kinds[tag]([self.unpack(each) for each in content])
        if tag == "k":
            return refilled(self.shared[content[0]], self.unpack(content[1]))
        if tag == "p":
            name, fields, values = content
            kind_of: Any = collections.namedtuple
            return kind_of(name, fields)(*map(self.unpack, values))
        return self.unpack_other(tag, content)

    def unpack_other(self, tag: str, content: Any) -> Any:
        """Return a rarer value."""
        if tag == "c":
            return complex(*content)
        if tag == "b":
            return bytes.fromhex(content)
        if tag == "r":
            return range(*content)
        if tag == "y":
            return slice(*map(self.unpack, content))
        if tag == "a":
            dates = {"datetime": datetime.datetime, "date": datetime.date, "time": datetime.time}
            return dates[content[0]].fromisoformat(content[1])
        if tag == "e":
            return datetime.timedelta(*content)
        if tag == "n":
            name, text = content
            return fractions.Fraction(text) if name == "Fraction" else decimal.Decimal(text)
        return self.unpack_object(tag, content)

    def unpack_object(self, tag: str, content: Any) -> Any:
        """Return the object of this side with a number."""
        if tag != "o":
            raise ValueError(tag)
        return self.objects[content]


def containers(value: Any) -> list[Any]:
    """Return the lists, dicts, sets and deques in arguments, in an order that is the same on both
    sides: a call may change them."""
    parts: list[Any] = []
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (list, dict, set, collections.deque)):
            parts.append(part)
        if isinstance(part, dict):
            waiting.extend(dict.values(part))
        elif isinstance(part, (list, tuple, collections.deque)):
            waiting.extend(part)
    return parts


def refilled(container: Any, content: Any) -> Any:
    """Return the container with the content that a call left in it."""
    if isinstance(container, list) and isinstance(content, list):
        container[:] = content
    elif isinstance(container, collections.deque) and isinstance(content, collections.deque):
        container.clear()
        container.extend(content)
    elif isinstance(container, (dict, set)) and isinstance(content, (dict, set)):
        container.clear()
        container.update(content)
    else:
        raise ValueError("another kind of container")
    return container
