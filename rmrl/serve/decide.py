"""Decisions of a judge model on questions about one text, for the wires that take them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rmrl.api import (
    Decision,
    GenerateRequest,
    Question,
    TextOutput,
    VerdictTree,
    neutraliser,
    node_requests,
    read_decision,
    tokenize_chats,
)
from rmrl.errors import ConfigError, RewardFunctionError
from rmrl.serve.judge_models import JudgeModel, check_answered
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service

_prefixes = itertools.count(-1, -1)
"""Below 0: those of rubrics are above."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions in their questions' order, and what they cost."""

    decisions: tuple[Decision, ...]
    tokens_in: int
    tokens_out: int


async def decide(
    model: JudgeModel,
    questions: Sequence[Question],
    *,
    text: str,
    instructions: str,
    field: str,
    service: Service,
) -> Decided:
    """Ask all questions about `text` at once. `instructions` are the system turn, "": none.
    `field`: the text's place in the body.

    Raises RequestError for labels that the model's tokenizer cannot tell apart, for a text that is
    too long, and where the engine does not answer.
    """
    trees, requests = await asyncio.to_thread(
        _requests, model, questions, text, instructions, field, service
    )
    flat = [request for group in requests for request in group]
    try:
        outputs = await service.ask(model.spec.name, "generate", flat, role=model.role)
    except ConfigError as error:
        raise RequestError(422, f"the engine refuses this request: {error}") from error
    answers: list[TextOutput] = [samples[0] for samples in outputs]
    for answer in answers:
        check_answered(answer, field=field)
    rest = iter(answers)
    decisions: list[Decision] = []
    for question, tree, group in zip(questions, trees, requests, strict=True):
        own = [next(rest) for _ in group]
        decision = read_decision(question, tree, own)
        if decision is None:
            raise RequestError(503, "the engine reported no probability of an answer")
        decisions.append(decision)
    return Decided(
        tuple(decisions),
        sum(answer.tokens_in for answer in answers),
        sum(answer.tokens_out for answer in answers),
    )


def _requests(
    model: JudgeModel,
    questions: Sequence[Question],
    text: str,
    instructions: str,
    field: str,
    service: Service,
) -> tuple[list[VerdictTree], list[list[GenerateRequest]]]:
    """Each question's labels as tokens, and its requests."""
    tokenizer = service.scorer.tokenizer(model.spec.engines[model.role].path)
    # A stranger's text must not end its turn.
    neutral = neutraliser(tokenizer, fences=False)
    system = [{"role": "system", "content": neutral(instructions)}] if instructions else []
    chats: list[list[dict[str, str]]] = []
    for question in questions:
        content = neutral(f"{text}\n\n{question.shown()}")
        chats.append([*system, {"role": "user", "content": content}])
    try:
        # The answer is the judge's next token, so a judge that can think must not begin to.
        inputs = tokenize_chats(chats, tokenizer, where="the request", enable_thinking=False)
    except RewardFunctionError as error:
        raise RequestError(422, str(error), field=field) from error
    prefix = next(_prefixes)
    trees: dict[tuple[str, ...], VerdictTree] = {}
    requests: list[list[GenerateRequest]] = []
    for number, (question, read) in enumerate(zip(questions, inputs, strict=True)):
        if question.labels not in trees:
            try:
                trees[question.labels] = VerdictTree("", question.labels, tokenizer, where="labels")
            except ConfigError as error:
                message = f"the tokenizer of {model.name} has no tokens of their own for the labels"
                raise RequestError(422, message, field=f"questions[{number}]") from error
        tree = trees[question.labels]
        model.check_length(len(read.token_ids) + tree.length, field=field)
        requests.append(node_requests(read.token_ids, tree, prefix=prefix))
    return [trees[question.labels] for question in questions], requests
