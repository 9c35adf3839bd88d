"""What both sides do: model, questions, sizes. One JSON file tells it to each of their
processes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ENDINGS = (
    "Answer with the number only.",
    "Answer in one short sentence.",
    "Explain your steps, one a line.",
)
NOUNS = ("apples", "stamps", "coins", "marbles", "books", "shells", "pencils", "cards")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of one process. Defaults are those of the command line."""

    model: str
    """Checkpoint folder."""
    task: str
    """Name in TASKS."""
    prompts: int
    """Per step."""
    n: int
    """Responses per prompt."""
    max_tokens: int
    steps: int
    """Measured."""
    warmup: int
    """Steps before those."""
    dtype: str
    """Of compute, in sampling and training alike; master weights are float32."""
    threads: int
    max_prompt_tokens: int = 128
    temperature: float = 1.0
    lr: float = 1e-6
    weight_decay: float = 0.01
    seed: int = 0

    @property
    def responses(self) -> int:
        """Of one step."""
        return self.prompts * self.n

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for every prompt of the run, in order."""
        draw = random.Random(self.seed)
        asked = [TASKS[self.task](draw) for _ in range(self.prompts * (self.warmup + self.steps))]
        return [
            {
                "prompt": [{"role": "user", "content": question}],
                "data_source": "arithmetic",
                "reward_model": {"style": "rule", "ground_truth": answer},
            }
            for question, answer in asked
        ]

    def write(self, path: Path) -> Path:
        """As JSON; `read` is the inverse."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def read(path: Path) -> Job:
    """A job from its file."""
    return Job(**json.loads(path.read_text(encoding="utf-8")))


def sums(draw: random.Random) -> tuple[str, str]:
    """All that .models/tiny-arith knows: `7+12=`."""
    a, b = draw.randint(0, 19), draw.randint(0, 19)
    return (f"{a}+{b}=", str(a + b)) if draw.random() < 0.5 else (f"{a}-{b}=", str(a - b))


def worded(draw: random.Random) -> tuple[str, str]:
    """Some sentences and a question; answers of a few tokens up to all there are."""
    noun, numbers = draw.choice(NOUNS), [draw.randint(2, 30) for _ in range(draw.randint(2, 6))]
    gifts = " ".join(
        f"Then {draw.choice(('a friend', 'a neighbour', 'her aunt'))} gives her {k} more."
        for k in numbers[1:]
    )
    question = (
        f"Mia has {numbers[0]} {noun}. {gifts} How many {noun} has she now? {draw.choice(ENDINGS)}"
    )
    return question, str(sum(numbers))


TASKS: dict[str, Callable[[random.Random], tuple[str, str]]] = {"sums": sums, "worded": worded}
