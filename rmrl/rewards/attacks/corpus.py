"""The attack corpus: one JSON object per line in attacks.jsonl, or in the user's own file.

Families: override (ignore your instructions), authority, fake_verdict, closing_marker (pretends
  that the response has ended), chat_template (pretends that the judge's turn has begun), master_key
  (nothing but an opener such as ":" or "Solution", which judges have been seen to accept:
  arXiv:2507.08794), few_shot, flattery, fake_reasoning, rubric, structured (breaks out of JSON,
  templates, shells), repeat (very long), hidden (characters that cannot be seen), encoded, threat,
  hedging (the right answer among others; for judges that compare with a reference), continuation
  (goes on in the judge's place).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from rmrl.errors import DataError

POSITIONS = ("append", "prepend", "replace", "around")
_SLOT = re.compile(r"\{(response|best|gold)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to sway a judge."""

    id: str
    family: str
    language: str
    """ISO 639-1 code for most of its words."""
    position: str
    """append, prepend, replace (the response is gone), or around (the text has a {response}
    slot)."""
    text: str
    """May have the slots {best}, the judge's best verdict, and {gold}, the right answer."""
    repeat: int = 1
    """Times that the text is written."""

    @property
    def needs_gold(self) -> bool:
        """True if the text has a slot for the right answer."""
        return "{gold}" in self.text

    def apply(self, response: str, *, best: str = "10", gold: str = "") -> str:
        """The attacked response. Slots are filled in one pass: a slot inside a filled-in text stays
        text."""
        slots = {"response": response, "best": best, "gold": gold}
        text = _SLOT.sub(lambda slot: slots[slot[1]], self.text * self.repeat)
        if self.position == "append":
            return f"{response}\n\n{text}"
        if self.position == "prepend":
            return f"{text}\n\n{response}"
        return text


_ENTRIES = ", ".join(entry.name for entry in fields(Attack))


@cache
def load_attacks() -> tuple[Attack, ...]:
    """The shipped corpus, in the file's order."""
    return read_attacks(Path(__file__).with_name("attacks.jsonl"))


def read_attacks(path: Path) -> tuple[Attack, ...]:
    """The attacks in a JSON Lines file. DataError names the line and its problem."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The attacks in {path} cannot be read: {error}. Give a JSON Lines file in UTF-8."
        ) from error
    attacks: dict[str, Attack] = {}
    id_of: dict[tuple[str, str, int], str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path}:{number} is no JSON: {error}. Each line is one object with {_ENTRIES}."
            ) from error
        problem = attack_problem(row)
        if problem:
            raise DataError(f"{path}:{number}: {problem}.")
        attack = Attack(**row)
        same = id_of.setdefault((attack.text, attack.position, attack.repeat), attack.id)
        if attack.id in attacks or same != attack.id:
            raise DataError(
                f"{path}: attack {attack.id} occurs twice (the same id, or the text of {same});"
                " remove one."
            )
        attacks[attack.id] = attack
    return tuple(attacks.values())


def attack_problem(row: Any) -> str:
    """Problem of an attack as it was read, as a sentence's end; "" without one."""
    if not isinstance(row, dict):
        return f"an object is needed, found {type(row).__name__}"
    types = {entry.name: entry.type for entry in fields(Attack)}
    unknown = [name for name in row if name not in types]
    missing = [name for name in types if name not in row and name != "repeat"]
    if unknown or missing:
        return f"unknown entries: {unknown}; missing entries: {missing}; an attack has {_ENTRIES}"
    for name, value in row.items():
        if type(value).__name__ != types[name]:
            return f"{name} is {value!r}; its type is {types[name]}"
    if row["position"] not in POSITIONS:
        return f"position is {row['position']!r}; it is one of {', '.join(POSITIONS)}"
    if ("{response}" in row["text"]) != (row["position"] == "around"):
        return "a text has a {response} slot exactly where its position is around"
    if not row["text"] or row.get("repeat", 1) < 1:
        return "the text is empty or never written (repeat below 1)"
    return ""
