"""Judges behind a server of decisions: OpenAI's POST /decisions, or POST /systemone as vLLM and
`rmrl serve` have it.

One post holds all questions about a response, up to the server's limit. Each answer becomes a
`TextOutput` with the log-probability of every choice, as an engine returns it. /systemone says how
likely the choices are altogether (`label_mass`). Elsewhere they count as certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import DecisionRequest, HTTPSpec
from rmrl.rewards.remote.values import with_extra
from rmrl.together import together


class SystemOneWire:
    """Wire of vLLM's structured decisions."""

    name = "systemone"
    path = "/systemone"
    most_questions = 64

    def __init__(self, spec: HTTPSpec) -> None:
        self._spec = spec
        self._client = HTTPClient(spec)

    async def submit(
        self, method: str, requests: Sequence[DecisionRequest]
    ) -> list[list[TextOutput]]:
        """See `Wire.submit`. The only method is "decide": one output for each question."""
        if method != "decide":
            raise RewardError(
                f"the wire {self.name} answers questions and has no method '{method}'; use wire:"
                " openai for a judge that writes text"
            )
        return await together(map(self._one, requests))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _one(self, request: DecisionRequest) -> list[TextOutput]:
        questions = request.questions
        most = self.most_questions
        parts = [questions[start : start + most] for start in range(0, len(questions), most)]
        outputs: list[TextOutput] = []
        for part in parts:
            body = {"model": self._spec.model, **self.body(request.text, part)}
            try:
                answer = await self._client.post(with_extra(body, self._spec), self.path)
                outputs += self._read(answer, part)
            except RemoteCallError as error:
                failed = TextOutput("", "", 0, 0, failure=error.failure, detail=error.detail)
                outputs += [failed] * len(part)
        return outputs

    def _read(
        self, answer: Any, questions: Sequence[tuple[str, tuple[str, ...]]]
    ) -> list[TextOutput]:
        """An output for each question. Raises RemoteCallError for an answer of another form."""
        outputs: list[TextOutput] = []
        try:
            usage = answer.get("usage") or {}
            tokens = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
            for number, (_, choices) in enumerate(questions):
                read = self.answer(answer, number)
                if read is None:
                    detail = f"{self._client.shown_url} declined to answer a question."
                    refusal = TextOutput("", "", *tokens, failure="judge_refused", detail=detail)
                    outputs.append(refusal)
                else:
                    shares, mass = read
                    logprobs = tuple(_log(shares[choice] * mass) for choice in choices)
                    outputs.append(TextOutput("", "stop", *tokens, choice_logprobs=logprobs))
                tokens = (0, 0)  # the whole post's stand with its first answer
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            text = self._client.shown(repr(answer))
            raise RemoteCallError(
                "provider_error",
                f"{self._client.shown_url} did not answer all questions ({error!r}): {text}.",
            ) from error
        return outputs

    def body(self, text: str, questions: Sequence[tuple[str, tuple[str, ...]]]) -> dict[str, Any]:
        """Return the post, but for the model's name."""
        entries: dict[str, Any] = {}
        for number, (question, choices) in enumerate(questions):
            entry: dict[str, Any] = {"type": "noul", "instructions": question}
            if not is_yes_or_no(choices):
                entry |= {"type": "choice", "criteria": dict.fromkeys(choices)}
            entries[str(number)] = entry
        return {"state": text, "questions": entries}

    def answer(
        self, answer: Mapping[str, Any], number: int
    ) -> tuple[Mapping[str, float], float] | None:
        """Return each choice's share, and how likely they are together. None: the server declined.
        Raises KeyError, TypeError or ValueError where the answer has another form."""
        each = answer["answers"][str(number)]
        diagnostics = (answer.get("diagnostics") or {}).get(str(number)) or {}
        shares = {name: float(share) for name, share in each["probabilities"].items()}
        if each["type"] == "noul":
            shares |= {name.capitalize(): share for name, share in shares.items()}
        return shares, float(diagnostics.get("label_mass", 1.0))


class DecisionsWire(SystemOneWire):
    """Wire of OpenAI's decisions."""

    name = "decisions"
    path = "/decisions"
    most_questions = 400

    def body(self, text: str, questions: Sequence[tuple[str, tuple[str, ...]]]) -> dict[str, Any]:
        entries: list[dict[str, Any]] = []
        for question, choices in questions:
            entry: dict[str, Any] = {"type": "predicate", "instructions": question}
            if not is_yes_or_no(choices):
                entry |= {"type": "choice", "choices": [{"value": choice} for choice in choices]}
            entries.append(entry)
        return {"input": text, "questions": entries}

    def answer(
        self, answer: Mapping[str, Any], number: int
    ) -> tuple[Mapping[str, float], float] | None:
        each = answer["answers"][number]
        if each["type"] == "refusal":
            return None
        if each["type"] == "predicate":
            holds = float(each["probability"])
            return {"Yes": holds, "yes": holds, "No": 1 - holds, "no": 1 - holds}, 1.0
        pairs = [(pair["value"], float(pair["probability"])) for pair in each["probabilities"]]
        return dict(pairs), 1.0


def is_yes_or_no(choices: Sequence[str]) -> bool:
    """Return whether the choices are Yes and No, in any order."""
    return sorted(choices) in (["No", "Yes"], ["no", "yes"])


def _log(probability: float) -> float:
    if not 0 <= probability <= 1 + 1e-6:
        raise ValueError(f"{probability} is no probability")
    return math.log(probability) if probability else -math.inf
