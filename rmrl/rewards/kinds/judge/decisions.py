"""Decisions: questions with fixed answers about a text, answered by probabilities.

    text + question + labels -> one token at each node of the labels' tree -> p(each label)

OpenAI's /v1/decisions and vLLM's /v1/systemone ask whether a statement holds (predicate), which
option fits (choice), which level is reached (score). Nothing is written or
parsed. A question has the words that vLLM 0.32 gives it (question_types.py), so that one model says
the same behind both servers.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.rewards.kinds.judge.asked import ONE_TOKEN, VerdictTree

QuestionKind = Literal["predicate", "choice", "score"]
MOST_CHOICES = 255
MOST_LEVELS = 10
_ANSWER_WITH = {
    "predicate": "Answer with yes or no only.",
    "choice": "Answer with the letter of one option only.",
    "score": "Answer with the number of one level only.",
}
_NUMBERED = "Answer with the number of one option only."


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to choose."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with fixed answers."""

    kind: QuestionKind
    text: str
    options: tuple[Option, ...]
    """predicate: yes, then no. score: from the lowest level to the highest."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What the judge says for each option: yes and no, level numbers from 0, letters, or
        numbers from 1 where the letters are too few."""
        count = len(self.options)
        if self.kind == "predicate":
            return ("yes", "no")
        if self.kind == "score":
            return tuple(map(str, range(count)))
        if count <= len(string.ascii_uppercase):
            return tuple(string.ascii_uppercase[:count])
        return tuple(str(number + 1) for number in range(count))

    def shown(self) -> str:
        """Return the question as the judge reads it behind the text."""
        lines = [f"Question: {self.text}"] if self.text else []
        for label, option in zip(self.labels, self.options, strict=True):
            parts = [part for part in (option.name, option.description) if part]
            if option.name.lower() == label:
                parts = parts[1:]
            lines.append(": ".join([label, " - ".join(parts)]).removesuffix(": "))
        numbered = self.kind == "choice" and self.labels[0] == "1"
        lines.append(_NUMBERED if numbered else _ANSWER_WITH[self.kind])
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one question."""

    shares: tuple[float, ...]
    """Each option's probability among the options, in their order."""
    mass: float
    """Probability that the judge gives any answer."""
    begins_label: bool
    """Whether the judge's likeliest next token begins an answer."""

    @property
    def best(self) -> int:
        """Where the likeliest option stands, among equally likely ones the first."""
        return max(range(len(self.shares)), key=self.shares.__getitem__)

    @property
    def confidence(self) -> float:
        """The likeliest answer's probability over the whole vocabulary."""
        return self.shares[self.best] * self.mass

    @property
    def level(self) -> float:
        """Mean level, counted from 0, by the shares."""
        return sum(place * share for place, share in enumerate(self.shares))


def node_requests(
    token_ids: Sequence[int], tree: VerdictTree, *, prefix: int
) -> list[GenerateRequest]:
    """Return a request for each node in the labels' tree, behind a judge's input."""
    start = (*token_ids, *tree.prefix)
    return [
        GenerateRequest((*start, *node.path), ONE_TOKEN, choice_tokens=node.tokens, prefix=prefix)
        for node in tree.nodes
    ]


def read_decision(
    question: Question, tree: VerdictTree, answers: Sequence[TextOutput]
) -> Decision | None:
    """Return the decision from the answers at the nodes, the root's first. None: the engine
    reported no probability."""
    verdict = tree.verdict([answer.choice_logprobs for answer in answers])
    if verdict is None:
        return None
    token = answers[0].text.strip()
    begins_label = any(token and label.startswith(token) for label in question.labels)
    shares = tuple(verdict.shares[label] for label in question.labels)
    return Decision(shares, verdict.mass, begins_label)
