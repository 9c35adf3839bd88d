"""rmrl's own wire: rows and columns of `rmrl score`.

    POST /v1/score {"rows": [{"prompt", "response", "ground_truth", ...}], "stream"?, "timeout_s"?}
    -> {"rows": [{"index", "reward", "score_<name>", "status_<name>", ...}], "summary": {...}}

With "stream": true a line of JSON per row, as soon as it is scored and in any order, then a line
{"summary": {...}}.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rmrl.serve.scored import Scored, ScoredRow, in_numbers
from rmrl.serve.service import Service
from rmrl.serve.streaming import parts_of
from rmrl.serve.wires import FIRST_ERROR, Lines, WireRoute


class ScoreBody(BaseModel):
    """Rows to score, with the columns of a file of `rmrl score`."""

    model_config = ConfigDict(extra="forbid")

    rows: Annotated[list[dict[str, Any]], FIRST_ERROR] = Field(
        min_length=1,
        description="Objects with `prompt` (a string or messages), `response` (or `responses`, a"
        " list), and what the rewards read: ground_truth, data_source, extra_info, rm_prompt, ...",
        examples=[[{"prompt": "2 + 2 =", "response": "#### 4", "ground_truth": "4"}]],
    )
    stream: bool = Field(default=False, description="Answer line by line (NDJSON).")
    timeout_s: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Deadline of this request in seconds."
    )


class RowAnswer(BaseModel):
    """One scored row. In rows with a list of responses every column is a list."""

    model_config = ConfigDict(extra="allow")

    index: int = Field(description="Position of the row in the request.")
    reward: float | list[float | None] | None = Field(
        description="The combined reward; null where the row has none."
    )


class ScoreAnswer(BaseModel):
    """Scored rows in the request's order."""

    rows: list[RowAnswer]
    summary: dict[str, Any]


class NativeWire:
    """Implements `ServeWire`."""

    def routes(self, service: Service) -> Sequence[WireRoute]:
        del service
        return [
            WireRoute(
                path="/v1/score",
                body=ScoreBody,
                answer=answer,
                answers=ScoreAnswer,
                summary="Score rows: every component's score and status, and the reward",
            )
        ]


async def answer(body: ScoreBody, service: Service) -> Any:
    """Return the scored rows, or lines of them."""
    if body.stream:
        return Lines(_lines(body, service))
    scored = await service.score(body.rows, timeout_s=body.timeout_s)
    return {"rows": list(map(_row, scored.rows)), "summary": in_numbers(scored.summary)}


async def _lines(body: ScoreBody, service: Service) -> AsyncIterator[dict[str, Any]]:
    async for part in parts_of(service, body.rows, timeout_s=body.timeout_s):
        if isinstance(part, Scored):
            for row in part.rows:
                yield _row(row)
        else:
            yield {"summary": in_numbers(part)}


def _row(row: ScoredRow) -> dict[str, Any]:
    return {"index": row.index, **row.columns}
