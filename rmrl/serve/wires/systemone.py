"""Decisions in the form of vLLM's /v1/systemone, which `DecisionJudge` of verifiers speaks too.

    POST /v1/systemone    {"model", "state", "questions": {id: {...}}} -> answers, diagnostics

Rubrics and generative judges answer from their own engines, whatever the architecture. Images,
audio and videos are refused. Further fields have no effect.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rmrl.api import MOST_CHOICES, MOST_LEVELS, Decision, Option, Question, QuestionKind
from rmrl.serve.decide import decide
from rmrl.serve.judge_models import JudgeModel, judge_models, model_named
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.wires import WireRoute
from rmrl.serve.wires.decision_input import parts_text, state_text

MOST_QUESTIONS = 64
_KINDS: Mapping[str, QuestionKind] = {"noul": "predicate", "choice": "choice", "score": "score"}


class QuestionBody(BaseModel):
    """A question. `criteria`: options with their descriptions (choice), what true and false mean
    (noul), or the levels in order (score)."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["choice", "noul", "score"]
    instructions: Any = ""
    criteria: Any = None


class SystemOneBody(BaseModel):
    """Questions about one state. Further fields have no effect."""

    model_config = ConfigDict(extra="allow")

    model: str | None = Field(default=None, examples=["judge"])
    state: Any
    questions: dict[str, QuestionBody] = Field(min_length=1, max_length=MOST_QUESTIONS)
    instructions: str | None = None


class SystemOneAnswer(BaseModel):
    """vLLM's structured decision."""

    id: str
    object: str
    created: int
    model: str
    answers: dict[str, dict[str, Any]]
    usage: dict[str, int]
    diagnostics: dict[str, dict[str, Any]]


class SystemOneWire:
    """Implements `ServeWire`."""

    def __init__(self) -> None:
        self._models: dict[str, JudgeModel] = {}

    def routes(self, service: Service) -> Sequence[WireRoute]:
        """See `ServeWire.routes`. Raises ConfigError where no reward has an engine that writes."""
        self._models = judge_models(service, wire="systemone")
        return [
            WireRoute(
                path="/v1/systemone",
                body=SystemOneBody,
                answer=self._answer,
                answers=SystemOneAnswer,
                summary="Probabilities of the answers to questions, in vLLM's form",
                error=vllm_error,
            )
        ]

    async def _answer(self, body: SystemOneBody, service: Service) -> dict[str, Any]:
        model = model_named(self._models, body.model)
        for name in ("images", "audio", "videos"):
            if (body.model_extra or {}).get(name):
                raise RequestError(422, f"these models take no {name}; leave them out", field=name)
        questions: list[Question] = []
        for name, asked in body.questions.items():
            where = f"questions.{name}"
            text = parts_text(asked.instructions or "", field=f"{where}.instructions")
            options = _options(asked, where=f"{where}.criteria")
            questions.append(Question(kind=_KINDS[asked.type], text=text, options=options))
        decided = await decide(
            model,
            questions,
            text=state_text(body.state),
            instructions=body.instructions or "",
            field="state",
            service=service,
        )
        answers: dict[str, dict[str, Any]] = {}
        diagnostics: dict[str, dict[str, Any]] = {}
        for name, question, decision in zip(
            body.questions, questions, decided.decisions, strict=True
        ):
            answers[name] = _answer(question, decision)
            diagnostics[name] = {
                "label_mass": decision.mass,
                "argmax_is_label": decision.begins_label,
            }
        return {
            "id": f"decision-{uuid.uuid4().hex}",
            "object": "structured_decision",
            "created": int(time.time()),
            "model": model.name,
            "answers": answers,
            "usage": {"input_tokens": decided.tokens_in, "output_tokens": decided.tokens_out},
            "diagnostics": diagnostics,
        }


def vllm_error(error: RequestError) -> tuple[int, Mapping[str, Any]]:
    """Return an error as vLLM's clients read it."""
    status = 400 if error.status == 422 else error.status
    kind = f"{HTTPStatus(status).phrase.title().replace(' ', '')}Error"
    content = {"message": error.message, "type": kind, "param": error.field, "code": status}
    return status, {"error": content}


def _options(asked: QuestionBody, *, where: str) -> tuple[Option, ...]:
    """A question's options. Raises RequestError."""
    criteria = asked.criteria
    if asked.type == "noul":
        meaning = criteria or {}
        if not isinstance(meaning, Mapping) or not set(meaning) <= {"true", "false"}:
            raise RequestError(422, "give an object with true and false, or null", field=where)
        described = [("yes", meaning.get("true")), ("no", meaning.get("false"))]
        return tuple(Option(name, state_text(text or "")) for name, text in described)
    if asked.type == "score":
        if not isinstance(criteria, list) or not 2 <= len(criteria) <= MOST_LEVELS:
            raise RequestError(422, f"give a list of levels, 2 to {MOST_LEVELS}", field=where)
        return tuple(Option(state_text(level)) for level in criteria)
    if not isinstance(criteria, dict) or not 2 <= len(criteria) <= MOST_CHOICES:
        raise RequestError(422, f"give an object with 2 to {MOST_CHOICES} options", field=where)
    return tuple(Option(name, state_text(text or "")) for name, text in criteria.items())


def _answer(question: Question, decision: Decision) -> dict[str, Any]:
    """The answer to a question."""
    names = [option.name for option in question.options]
    if question.kind == "score":
        numbers = question.labels
        return {
            "type": "score",
            "score": decision.level,
            "legend": dict(zip(numbers, names, strict=True)),
            "probabilities": dict(zip(numbers, decision.shares, strict=True)),
            "confidence": decision.confidence,
        }
    probabilities = dict(zip(names, decision.shares, strict=True))
    answer: dict[str, Any] = {"type": "choice", "choice": names[decision.best]}
    if question.kind == "predicate":
        answer = {"type": "noul", "noul": decision.shares[0]}
    return {**answer, "probabilities": probabilities, "confidence": decision.confidence}
