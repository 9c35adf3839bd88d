"""The arguments of TRL's reward functions as JSON.

    POST /trl {"prompts": [...], "completions": [...], "<column>": [...], ...}
    -> {"rewards": [...], "scores": {"<name>": [...]}, "statuses": {"<name>": [...]}}

TRL has no client for reward servers. A function for `reward_funcs` that posts its arguments is

    def reward(prompts, completions, ground_truth, **_):
        body = {"prompts": prompts, "completions": completions, "ground_truth": ground_truth}
        return requests.post("http://127.0.0.1:8765/trl", json=body).json()["rewards"]

A response without a reward is null, which TRL accepts (None: the function does not count there).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.wires import FIRST_ERROR, WireRoute
from rmrl.serve.wires.conversations import parted
from rmrl.serve.wires.trainer_rows import reward_of, row_of, scored_rows

_PLACES = {"": "completions[{}]", "prompt": "prompts[{}]", "ground_truth": "ground_truth[{}]"}
_UNUSED = ("completion_ids", "completions_ids", "prompt_ids")

Turns = Annotated[list[dict[str, Any]], FIRST_ERROR]


class BatchBody(BaseModel):
    """One entry of each list per response. Further fields are columns of the data set."""

    model_config = ConfigDict(extra="allow")

    prompts: Annotated[list[str | Turns], FIRST_ERROR] = Field(
        min_length=1, examples=[["How much is 2 + 2?"]]
    )
    completions: Annotated[list[str | Turns], FIRST_ERROR] = Field(
        min_length=1, examples=[["#### 4"]]
    )


class BatchAnswer(BaseModel):
    """One entry of each list per response, in the request's order."""

    rewards: list[float | None]
    scores: dict[str, list[float | None]]
    """Verdicts of each component."""
    statuses: dict[str, list[str]]


class TRLWire:
    """Implements `ServeWire`."""

    def routes(self, service: Service) -> Sequence[WireRoute]:
        del service
        return [
            WireRoute(
                path="/trl",
                body=BatchBody,
                answer=answer,
                answers=BatchAnswer,
                summary="A batch in the form of TRL's reward functions",
            )
        ]


async def answer(body: BatchBody, service: Service) -> dict[str, Any]:
    """Return rewards and components."""
    columns = {"completions": body.completions, **(body.model_extra or {})}
    for unused in _UNUSED:
        columns.pop(unused, None)
    count = len(body.prompts)
    service.check_number(count)
    for name, values in columns.items():
        if not isinstance(values, list) or len(values) != count:
            raise RequestError(
                422,
                f"{name} is not a list of {count} entries, one for each of the prompts; send one"
                " per response",
                field=name,
            )
    del columns["completions"]
    rows: list[dict[str, Any]] = []
    for number, completion in enumerate(body.completions):
        before, response = (None, completion)
        if isinstance(completion, list):
            before, response = parted(completion)
        further = {name: values[number] for name, values in columns.items()}
        rows.append(row_of(service, body.prompts[number], response, columns=further, before=before))
    scored = await scored_rows(service, rows, places=_PLACES)
    scores: dict[str, list[float | None]] = {}
    statuses: dict[str, list[str]] = {}
    for name in service.names:
        scores[name] = [row.columns[f"score_{name}"] for row in scored]
        statuses[name] = [row.columns[f"status_{name}"] for row in scored]
    rewards = [reward_of(row, service) for row in scored]
    return {"rewards": rewards, "scores": scores, "statuses": statuses}
