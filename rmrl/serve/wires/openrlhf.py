"""OpenRLHF's remote reward model, its option `--reward.remote_url http://host:port/get_reward`.

    POST /get_reward {"query": [prompt + response], "prompts": [prompt], "labels": [label]}
    -> {"rewards": [...], "scores": [...], "extra_logs": {"<component>": [...], "missing": [...]}}

`scores` repeats the rewards, as OpenRLHF's own server does. OpenRLHF averages `extra_logs`: the
score of each component, and 1 where a response has no reward.

A response without a reward has null in `rewards`, and a component without a verdict null in its
column; OpenRLHF turns each of these values into a tensor and ends at a null. With
serve.missing_reward both have that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from rmrl.data.queries import response_of
from rmrl.serve.bodies import aside
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.wires import FIRST_ERROR, WireRoute
from rmrl.serve.wires.trainer_rows import Label, reward_of, row_of, scored_rows

_PLACES = {"": "query[{}]", "prompt": "prompts[{}]", "ground_truth": "labels[{}]"}


class RewardBody(BaseModel):
    """One entry of each list per response."""

    query: Annotated[list[str], FIRST_ERROR] = Field(
        min_length=1,
        description="Prompt and response as one text, special tokens included.",
        examples=[["How much is 2 + 2?#### 4</s>"]],
    )
    prompts: Annotated[list[str], FIRST_ERROR] = Field(
        min_length=1, description="The prompt of each query.", examples=[["How much is 2 + 2?"]]
    )
    labels: Annotated[list[Label], FIRST_ERROR] | None = Field(
        default=None, description='Reference answers; "" and null: none.', examples=[["4"]]
    )


class RewardAnswer(BaseModel):
    """One entry of each list per response, in the request's order."""

    rewards: list[float | None]
    scores: list[float | None]
    extra_logs: dict[str, list[float | None]]


class OpenRLHFWire:
    """Implements `ServeWire`."""

    def routes(self, service: Service) -> Sequence[WireRoute]:
        del service
        return [
            WireRoute(
                path="/get_reward",
                body=RewardBody,
                answer=answer,
                answers=RewardAnswer,
                summary="OpenRLHF's remote reward model",
            )
        ]


async def answer(body: RewardBody, service: Service) -> dict[str, Any]:
    """Return the rewards and each component's scores."""
    count = len(body.query)
    service.check_number(count)
    labels = body.labels or [None] * count
    for name, values in (("prompts", body.prompts), ("labels", labels)):
        if len(values) != count:
            raise RequestError(
                422,
                f"query has {count} entries and {name} {len(values)}; send one of each per"
                " response",
                field=name,
            )
    rows = await aside(_rows, body, labels, service)
    scored = await scored_rows(service, rows, places=_PLACES, empty_prompts=True)
    rewards = [reward_of(row, service) for row in scored]
    logs: dict[str, list[float | None]] = {}
    for name in service.names:
        column: list[float | None] = []
        for row in scored:
            score = row.columns[f"score_{name}"]
            column.append(service.settings.missing_reward if score is None else score)
        logs[name] = column
    logs["missing"] = [float(row.columns["reward"] is None) for row in scored]
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}


def _rows(body: RewardBody, labels: Sequence[Any], service: Service) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, query in enumerate(body.query):
        prompt = body.prompts[number]
        response = response_of(query, prompt)
        if response is None:
            raise RequestError(
                422,
                f"query {number} does not hold its prompt, so that its response is not known; send"
                " in prompts the text that stands before the response",
                field=f"prompts[{number}]",
            )
        label = labels[number]
        rows.append(row_of(service, prompt, response, ground_truth=None if label == "" else label))
    return rows
