"""A score for each response, read from a head behind a critique on it, as kind `critique` reads
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rmrl.reward_training.example import Example
from rmrl.reward_training.readings.last_token import LastToken
from rmrl.reward_training.readings.reading import Row
from rmrl.rewards.kinds.critique.scorer_reads import scorer_reads
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.rewards.reads.turns import prompt_turns, turns_text
from rmrl.types import Message, ScoreItem

GIVEN = "rmrl.reward_training.critics:GivenCritiques"


class CritiqueTurn(LastToken):
    """A row is a conversation that ends with the critique. Before critiques are written, theirs are
    empty."""

    ensembles: ClassVar[bool] = False
    usage: ClassVar[str] = """
model = AutoModelForSequenceClassification.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
remark = {"role": "user", "content": "A critique of the reply above:\\n" + critique}
text = tokenizer.apply_chat_template([*messages, reply, remark], tokenize=False)
tokens = tokenizer(text, add_special_tokens=False, return_tensors="pt")
score = model(**tokens).logits[0]
""".strip()

    def __init__(
        self, outputs: Sequence[str], weights: Mapping[str, float], critic: Mapping[str, Any]
    ) -> None:
        """`critic`: the reward's entries that name and instruct the critic."""
        super().__init__(outputs, weights)
        self._critic = dict(critic)

    def rows(self, examples: Sequence[Example], tokenizer: Any) -> list[list[Row]]:
        """Return a row for each response."""
        neutral = neutraliser(tokenizer)
        reads: list[Any] = []
        for example in examples:
            responses = list(map(neutral, example.responses))
            critiques = list(map(neutral, example.critiques)) or [""] * len(responses)
            reads += scorer_reads(example.score_items, responses, critiques, tokenizer)
        return self._rows(examples, reads, tokenizer)

    def reward_spec(self, path: str, examples: Sequence[Example]) -> dict[str, Any]:
        """Return a `critique` reward with the same critic."""
        del examples
        spec: dict[str, Any] = {"kind": "critique", **self._critic, "scorer": {"path": path}}
        critic = Path(str(spec.get("path", "")))
        if "path" in spec and critic.is_dir():
            spec["path"] = str(critic.resolve())
        return spec

    def gate_spec(self, path: str) -> dict[str, Any]:
        """Return a reward that reads the critiques from the rows: another engine would write
        others."""
        return {"kind": GIVEN, "path": path}

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Return each response's critique."""
        by_talk = [
            dict(zip(map(talk_of, each.score_items), each.critiques, strict=True))
            for each in examples
        ]
        return {"extra_info": [{"critiques": each} for each in by_talk]}


def talk_of(item: ScoreItem) -> str:
    """Return the text that a critique is about. Equal responses behind other turns differ."""
    reply: Message = {"role": "assistant", "content": item.response}
    return turns_text((*prompt_turns(item.rm_prompt), reply)).text
