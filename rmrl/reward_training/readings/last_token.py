"""A score for each response, read from a head at its last token, as kind `bradley_terry` reads
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rmrl.reward_training.example import Example
from rmrl.reward_training.readings.reading import Reading, Row
from rmrl.rewards.kinds.bradley_terry.reward import conversations
from rmrl.rewards.kinds.shared.tokenizing import tokenize_all
from rmrl.rewards.kinds.shared.untrusted import neutraliser

if TYPE_CHECKING:
    from rmrl.reward_training.labelled_batch import Item


class LastToken(Reading):
    """A row is a conversation that ends with the response."""

    usage: ClassVar[str] = """
model = AutoModelForSequenceClassification.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
text = tokenizer.apply_chat_template(messages, tokenize=False)  # ends with the assistant's turn
tokens = tokenizer(text, add_special_tokens=False, return_tensors="pt")
score = model(**tokens).logits[0]
""".strip()

    def rows(self, examples: Sequence[Example], tokenizer: Any) -> list[list[Row]]:
        """Return a row for each response."""
        neutral = neutraliser(tokenizer)
        reads: list[Any] = []
        for example in examples:
            reads += conversations(example.score_items, tokenizer, neutral)
        return self._rows(examples, reads, tokenizer)

    def _rows(
        self, examples: Sequence[Example], reads: Sequence[Any], tokenizer: Any
    ) -> list[list[Row]]:
        rendered = iter(
            tokenize_all(reads, tokenizer, generation_prompt=False, where="the training data")
        )
        rows: list[list[Row]] = []
        for example in examples:
            tokens = [np.asarray(next(rendered).token_ids, np.int32) for _ in example.responses]
            rows.append([Row(each, (len(each) - 1,)) for each in tokens])
        return rows

    def scores(self, outputs: Sequence[Sequence[float]]) -> list[float]:
        """Return each response's only output, or the weighted sum over the outputs."""
        if not self._weights:
            return [values[0] for values in outputs]
        places = {self._outputs.index(name): weight for name, weight in self._weights.items()}
        return [
            sum(weight * values[place] for place, weight in places.items()) for values in outputs
        ]

    def reward_spec(self, path: str, examples: Sequence[Example]) -> dict[str, Any]:
        """Return a `bradley_terry` reward."""
        del examples
        spec: dict[str, Any] = {"kind": "bradley_terry", "path": path}
        if len(self._outputs) > 1:
            spec |= {"label_weights": dict(self._weights), "activation": "none"}
        return spec

    def plain_outputs(self, model: Any, item: Item) -> list[list[float]]:
        """Return the logits that the classifier gives."""
        import torch

        return [
            model(input_ids=torch.tensor([row.tolist()], device=model.device)).logits[0].tolist()
            for row in item.tokens
        ]
