"""Check request rows like file rows. A problem names the row and its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.data.column_names import ColumnNames
from rmrl.data.problems import FieldError
from rmrl.data.responses import AnsweredRow, ResponseReader
from rmrl.data.rows import Row
from rmrl.errors import DataError
from rmrl.serve.problems import RequestError

_REQUEST = "request"


def read_rows(
    reader: ResponseReader, rows: Sequence[Mapping[str, Any]], empty_prompts: bool = False
) -> list[AnsweredRow]:
    """Return the checked rows. Raises RequestError 422 for the first bad row. A row without a
    prompt is bad unless `empty_prompts`."""
    if not rows:
        raise RequestError(422, "there are no rows to score; give at least one row", field="rows")
    checked: list[AnsweredRow] = []
    names = ColumnNames(reader.names.paths)
    for number, fields in enumerate(rows):
        names.see(fields)
        if fields.get("response") is not None and fields.get("responses") is not None:
            raise RequestError(
                422,
                f"row {number} has both response and responses; send one of them",
                field=f"rows[{number}].responses",
            )
        row = Row(
            file=_REQUEST,
            label=_REQUEST,
            number=number,
            fields=dict(fields),
            is_plain=True,
            empty_prompt=empty_prompts,
        )
        try:
            checked.append(reader.one(row, number))
        except FieldError as error:
            place = f"rows[{number}].{error.column}"
            raise RequestError(422, f"row {number}, {error}", field=place) from error
        except (DataError, RecursionError, UnicodeError, OverflowError) as error:
            raise RequestError(
                422,
                f"row {number} cannot be read ({type(error).__name__}); correct its values",
                field=f"rows[{number}]",
            ) from error
    try:
        names.refuse_unseen(names.paths)
    except DataError as error:
        raise RequestError(422, str(error), field="rows") from error
    return checked
