"""What a check is given, and the verdicts it can give."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rmrl.types import Ragged, TrainBatch

Numbers = dict[str, float]


class Skip(Exception):  # noqa: N818 (it is no error)
    """This machine cannot run the check; the message says what it lacks."""


class Failed(Exception):  # noqa: N818 (a verdict)
    """The check ran and its numbers are wrong."""

    def __init__(self, reason: str, numbers: Numbers) -> None:
        super().__init__(reason)
        self.numbers = numbers


def require(holds: bool, reason: str, numbers: Numbers) -> None:
    """Raise Failed unless `holds`."""
    if not holds:
        raise Failed(reason, numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """One machine and one model."""

    model: str
    """Checkpoint folder."""
    folder: str
    """For files of the check."""
    device: Literal["cpu", "cuda"]
    dtype: str
    """Of compute."""
    rows: int
    """Of a batch."""
    longest: int
    """Tokens of its longest prompt, and of its longest response."""
    threads: int = 1
    temperature: float = 0.8

    def write(self, path: Path) -> Path:
        """As JSON; `read` is the inverse."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    def batch(self, *, seed: int = 0, **streams: Any) -> TrainBatch:
        """Random rows of many lengths, every response token counted; advantage 1 unless `streams`
        say more."""
        draw = np.random.default_rng(seed)
        vocabulary = json.loads((Path(self.model) / "config.json").read_text(encoding="utf-8"))[
            "vocab_size"
        ]
        prompts, responses = draw.integers(4, self.longest + 1, (2, self.rows))
        tokens = [
            draw.integers(5, min(vocabulary, 30000), p + r)
            for p, r in zip(prompts, responses, strict=True)
        ]
        ones = Ragged.of([np.ones(r) for r in responses], np.float32)
        return TrainBatch(
            tokens=Ragged.of(tokens, np.int64),
            response_mask=ones,
            **{"advantages": ones, **streams},
        )


def read(path: Path) -> Rig:
    """A rig from its file."""
    return Rig(**json.loads(path.read_text(encoding="utf-8")))


def apart(left: Ragged, right: Ragged) -> Numbers:
    """Mean and largest absolute difference over all tokens."""
    difference = np.abs(left.values.astype(np.float64) - right.values.astype(np.float64))
    return {"mean": float(difference.mean()), "max": float(difference.max())}


def named(prefix: str, numbers: Numbers) -> Numbers:
    """`prefix` before every name."""
    return {f"{prefix}_{name}": value for name, value in numbers.items()}
