"""slime's and miles' remote reward model, their option `--rm-url`.

    POST /slime             {"prompt", "response", "label"} -> the reward: a number
    POST /slime/components  the same -> {"score", "score_<name>", "status_<name>", ...}

Both accept a list of such objects and answer with a list. The second is for `--reward-key score`.

A response without a reward is null, and {"score": null} with the components' statuses; slime needs
a number and ends at a null. With serve.missing_reward it is that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from rmrl.serve.scored import ScoredRow
from rmrl.serve.service import Service
from rmrl.serve.wires import FIRST_ERROR, WireRoute
from rmrl.serve.wires.trainer_rows import Label, reward_of, row_of, scored_rows

_PLACES = {"": "[{}]", "response": "[{}].response", "prompt": "[{}].prompt"}


class Sample(BaseModel):
    """One response. Further fields are its row's columns."""

    model_config = ConfigDict(extra="allow")

    prompt: str | Annotated[list[dict[str, Any]], FIRST_ERROR] = Field(
        examples=["How much is 2 + 2?"]
    )
    response: str = Field(examples=["#### 4"])
    label: Label = Field(default=None, description="Reference answer.", examples=["4"])


class SampleBody(RootModel[Sample | Annotated[list[Sample], FIRST_ERROR]]):
    """A sample, or several."""


class RewardAnswer(RootModel[float | None | list[float | None]]):
    """The reward, or one per sample; null without one."""


class Components(BaseModel):
    """The reward and the columns of `rmrl score`."""

    model_config = ConfigDict(extra="allow")

    score: float | None


class ComponentsAnswer(RootModel[Components | list[Components]]):
    """The components of a sample, or of each one."""


class SlimeWire:
    """Implements `ServeWire`."""

    def routes(self, service: Service) -> Sequence[WireRoute]:
        del service
        return [
            WireRoute(
                path="/slime",
                body=SampleBody,
                answer=rewards,
                answers=RewardAnswer,
                summary="slime's and miles' remote reward model: the reward as a number",
            ),
            WireRoute(
                path="/slime/components",
                body=SampleBody,
                answer=components,
                answers=ComponentsAnswer,
                summary="The same with every component (--reward-key score)",
            ),
        ]


async def rewards(body: SampleBody, service: Service) -> Any:
    """Return a sample's reward, or a list of them."""
    scored = await _scored(body, service)
    values = [reward_of(row, service) for row in scored]
    return values if isinstance(body.root, list) else values[0]


async def components(body: SampleBody, service: Service) -> Any:
    """Return the reward and the columns of a sample, or a list of them."""
    answers: list[dict[str, Any]] = []
    for row in await _scored(body, service):
        columns = dict(row.columns)
        del columns["reward"]
        answers.append({"score": reward_of(row, service), **columns})
    return answers if isinstance(body.root, list) else answers[0]


async def _scored(body: SampleBody, service: Service) -> Sequence[ScoredRow]:
    places = _PLACES
    samples = body.root
    if isinstance(samples, Sample):
        places = {"": "body", "response": "response", "prompt": "prompt"}
        samples = [samples]
    service.check_number(len(samples))
    rows: list[dict[str, Any]] = []
    for sample in samples:
        label = None if sample.label == "" else sample.label
        further = sample.model_extra
        row = row_of(service, sample.prompt, sample.response, ground_truth=label, columns=further)
        rows.append(row)
    return await scored_rows(service, rows, places=places)
