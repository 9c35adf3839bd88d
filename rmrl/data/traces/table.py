"""The trace formats, and the way from a row in one to a row that rewards score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.data.problems import FieldError, shown
from rmrl.data.traces.chat import ChatConversations
from rmrl.data.traces.nemo_gym import NeMoGymRollouts
from rmrl.data.traces.openenv import OpenEnvTraces
from rmrl.data.traces.stored_trace import STATUS, TraceFormat, row_of
from rmrl.data.traces.verifiers import VerifiersTraces
from rmrl.errors import DataError

TRACE_FORMATS: tuple[TraceFormat, ...] = (
    VerifiersTraces(),
    OpenEnvTraces(),
    NeMoGymRollouts(),
    ChatConversations(),
)
"""The first whose fields a row has reads it."""


def as_row(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a trace as the row that `rmrl.data.traces.stored_trace` describes, its own columns
    behind, and other rows unchanged. `where`: place for messages. Raises DataError for a malformed
    trace."""
    if STATUS in fields:
        return fields
    for form in TRACE_FORMATS:
        if not form.holds(fields):
            continue
        try:
            row = {**row_of(form.traces(fields)), **_absent(form.columns(fields), fields)}
        except (
            FieldError,
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            AttributeError,
        ) as error:
            reason = str(error)
            if not isinstance(error, FieldError):
                reason = f"{type(error).__name__}: {error}; saw {shown(fields)}"
            raise DataError(
                f"{where} looks like a trace of {form.name} and cannot be read ({reason}); write"
                " the trace again, or give the row the columns prompt and response"
            ) from error
        rest = {name: value for name, value in fields.items() if name not in row}
        return {**row, **rest}
    return fields


def _absent(columns: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that the row does not have itself."""
    return {name: value for name, value in columns.items() if name not in fields}
