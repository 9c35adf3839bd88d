"""Agents' stored traces beside the rewards that their environment gave.

prompt, response            read as `rmrl.data.traces` says; with several traces in a row, responses
score_env.reward            the number that the environment trains on (data.columns.value)
prompt_id, ground_truth     where they are there
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rmrl.data.problems import FieldError
from rmrl.data.responses import answers_in
from rmrl.data.schema import as_messages
from rmrl.errors import DataError
from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Format
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import TieRule
from rmrl.types import Message


class Traces(Format):
    """Nothing is compared: scores are correlated with the environment's rewards. A trace without a
    reward, such as one whose harness failed, is left out."""

    source: ClassVar[str] = "docs/conversations.md"
    ties: ClassVar[TieRule] = "share"
    paths: ClassVar[Mapping[str, str]] = {"value": "score_env.reward", "id": "prompt_id"}

    def item(self, row: Fields) -> Item:
        """Return the rewarded traces with their rewards."""
        values = row.get("value")
        if not isinstance(values, list):
            values = [values]
        texts: tuple[str, ...] = ("",) * len(values)
        answers: Any = texts
        prompt: str | tuple[Message, ...] = ""
        if row.needs_texts:
            answers = row.get("response")
            if answers is None:
                answers = row.need("responses")
            try:
                prompt = as_messages(row.need("prompt"), "prompt")
                texts, several, _ = answers_in(row.values, row.names)
            except FieldError as error:
                raise DataError(f"{row.place}, {error}") from error
            if not several:
                answers = [answers]
        if len(values) != len(texts):
            raise row.wrong("value", values, f"a number or null for each of {len(texts)} traces")
        rewarded: list[int] = []
        for number, value in enumerate(values):
            if isinstance(value, int | float):
                rewarded.append(number)
            elif value is not None:
                raise row.wrong("value", value, "a number, or null where there is no reward")
        return Item(
            id=row.key(),
            subset=str(row.get("subset", "all")),
            prompt=prompt,
            responses=tuple(texts[number] for number in rewarded),
            conversations=tuple(answers[number] for number in rewarded),
            values=tuple(float(values[number]) for number in rewarded),
            ground_truth=row.optional_text("ground_truth"),
            data_source=str(row.get("data_source", "")),
            extra_info=row.get("extra_info", {}),
        )
