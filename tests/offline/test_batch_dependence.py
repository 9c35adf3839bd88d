"""`rmrl check` measures how far scores in reduced precision move with their batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rmrl.data.responses import answered_rows
from rmrl.inference.reward_engine_base import PoolingRequest, ValueOutput
from rmrl.offline.batch_dependence import compared
from rmrl.offline.response_rows import response_rows
from rmrl.offline.show import for_looking, show
from rmrl.types import ScoreResult
from tests.offline.conftest import Bench
from tests.support import fakes
from tests.support.fake_reward_engine import FakeEngine


class MovingEngine(FakeEngine):
    """A fake engine whose logits are 0.25 higher in batches than alone, as rounding makes them in a
    real one."""

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        outputs = super().classify(requests)
        return [
            dataclasses.replace(output, value=(0.25 if len(requests) > 1 else 0.0))
            for output in outputs
        ]


MOVING = "reward.engine.name='tests.offline.test_batch_dependence:MovingEngine'"


async def shown(bench: Bench, *overrides: str, rows: int = 3) -> str:
    scalar = (
        "reward.models=[quality]",
        f"reward.specs.quality.path={bench.folder}/scalar-model",
        MOVING,
    )
    checked = for_looking(
        bench.checked(f"data.files={bench.folder}/rows.jsonl", *scalar, *overrides, needs_out=False)
    )
    answered = response_rows(list(answered_rows(checked.config.data)))
    scorer = bench.scorer(checked)
    try:
        return await show(scorer, answered[:1], compared=answered[:rows])
    finally:
        await scorer.close()


async def test_a_reward_in_bfloat16_has_its_shift_measured(bench: Bench) -> None:
    bench.rows("a", "a a", "a a a")  # of different lengths: equal requests are computed once
    text = await shown(bench, "reward.engine.dtype=bfloat16")
    assert (
        "precision\n  quality computes in bfloat16: over 3 rows, scored together and one by one"
        in text
    )
    assert "scores differ by up to 0.25; engine.dtype=float32" in text


async def test_one_row_cannot_measure_it_and_says_so(bench: Bench) -> None:
    bench.rows("a")
    text = await shown(bench, "reward.engine.dtype=bfloat16", rows=1)
    assert (
        "quality computes in bfloat16: its scores may depend on the batch; this was not measured"
        in text
    )


async def test_float32_and_batch_invariant_engines_say_nothing(bench: Bench) -> None:
    bench.rows("a", "b", "c")
    assert "precision\n" not in await shown(bench)  # auto: float32 on CPU
    assert "precision\n" not in await shown(
        bench, "reward.engine.dtype=bfloat16", "reward.engine.batch_invariant=True"
    )


def test_the_start_table_and_the_memory_plan_name_the_type(bench: Bench) -> None:
    scalar = ("reward.models=[quality]", f"reward.specs.quality.path={bench.folder}/scalar-model")
    bench.checked(f"data.files={bench.rows('a')}", f"out={bench.folder}/s.jsonl", *scalar)
    notices = "\n".join(bench.notices)
    assert f"scalar-model ({fakes.REWARD_ENGINE} pooling, float32, auto)" in notices
    assert f"scalar-model {fakes.REWARD_ENGINE}/pooling float32, auto" in notices


def test_verdicts_and_texts_that_changed_are_counted() -> None:
    together = [
        ScoreResult(value=1.0, status="ok", raw_text="a"),
        ScoreResult(value=None, status="unparseable", raw_text="b"),
    ]
    apart = [
        ScoreResult(value=0.5, status="ok", raw_text="a"),
        ScoreResult(value=2.0, status="ok", raw_text="c"),
    ]
    words = compared(together, apart, texts=True)
    assert words.startswith(
        "over 2 rows, scored together and one by one, scores differ by up to 0.5"
    )
    assert words.endswith(", 1 of its texts differ, verdicts that exist in one case only: 1")
