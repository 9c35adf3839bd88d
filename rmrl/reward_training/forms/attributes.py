"""Responses with a number for each of several attributes, as in HelpSteer.

prompt, response, attributes        {name: number}, null, NaN or left out where it is not known
prompt, response, helpfulness, ...  every further column that holds a number
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rmrl.config.numbers import is_number
from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.response_text import response_of
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of

_NO_ATTRIBUTES = ("prompt", "response", "attributes", "id", "source", "data_source")


class Attributes(Form):
    """A row has one response."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("prompt", "response", "attributes"),
        ("prompt", "response", "helpfulness"),
    )

    def example(self, row: Fields) -> Example:
        """Return the response with its numbers. Raises DataError where it has none."""
        stated: Any = row.get("attributes")
        if stated is None:
            stated = {
                name: value for name, value in row.values.items() if name not in _NO_ATTRIBUTES
            }
        pairs = stated.items() if isinstance(stated, Mapping) else ()
        values = {str(name): float(value) for name, value in pairs if is_number(value)}
        if not values:
            raise row.wrong("attributes", stated, "a number for one attribute at least")
        prompt = row.prompt()
        return Example(
            place=row.place,
            prompt=prompt,
            responses=(response_of(row, "response", row.need("response"), prompt),),
            source=source_of(row),
            attributes=values,
        )
