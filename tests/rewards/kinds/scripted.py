"""Calls that answer from a script, and specs of model rewards, for tests of the kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.dropins.dropin import DropIn, load_dropin
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling
from tests.rewards.parts import ENGINE, always

GREEDY = Sampling(max_tokens=16, temperature=0.0)


class Scripted:
    """A way to an engine that answers each request with `answer(request)` and writes down what it
    was asked."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, list[Any], bool]] = []

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        self.asked.append((method, list(requests), deterministic))
        return [self.answer(request) for request in requests]

    @property
    def requests(self) -> list[Any]:
        """All requests of all calls."""
        return [request for _, requests, _ in self.asked for request in requests]


def said(text: str, finish_reason: str = "stop", **more: Any) -> TextOutput:
    """A judge's text; 10 tokens read, one written for each character."""
    return TextOutput(text, finish_reason, 10, len(text), **more)


def dropin(folder: Path, code: str) -> DropIn:
    path = folder / "d.py"
    path.write_text(code, encoding="utf-8")
    return load_dropin(path, "d")


def spec(kind: str, *, roles: Sequence[str] = ("main",), **entries: Any) -> RewardSpec:
    """A model reward named "r" with an engine for each role; greedy unless told otherwise."""
    runners = {"main": "generate", "scorer": "pooling", "meta": "pooling"}
    if kind == "bradley_terry":
        runners["main"] = "pooling"
    engines = {
        role: dataclasses.replace(ENGINE, path=f"/models/{role}", runner=runners[role])
        for role in roles
    }  # type: ignore[arg-type]
    return RewardSpec(
        **{
            "name": "r",
            "kind": kind,
            "weight": 1.0,
            "engines": engines,
            "sampling": GREEDY,
            "options": REWARD_KINDS[kind].Options(),
            **entries,
        }
    )


def context(tokenizer: Any, **calls: Scripted) -> KindContext:
    return KindContext(pool=RulePool(1), tokenizer=always(tokenizer), calls=calls)
