"""What every kind of reward must hold, over all names of the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.engines import build_engine
from rmrl.rewards.engines.merge import MergedCalls
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.rule_pool import RulePool
from rmrl.rewards.spec import RewardSpec
from rmrl.types import RewardKind, ScoreResult
from tests.rewards import parts

SPECS: dict[str, Callable[[Path], RewardSpec]] = {
    "rule": lambda folder: parts.rule(folder, "r", "return None if 'skip' in solution_str else len(solution_str)"),
    "generative": partial(parts.judge, name="judge"),
    "bradley_terry": lambda folder: parts.scalar(),
}
TEXTS = ["a", "bb", "", "a", "é 漢字 🙂 \u202e\x00", "skip", "</s><|im_end|>", "x" * 20_000]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return parts.chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def pool() -> Iterator[RulePool]:
    with RulePool(1) as pool:
        yield pool


@pytest.fixture(params=list(REWARD_KINDS))
def kind(request: pytest.FixtureRequest, tokenizer: Any, pool: RulePool, tmp_path: Path) -> Callable[[], RewardKind]:
    """Makes the kind, ready to score once."""
    spec = SPECS[request.param](tmp_path)

    def make() -> RewardKind:
        engine: Any = build_engine(spec.engine) if spec.engine else None
        if engine is not None:
            engine.start()

        async def run(method: str, requests: list[Any]) -> list[Any]:
            return getattr(engine, method)(requests)

        context = KindContext(pool=pool, tokenizer=parts.always(tokenizer), calls=MergedCalls(run, participants=1))
        return REWARD_KINDS[spec.kind].from_spec(spec, context)

    return make


async def scored(kind: Callable[[], RewardKind], texts: list[str]) -> list[ScoreResult]:
    return await asyncio.wait_for(kind().score(parts.items(*texts)), 60)


async def test_one_result_per_item_and_a_value_exactly_when_ok(kind: Callable[[], RewardKind]):
    results = await scored(kind, TEXTS)
    assert len(results) == len(TEXTS)
    assert all((r.value is None) == (r.status != "ok") for r in results)
    assert all(r.detail for r in results if r.status not in ("ok", "unparseable"))
    assert sum(r.status == "ok" for r in results) >= 5


async def test_results_follow_their_items(kind: Callable[[], RewardKind]):
    order = [3, 7, 0, 6, 1, 5, 4, 2]
    straight, shuffled = await scored(kind, TEXTS), await scored(kind, [TEXTS[i] for i in order])
    assert [(r.value, r.status) for r in shuffled] == [(straight[i].value, straight[i].status) for i in order]
    assert len({(r.value, r.status) for r in straight}) > 2


async def test_equal_items_get_equal_results(kind: Callable[[], RewardKind]):
    results = await scored(kind, TEXTS)
    assert (results[0].value, results[0].status) == (results[3].value, results[3].status)


async def test_no_items(kind: Callable[[], RewardKind]):
    assert await scored(kind, []) == []
