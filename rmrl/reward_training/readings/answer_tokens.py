"""Each answer's probability to a question, read from the language model's own head, as kind
`rubric` reads it.

An answer is one token. Each is its own row, so that training computes its log-probability as a
policy's. A question's rows differ in this token alone, so the model computes one of them
(rmrl.backends.prompt_units.computed_rows).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rmrl.errors import ConfigError, DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.readings.reading import Reading, Row
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion
from rmrl.rewards.kinds.rubric.criterion_inputs import criterion_inputs
from rmrl.rewards.kinds.rubric.find_criteria import read_criteria

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
    # transformers rounds logits below 64 to multiples of .25 in bfloat16.
    half: ClassVar[float] = 0.15
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
        criteria = list(map(_criterion, examples))
        inputs = criterion_inputs(
            items,
            [[each] for each in criteria],
            tokenizer,
            fenced=True,
            where="the training data",
        )
        answers = lru_cache(partial(ScoreTokens, tokenizer=tokenizer, where="answers"))
        rows: list[list[Row]] = []
        for example, criterion, (read,) in zip(examples, criteria, inputs, strict=True):
            try:
                ids = answers(criterion.choices).ids_after(read.text)
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
        last = len(outputs) - 1
        values = {str(place): place / last for place in range(len(outputs))}
        scored = ScoreTokens(values, None, where="").score([each[0] for each in outputs])
        return [math.nan if scored is None else scored[0]]

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Return each row's own question, where `gate_spec` reads it."""
        entries = [_entry(example.question, example.answers) for example in examples]
        return {"extra_info": [{"criteria": [entry]} for entry in entries]}

    def reward_spec(self, path: str, examples: Sequence[Example]) -> dict[str, Any]:
        """Return a reward with kind `rubric`. It lists the questions, or names the rows' field
        with them where they are many."""
        spec: dict[str, Any] = {"kind": "rubric", "path": path}
        questions = dict.fromkeys((example.question, example.answers) for example in examples)
        if len(questions) > _MOST_CRITERIA:
            return {**spec, "criteria_from": CRITERIA}
        return {**spec, "criteria": list(starmap(_entry, questions))}

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


def _entry(question: str, answers: Sequence[str]) -> dict[str, Any]:
    """Return the question as an entry in the kind's criteria."""
    return {"text": question, "choices": list(answers)}


def _criterion(example: Example) -> Criterion:
    """Return the question as the kind reads it. Raises DataError where it cannot."""
    try:
        (criterion,) = read_criteria(
            [_entry(example.question, example.answers)], where="the question"
        )
    except CriteriaError as error:
        raise DataError(f"{example.place}: {error}") from error
    return criterion
