"""One raw benchmark row, read by its format's names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmrl.data.column_names import ABSENT, ColumnNames
from rmrl.data.dialogue import dialogue_turns
from rmrl.data.instruction_rows import as_turns, history_turns
from rmrl.data.problems import FieldError
from rmrl.data.schema import as_messages
from rmrl.errors import DataError
from rmrl.types import Message

Turns = str | tuple[Message, ...]
"""A text, or messages."""
PROMPTS = (
    "prompt", "instruction", "orig_instruction", "question.full_text", "question", "info.post",
    "info.article", "context", "input", "history", "messages", "conversations",
    "trajectory",
)  # fmt: skip
"""Columns in which published sets have their prompts. The first that a row has counts."""
_NEED_TURNS = "a text, or a list of messages with role and content"
_TO_WRITE: Message = {"role": "assistant", "content": ""}
"""The last turn of a dialogue that ends with "Assistant:"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A row's values, and the paths at which a format's names stand."""

    place: str
    """For messages: "pairs.jsonl row 3"."""
    number: int
    """Position among the rows of all files, from 0."""
    values: Mapping[str, Any]
    names: ColumnNames
    needs_texts: bool = True
    """Responses are going to be scored. False: recorded judgements need ids and labels only."""
    used: set[str] = field(default_factory=set)
    """Names that the format has looked up, in this row and in those that share the set."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value at a name's path; `default` where it is absent or null."""
        self.used.add(name)
        value = self.names.value(self.values, name)
        if value is ABSENT or value is None:
            return default
        return value

    def need(self, name: str) -> Any:
        """Return the value at a name's path. Raises DataError where it is absent or null."""
        value = self.get(name)
        if value is None and self.names.value(self.values, name) is None:
            raise self.wrong(name, None, "a value")
        if value is None:
            path = self.names.at(name)
            columns = ", ".join(map(str, self.values)) or "(none)"
            raise DataError(
                f"{self.place}: saw only the columns {columns}; need '{path}'; mend the row, or"
                f" name the column that holds it: data.columns.{name}=..."
            )
        return value

    def wanted(self, name: str) -> Any:
        """Return what `need` does, or "" where texts are not needed and there is none."""
        if self.needs_texts:
            return self.need(name)
        return self.get(name, "")

    def text(self, name: str) -> str:
        """Return a text. "" where texts are not needed and it is absent."""
        value = self.wanted(name)
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            # PandaLM's test set: a response "true" was written as JSON's true.
            return json.dumps(value)
        if self.needs_texts:
            raise self.wrong(name, value, "a string")
        return ""

    def optional_text(self, name: str) -> str | None:
        """Return a value as text. None where it is absent or null."""
        value = self.get(name)
        if value is None:
            return None
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return texts in a list. Each may be a mapping with the text in `answer`."""
        value = self.need(name)
        if not isinstance(value, list | tuple):
            raise self.wrong(name, value, "a list of strings")
        texts: list[str] = []
        for each in value:
            text = each
            if isinstance(each, Mapping):
                text = each.get("answer")
            if not isinstance(text, str):
                raise self.wrong(name, each, "a list of strings")
            texts.append(text)
        return tuple(texts)

    def prompt(self, name: str = "prompt") -> Turns:
        """Return a text, or messages. A text that is a dialogue ("Human: ... Assistant:") becomes
        its turns. An instruction is followed by the row's `input`, and follows its `history`. Of
        `messages` a last turn of the assistant is no part. The row's `system` comes first."""
        asked = self._asked(name)
        system = self.get("system")
        turns: list[Message] = []
        if isinstance(system, str) and system.strip():
            turns.append({"role": "system", "content": system})
        if name == "instruction":
            history = self.get("history")
            try:
                turns += history_turns(history)
            except ValueError as error:
                raise self.wrong("history", history, "a list of [question, answer]") from error
        if not turns:
            return asked
        if isinstance(asked, str):
            return (*turns, {"role": "user", "content": asked})
        return asked if asked[0]["role"] == "system" else (*turns, *asked)

    def _asked(self, name: str) -> Turns:
        """Return what one column asks."""
        value = self.wanted(name)
        if not isinstance(value, str):
            turns = self.messages(name, value)
            if name in ("messages", "conversations") and turns[-1]["role"] == "assistant":
                return turns[:-1]
            return turns
        turns = dialogue_turns(value) or value
        if turns[-1:] == (_TO_WRITE,):
            return turns[:-1]
        context = self.get("input", "") if name == "instruction" else ""
        if context and turns == value:
            return f"{value}\n\n{context}"
        return turns

    def prompt_column(self) -> str | None:
        """Return the one of `PROMPTS` that the prompt stands in, None without any."""
        return next((name for name in PROMPTS if self.get(name) is not None), None)

    def prompt_in_any_column(self) -> Turns:
        """Return the prompt from the first of `PROMPTS` that the row has. Raises DataError without
        any."""
        return self.prompt(self.prompt_column() or "prompt")

    def messages(self, name: str, value: Any) -> tuple[Message, ...]:
        """Return messages, whose role and content count."""
        try:
            messages = as_messages(as_turns(value), self.names.at(name))
        except FieldError as error:
            raise DataError(f"{self.place}, {error}") from error
        if not messages:
            raise self.wrong(name, value, _NEED_TURNS)
        return tuple({"role": turn["role"], "content": turn["content"]} for turn in messages)

    def key(self) -> str:
        """Return the row's id as text. Its number where it has none."""
        return str(self.get("id", self.number))

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a number, or a list of them, as floats. They may be text (csv); truth values count
        as 1 and 0."""
        value = json_value(self.need(name))
        listed = value
        if not isinstance(value, list | tuple):
            listed = [value]
        numbers: list[float] = []
        for each in listed:
            if not isinstance(each, int | float) or not math.isfinite(each):
                raise self.wrong(name, value, "a number, true or false, or a list of them")
            numbers.append(float(each))
        if not numbers:
            raise self.wrong(name, value, "a number, true or false, or a list of them")
        return tuple(numbers)

    def one_of(self, name: str, meanings: Mapping[Any, Any]) -> Any:
        """Return what a value means that has a few possible meanings. It may be text (csv)."""
        value = self.need(name)
        if isinstance(value, str) and value not in meanings:
            value = json_value(value)
        if not isinstance(value, str | int | float) or value not in meanings:
            raise self.wrong(name, value, f"one of {', '.join(map(str, meanings))}")
        return meanings[value]

    def wrong(self, name: str, value: Any, need: str) -> DataError:
        """Return the error for a value with another type."""
        text = repr(value)
        if len(text) > 80:
            text = f"{text[:80]}..."
        path = self.names.at(name)
        return DataError(f"{self.place}, '{path}': saw {text}; need {need}; mend or drop the row")


def json_value(value: Any) -> Any:
    """Return the value that a text states in JSON, such as "0.5", "True" or "[4, 5]"; other texts
    and values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value.strip().lower())
    except ValueError:
        return value
