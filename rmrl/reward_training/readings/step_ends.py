"""A score for each step in a response, read from a head at the step's last token, as kind `process`
reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rmrl.errors import DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.readings.reading import Reading, Row
from rmrl.rewards.kinds.process.parts import cut_parts, step_score
from rmrl.rewards.kinds.process.step_input import StepForm, step_input

if TYPE_CHECKING:
    from rmrl.reward_training.labelled_batch import Item

_FORM = StepForm()


class StepEnds(Reading):
    """A row is a conversation that ends with the response. Its outputs are the steps' logits."""

    ensembles: ClassVar[bool] = False
    # vLLM takes an adapter's own head for scores at the last token alone.
    merged_only: ClassVar[frozenset[str]] = frozenset({"vllm"})
    pipeline: ClassVar[str] = "token-classification"
    usage: ClassVar[str] = """
model = AutoModelForSequenceClassification.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
text = tokenizer.apply_chat_template(messages, tokenize=False)  # a blank line between two steps
tokens = tokenizer(text, add_special_tokens=False, return_tensors="pt")
hidden = model.base_model(**tokens).last_hidden_state[0]
scores = model.score(hidden).sigmoid()  # read the last token of each step
""".strip()

    def rows(self, examples: Sequence[Example], tokenizer: Any) -> list[list[Row]]:
        """Return a row for each example, which has one response. Raises DataError where the
        response has more or fewer steps than labels."""
        rows: list[list[Row]] = []
        for example in examples:
            (response,) = example.responses
            parts = cut_parts(response, _FORM.separator, tokenizer)
            if len(parts.texts) != len(example.step_labels):
                raise DataError(
                    f"{example.place}: {len(example.step_labels)} labels, and the response has"
                    f" {len(parts.texts)} steps where a blank line ends each: a step without a"
                    " letter or digit is none; mend or drop the row"
                )
            rendered, positions = step_input(
                example.score_items[0], parts, tokenizer, _FORM, where="the training data"
            )
            if rendered.empty or len(set(positions)) < len(positions):
                raise DataError(
                    f"{example.place}: two steps end in the same token of the model's, so no score"
                    " belongs to one of them; mend or drop the row"
                )
            rows.append([Row(np.asarray(rendered.token_ids, np.int32), positions)])
        return rows

    def outputs(self, values_Nn: np.ndarray) -> list[float]:
        """Return each step's logit."""
        return values_Nn[:, 0].tolist()

    def scores(self, outputs: Sequence[Sequence[float]]) -> list[float]:
        """Return the lowest probability among the steps."""
        return [min(step_score([value], 0, "auto") for value in values) for values in outputs]

    def reward_spec(self, path: str, examples: Sequence[Example]) -> dict[str, Any]:
        """Return a `process` reward with one score per response."""
        del examples
        return {"kind": "process", "path": path, "to_tokens": False}

    def plain_outputs(self, model: Any, item: Item) -> list[list[float]]:
        """Return the head's logits at the steps' tokens."""
        import torch

        outputs: list[list[float]] = []
        for row, reads in zip(item.tokens, item.reads, strict=True):
            tokens = torch.tensor([row.tolist()], device=model.device)
            hidden = model.base_model(input_ids=tokens).last_hidden_state[0]
            logits = model.score(hidden[item.shared + np.flatnonzero(reads)])[:, 0].float()
            assert all(map(math.isfinite, logits.tolist()))
            outputs.append(logits.tolist())
        return outputs
