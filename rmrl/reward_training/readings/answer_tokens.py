"""The probability of each answer to a question, read from the language model's own head, as kind
`rubric` reads it.

An answer is one token. Each is a row of its own, so that training computes its log-probability as a
policy's. The rows of a question differ in this token alone, and share all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rmrl.errors import ConfigError, DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.readings.reading import Reading, Row
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
from rmrl.rewards.kinds.rubric.criteria import Criterion
from rmrl.rewards.kinds.rubric.criterion_inputs import criterion_inputs

if TYPE_CHECKING:
    from rmrl.reward_training.labelled_batch import Item

_MOST_CRITERIA = 16
"""Questions that a section lists. With more, each row brings its own."""
CRITERIA = "extra_info.criteria"


class AnswerTokens(Reading):
    """A row ends with an answer. Its output is the logarithm of that token's probability."""

    role: ClassVar[Literal["actor", "critic"]] = "actor"
    model_class: ClassVar[str] = "AutoModelForCausalLM"
    pipeline: ClassVar[str] = "text-generation"
    ensembles: ClassVar[bool] = False
    # Differences of log-probabilities, whose normaliser is a sum over the vocabulary.
    exact: ClassVar[float] = 5e-5
    half: ClassVar[float] = 0.05
    usage: ClassVar[str] = """
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
# `text`: the input that `rmrl check` shows for the reward below
tokens = tokenizer(text, add_special_tokens=False, return_tensors="pt")
answers = tokenizer.convert_tokens_to_ids(["No", "Yes"])
shares = model(**tokens).logits[0, -1, answers].softmax(-1)
""".strip()

    def rows(self, examples: Sequence[Example], tokenizer: Any) -> list[list[Row]]:
        """Return a row for each answer. Raises DataError where an answer is not one token."""
        items = [example.score_items[0] for example in examples]
        criteria = [[_criterion(example)] for example in examples]
        inputs = criterion_inputs(
            items, criteria, tokenizer, fenced=True, where="the training data"
        )
        tokens_of: dict[tuple[str, ...], ScoreTokens] = {}
        rows: list[list[Row]] = []
        for example, (read,) in zip(examples, inputs, strict=True):
            answers = tokens_of.get(example.answers)
            if answers is None:
                values = dict.fromkeys(example.answers, 0.0)
                answers = ScoreTokens(values, tokenizer, where="answers")
                tokens_of[example.answers] = answers
            try:
                ids = answers.ids_after(read.text)
            except ConfigError as error:
                raise DataError(f"{example.place}: {'; '.join(error.problems)}") from error
            rows.append(
                [
                    Row(np.asarray((*read.token_ids, each), np.int32), (len(read.token_ids),))
                    for each in ids
                ]
            )
        return rows

    def scores(self, outputs: Sequence[Sequence[float]]) -> list[float]:
        """Return the answer's expected value: the first is worth 0 and the last 1."""
        shares = shares_of([values[0] for values in outputs])
        last = len(outputs) - 1
        return [sum(share * place / last for place, share in enumerate(shares))]

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Return each row's own question, where `gate_spec` reads it."""
        column: list[Any] = []
        for example in examples:
            criterion = {"text": example.question, "choices": list(example.answers)}
            column.append({"criteria": [criterion]})
        return {"extra_info": column}

    def reward_spec(self, path: str, examples: Sequence[Example]) -> dict[str, Any]:
        """Return a reward with kind `rubric`. It lists the questions, or names the rows' field
        with them where they are many."""
        spec: dict[str, Any] = {"kind": "rubric", "path": path}
        questions = dict.fromkeys((example.question, example.answers) for example in examples)
        if len(questions) > _MOST_CRITERIA:
            return {**spec, "criteria_from": CRITERIA}
        criteria = [{"text": text, "choices": list(answers)} for text, answers in questions]
        return {**spec, "criteria": criteria}

    def gate_spec(self, path: str) -> dict[str, Any]:
        """Return a reward that asks each row its own question."""
        return {"kind": "rubric", "path": path, "criteria_from": CRITERIA}

    def plain_outputs(self, model: Any, item: Item) -> list[list[float]]:
        """Return the answers' log-probabilities behind the question."""
        import torch

        *question, _ = item.tokens[0].tolist()
        answers = [int(row[-1]) for row in item.tokens]
        logits_V = model(input_ids=torch.tensor([question], device=model.device)).logits[0, -1]
        logprobs = logits_V.float().log_softmax(-1)[answers].tolist()
        return [[value] for value in logprobs]


def shares_of(logprobs: Sequence[float]) -> list[float]:
    """Return each answer's share in the probability that all answers have together."""
    highest = max(logprobs)
    weights = [math.exp(value - highest) for value in logprobs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _criterion(example: Example) -> Criterion:
    last = max(len(example.answers) - 1, 1)
    choices = tuple((text, place / last) for place, text in enumerate(example.answers))
    return Criterion(text=example.question, choices=choices)
