"""Decisions in OpenAI's form.

    POST /v1/decisions    {"model", "input", "questions": [...]} -> answers with probabilities

Rubrics and generative judges answer from their own engines, whatever the architecture. A question
whose answers are less likely than the reward's `min_label_mass` gets a refusal. Prompt caching is
the engine's: its entries have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from rmrl.api import MOST_CHOICES, MOST_LEVELS, Decision, Option, Question
from rmrl.serve.decide import decide
from rmrl.serve.judge_models import JudgeModel, judge_models, model_named
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.wires import FIRST_ERROR, WireRoute
from rmrl.serve.wires.decision_input import input_text, parts_text

MOST_QUESTIONS = 400


class ChoiceBody(BaseModel):
    """An option."""

    value: StrictStr | StrictBool
    description: str | None = None


class LevelBody(BaseModel):
    """A level of a scale."""

    label: str
    description: str | None = None


class QuestionBody(BaseModel):
    """A question. `choices` belong to a choice, `levels` to a score."""

    type: Literal["predicate", "choice", "score"]
    instructions: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    name: str | None = None
    choices: Annotated[list[ChoiceBody], FIRST_ERROR] | None = Field(
        default=None, min_length=2, max_length=MOST_CHOICES
    )
    levels: Annotated[list[LevelBody], FIRST_ERROR] | None = Field(
        default=None, min_length=2, max_length=MOST_LEVELS
    )


class DecisionsBody(BaseModel):
    """Questions about one input. Further fields have no effect."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(examples=["judge"])
    input: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    questions: Annotated[list[QuestionBody], FIRST_ERROR] = Field(
        min_length=1, max_length=MOST_QUESTIONS
    )


class DecisionsAnswer(BaseModel):
    """OpenAI's decision."""

    model: str
    answers: list[dict[str, Any]]
    usage: dict[str, Any]


class DecisionsWire:
    """Implements `ServeWire`."""

    def __init__(self) -> None:
        self._models: dict[str, JudgeModel] = {}

    def routes(self, service: Service) -> Sequence[WireRoute]:
        """See `ServeWire.routes`. Raises ConfigError where no reward has an engine that writes."""
        self._models = judge_models(service, wire="decisions")
        return [
            WireRoute(
                path="/v1/decisions",
                body=DecisionsBody,
                answer=self._answer,
                answers=DecisionsAnswer,
                summary="Probabilities of the answers to questions, in OpenAI's form",
                error=openai_error,
            )
        ]

    async def _answer(self, body: DecisionsBody, service: Service) -> dict[str, Any]:
        model = model_named(self._models, body.model)
        questions = [
            _question(question, where=f"questions[{number}]")
            for number, question in enumerate(body.questions)
        ]
        decided = await decide(
            model,
            questions,
            text=input_text(body.input),
            instructions="",
            field="input",
            service=service,
        )
        least = getattr(model.spec.options, "min_label_mass", 0.0)
        answers: list[dict[str, Any]] = []
        for question, decision in zip(body.questions, decided.decisions, strict=True):
            answer = {"type": "refusal"}
            if decision.mass >= least:
                answer = _answer(question, decision)
            answers.append({"name": question.name, **answer})
        usage = {
            "input_tokens": decided.tokens_in,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": decided.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": decided.tokens_in + decided.tokens_out,
        }
        return {"model": model.name, "answers": answers, "usage": usage}


def openai_error(error: RequestError) -> tuple[int, Mapping[str, Any]]:
    """Return an error as OpenAI's clients read it."""
    status = 400 if error.status == 422 else error.status
    kind = "invalid_request_error" if status < 500 else "server_error"
    content = {"message": error.message, "type": kind, "param": error.field, "code": None}
    return status, {"error": content}


def _question(body: QuestionBody, *, where: str) -> Question:
    """A question out of the body. Raises RequestError."""
    listed = {"choices": body.choices, "levels": body.levels}
    needed = {"choice": "choices", "score": "levels"}.get(body.type)
    for name, entries in listed.items():
        if (entries is not None) != (name == needed):
            verb = "needs" if name == needed else "takes no"
            raise RequestError(422, f"a {body.type} {verb} {name}", field=f"{where}.{name}")
    options = [Option("Yes"), Option("No")]
    if body.choices is not None:
        values = [choice.value for choice in body.choices]
        if len(set(map(repr, values))) < len(values):
            raise RequestError(422, "two choices are equal", field=f"{where}.choices")
        options = [Option(str(choice.value), choice.description or "") for choice in body.choices]
    if body.levels is not None:
        options = [Option(level.label, level.description or "") for level in body.levels]
    text = parts_text(body.instructions, field=f"{where}.instructions")
    return Question(kind=body.type, text=text, options=tuple(options))


def _answer(body: QuestionBody, decision: Decision) -> dict[str, Any]:
    """The answer to a question, but for its name."""
    shares = decision.shares
    if body.choices is not None:
        values = [choice.value for choice in body.choices]
        listed: list[dict[str, Any]] = [
            {"value": value, "probability": share}
            for value, share in zip(values, shares, strict=True)
        ]
        chosen = {"choice": values[decision.best], "probabilities": listed}
        return {"type": "choice", **chosen, "confidence": decision.confidence}
    if body.levels is not None:
        listed = [
            {"value": place, "label": level.label, "probability": share}
            for place, (level, share) in enumerate(zip(body.levels, shares, strict=True))
        ]
        scored = {"score": decision.level, "probabilities": listed}
        return {"type": "score", **scored, "confidence": decision.confidence}
    return {"type": "predicate", "probability": shares[0]}
