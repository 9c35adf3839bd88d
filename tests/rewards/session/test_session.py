"""What is asked, of whom, on which rows: gates, products, ensembles, sources, streaming."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.errors import RewardFunctionError, StallError
from rmrl.rewards.kinds.ensemble.reward import Ensemble
from rmrl.rewards.session.order import graph_of
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.session.session import BusyTime, Session
from rmrl.rewards.specs.spec import OnMissing, RewardSpec, SourceWeights
from rmrl.types import ScoreItem, ScoreResult
from tests.patience import PATIENCE_S
from tests.rewards.parts import JUDGE, engine, judge, make_scorer, rows, rule, scalar
from tests.rewards.session.test_broker import make

RECORDING = engine(name="tests.rewards.parts:RecordingEngine", kwargs={"text": "7"})
POOLED = engine(name="tests.rewards.parts:RecordingEngine", kwargs={"text": "7"}, pool="judges")
Opened = Callable[..., Any]


@pytest.fixture
def opened(tokenizer: Any) -> Opened:
    """opened(specs, ...): a scorer for the time of the block."""

    @asynccontextmanager
    async def run(specs: Sequence[RewardSpec], **settings: Any) -> AsyncIterator[Scorer]:
        scorer = make_scorer(specs, tokenizer, **settings)
        try:
            yield scorer
        finally:
            await scorer.close()

    return run


def plain_judge(folder: Path, name: str = "judge") -> RewardSpec:
    """One whose inputs are rendered response by response: no rm_preprocess compares them."""
    spec = judge(folder, name, engine=RECORDING)
    assert spec.dropin is not None
    return dataclasses.replace(spec, dropin=dataclasses.replace(spec.dropin, preprocess=None))


def reached(engine_calls: list[Any]) -> int:
    """Requests that reached a model."""
    return sum(len(requests) for _, requests in engine_calls)


async def test_how_many_verdicts_are_there_while_rewards_score(
    opened: Opened, tmp_path: Path
) -> None:
    may_end = tmp_path / "may end"
    wait = f"import pathlib, time\n    while not pathlib.Path({str(may_end)!r}).exists():"
    slow = rule(tmp_path, "slow", f"{wait}\n        time.sleep(0.01)\n    return 1")
    quick = rule(tmp_path, "quick", "return 1")
    async with opened([quick, slow], workers=3) as scorer:
        assert scorer.share_done() == 0.0
        session = scorer.open()
        for position, row in enumerate(rows("a", "b")):
            session.add(position, row)
        assert (session.verdicts, session.verdicts_wanted) == (0, 4)
        finishing = asyncio.create_task(scorer.finish(session))
        await _until(lambda: session.verdicts > 0)
        assert (session.verdicts, scorer.share_done()) == (2, 0.5)
        may_end.touch()
        await finishing
        assert (session.verdicts, scorer.share_done()) == (4, 0.0)


async def test_a_closed_gate_keeps_the_model_from_being_asked(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    gate = rule(tmp_path, "json", "return float(solution_str.startswith('{'))", weight=0.5)
    async with opened([gate, judge(tmp_path, engine=RECORDING, gates=("json",))]) as scorer:
        batch = await scorer.score(rows("{a", "b", "{c", "d"))
    assert reached(engine_calls) == 2  # 2 of 4 hold
    assert batch.scores.status_BC[:, 1].tolist() == ["ok", "skipped", "ok", "skipped"]
    assert batch.rewards_B.tolist() == [7.5, 0.0, 7.5, 0.0]  # 0.5 * 1 + 7;  0.5 * 0
    assert batch.keep_B.all()
    assert "its gate 'json' is closed here (0)" in batch.scores.results[1][1].detail


async def test_no_engine_is_loaded_behind_a_gate_that_is_closed_everywhere(
    opened: Opened, tmp_path: Path
) -> None:
    specs = [
        rule(tmp_path, "never", "return 0"),
        judge(tmp_path, engine=RECORDING, gates=("never",)),
    ]
    async with opened(specs) as scorer:
        await scorer.score(rows("a", "b"))
        assert scorer.residency.states == {"judge": "unloaded"}


async def test_gates_follow_each_other_and_a_gate_without_a_verdict_is_closed(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    first = rule(
        tmp_path,
        "first",
        "return None if solution_str == 'x' else 1",
        on_missing=OnMissing(policy="renormalize"),
    )
    second = scalar(
        "second",
        engine=engine(
            name="tests.rewards.parts:RecordingEngine", runner="pooling", kwargs={"value": -1.0}
        ),
    )
    specs = [
        first,
        RewardSpec(**{**_fields(second), "gates": ("first",)}),
        judge(tmp_path, engine=RECORDING, gates=("second",)),
    ]
    async with opened(specs) as scorer:
        batch = await scorer.score(rows("x", "y"))
    assert [method for method, _ in engine_calls] == ["classify"]
    assert reached(engine_calls) == 1
    assert "closed here (unparseable)" in batch.scores.results[1][0].detail
    assert "closed here (-1)" in batch.scores.results[2][1].detail


async def test_a_product_that_is_0_already_is_not_multiplied_by_a_judge(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    specs = [
        rule(tmp_path, "ok", "return float(solution_str != 'bad')"),
        judge(tmp_path, engine=RECORDING),
    ]
    async with opened(specs, combine="product") as scorer:
        batch = await scorer.score(rows("bad", "good"))
    assert reached(engine_calls) == 1
    assert batch.scores.status_BC[:, 1].tolist() == ["skipped", "ok"]
    assert batch.rewards_B.tolist() == [0.0, 7.0]


async def test_sources_have_their_own_rewards_and_weights(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    both = rule(tmp_path, "both", "return 1", sources=SourceWeights({"maths": 0.5}, 2.0))
    chat = judge(tmp_path, "chat", engine=RECORDING, sources=SourceWeights({"maths": None}, 1.0))
    async with opened([both, chat]) as scorer:
        batch = await scorer.score([*rows("a", source="maths"), *rows("b", source="talk")])
    assert batch.rewards_B.tolist() == [0.5, 9.0]  # 0.5 * 1;  2 * 1 + 7
    assert reached(engine_calls) == 1
    assert batch.scores.status_BC[:, 1].tolist() == ["skipped", "ok"]
    assert batch.keep_B.all()


async def test_a_gate_of_another_source_closes_nothing(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    gate = rule(tmp_path, "gate", "return 0", sources=SourceWeights({"maths": 1.0}, None))
    async with opened([gate, judge(tmp_path, engine=RECORDING, gates=("gate",))]) as scorer:
        batch = await scorer.score([*rows("a", source="maths"), *rows("b", source="talk")])
    assert reached(engine_calls) == 1
    assert batch.scores.status_BC[:, 1].tolist() == ["skipped", "ok"]
    assert batch.rewards_B.tolist() == [0.0, 7.0]


async def test_an_ensemble_is_computed_from_parts_that_are_no_components(
    opened: Opened, tmp_path: Path
) -> None:
    specs = [
        RewardSpec(
            name="both",
            kind="ensemble",
            weight=2.0,
            options=Ensemble.Options(of=["long", "one"], how="mean"),
        ),
        rule(tmp_path, "long", "return len(solution_str)", part_of="both"),
        rule(tmp_path, "one", "return 1", part_of="both"),
    ]
    async with opened(specs) as scorer:
        batch = await scorer.score(rows("abc", "a"))
    assert batch.scores.names == ("both",)
    assert batch.rewards_B.tolist() == [4.0, 2.0]  # 2 * mean(3, 1);  2 * mean(1, 1)
    assert batch.scores.results[0][0].extra["long"] == 3.0


async def test_what_needs_no_device_of_the_policys_is_scored_before_the_last_response_is_there(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    specs = [
        rule(tmp_path, "one", "return 1"),
        judge(tmp_path, "pooled", engine=POOLED),
        judge(tmp_path, "here", engine=RECORDING),
    ]
    answers = rows("a", "b", "c", "d")
    async with opened(specs) as scorer, scorer.streaming() as session:
        for position in (2, 0):
            session.add(position, answers[position])
            await _until(lambda: reached(engine_calls) > 0)
        early = reached(engine_calls)
        assert all(
            "Q a" in r.text or "Q c" in r.text for _, requests in engine_calls for r in requests
        )
        session.add(3, answers[3])
        session.add(1, answers[1])
        batch = await scorer.finish(session)
    assert early >= 1
    assert reached(engine_calls) == 8  # each judge saw each response once
    assert batch.rewards_B.tolist() == [15.0] * 4
    assert [r.rendered for r in batch.scores.results[1]] == ["Q a", "Q b", "Q c", "Q d"]


async def test_a_component_here_waits_for_a_gate_that_streamed(
    opened: Opened, tmp_path: Path, engine_calls: list[Any]
) -> None:
    gate = rule(tmp_path, "gate", "import time; time.sleep(0.05); return float(solution_str > 'b')")
    async with (
        opened([gate, judge(tmp_path, engine=RECORDING, gates=("gate",))]) as scorer,
        scorer.streaming() as session,
    ):
        for position, row in enumerate(rows("a", "b", "c", "d")):
            session.add(position, row)
            await asyncio.sleep(0.01)
        batch = await scorer.finish(session)
    assert reached(engine_calls) == 2
    assert batch.rewards_B.tolist() == [0.0, 0.0, 8.0, 8.0]


async def test_the_first_error_ends_the_step_with_its_own_words(
    opened: Opened, tmp_path: Path
) -> None:
    code = (
        JUDGE + "\ndef rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n    return []\n"
    )
    slow = rule(tmp_path, "slow", "import time; time.sleep(600); return 1", timeout_s=600.0)
    gated = judge(tmp_path, "gated", engine=RECORDING, gates=("broken",))
    async with (
        asyncio.timeout(PATIENCE_S),
        opened([slow, gated, judge(tmp_path, "broken", code=code, engine=RECORDING)]) as scorer,
    ):
        with pytest.raises(
            RewardFunctionError, match="rm_preprocess of reward 'broken' returned 0 inputs"
        ):
            await scorer.score(rows("a"))


class _Broken:
    """A reward that fails at once."""

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        raise RewardFunctionError(f"broken on {len(items)} responses")


class _Silent:
    """A reward that returns no score."""

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        return []


class _Late:
    """A reward that is overdue."""

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        raise StallError("no answer")


def session_of(kind: Any) -> Session:
    """A session of one reward with one response added."""
    specs = [RewardSpec(name="broken", kind="rule", weight=1.0, timeout_s=300.0)]
    graph = graph_of(specs, how="weighted_sum")
    broker, _ = make()
    session = Session(specs, graph, broker, kind=lambda _: kind, gate_above=0.0)
    session.add(0, rows("a")[0])
    return session


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (_Silent(), "reward 'broken' returned 0 scores for 1 responses"),
        (_Late(), "reward 'broken' took longer than its 300 s: no answer"),
    ],
)
async def test_a_count_and_a_deadline_are_those_of_a_named_reward(kind: Any, sentence: str) -> None:
    with pytest.raises((RewardFunctionError, StallError), match=sentence):
        await session_of(kind).finish()


def test_calls_side_by_side_count_once() -> None:
    busy = BusyTime()
    busy.begin(1.0)
    busy.begin(2.0)
    busy.end(4.0, earliest=0.0)
    busy.end(6.0, earliest=0.0)
    assert busy.seconds == 5.0
    # Its requests were released at 11; a call that ended before that had none to wait for.
    busy.begin(10.0)
    busy.end(12.0, earliest=11.0)
    busy.begin(12.0)
    busy.end(13.0, earliest=14.0)
    assert busy.seconds == 6.0


def test_seconds_are_taken_while_calls_go_on() -> None:
    busy = BusyTime()
    busy.begin(1.0)
    assert busy.take(3.0) == 2.0
    busy.begin(4.0)
    busy.end(5.0, earliest=0.0)
    busy.end(6.0, earliest=0.0)
    assert busy.take(9.0) == 3.0
    assert busy.take(9.5) == 0.0


async def test_batches_side_by_side_count_once(opened: Opened, tmp_path: Path) -> None:
    slow = rule(tmp_path, "slow", "import time; time.sleep(0.2); return 1")
    async with opened([slow]) as scorer:
        started = asyncio.get_running_loop().time()
        batches = await asyncio.gather(*[scorer.score(rows("a")) for _ in range(3)])
        passed = asyncio.get_running_loop().time() - started
        seconds = scorer.take_seconds()["slow"]
    of_each = [batch.metrics["time/score/slow"] for batch in batches]
    assert max(of_each) <= seconds <= passed
    assert scorer.take_seconds() == {"slow": 0.0}


async def test_each_reward_has_its_seconds(opened: Opened, tmp_path: Path) -> None:
    quick = rule(tmp_path, "quick", "return 1")
    slow = rule(tmp_path, "slow", "import time; time.sleep(0.2); return 1")
    async with opened([quick, slow]) as scorer:
        first = await scorer.score(rows("a", "b"))
        # One after the other or side by side: no less than one call takes.
        assert first.metrics["time/score/slow"] >= 0.2
        assert first.metrics["time/score/quick"] > 0
        async with scorer.streaming() as session:
            session.add(0, rows("a")[0])
            again = await scorer.finish(session)
    assert again.metrics["time/score/quick"] > 0


async def test_an_error_before_the_last_response_arrives_is_raised_at_the_end() -> None:
    session = session_of(_Broken())
    await asyncio.sleep(0.01)
    with pytest.raises(RewardFunctionError, match="broken on 1 responses"):
        await session.finish()


async def test_a_block_that_raises_leaves_nothing_running(opened: Opened, tmp_path: Path) -> None:
    slow = rule(tmp_path, "slow", "import time; time.sleep(5); return 1")
    async with opened([slow]) as scorer:
        with contextlib.suppress(KeyError):
            async with scorer.streaming() as session:
                session.add(0, rows("a")[0])
                await asyncio.sleep(0.05)
                raise KeyError
        await asyncio.sleep(0)
        assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


async def test_running_statistics_learn_in_training_only_and_survive_a_checkpoint(
    opened: Opened, tmp_path: Path
) -> None:
    transforms = ({"kind": "standardize", "by": "running"},)
    async with opened(
        [rule(tmp_path, "long", "return len(solution_str)", transforms=transforms)]
    ) as scorer:
        await scorer.score(rows("a", "bb", "ccc"))
        state = scorer.state_dict()
        validated = await scorer.score(rows("aaaaaaaa"), learn=False)
        assert scorer.state_dict() == state
        assert np.isfinite(validated.rewards_B).all()
        await scorer.score(rows("aaaaaaaa"))
        assert scorer.state_dict() != state
        scorer.load_state_dict(state)
        assert scorer.state_dict() == state


async def test_requests_are_rendered_while_responses_come_and_sent_when_all_are_there(
    opened: Opened, tmp_path: Path, engine_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.rewards.session.session._RENDERED_TOGETHER", 2)
    gate = rule(tmp_path, "long", "return float(len(solution_str) > 1)", weight=0.0)
    gated = judge(tmp_path, "gated", engine=RECORDING, gates=("long",))
    specs = [gate, plain_judge(tmp_path), gated]
    async with opened(specs) as scorer, scorer.streaming() as session:
        for position, row in enumerate(rows("a", "bb", "c")):
            session.add(position, row)
        broker = scorer._broker
        async with asyncio.timeout(PATIENCE_S):
            while sum(len(ask.requests) for asks in broker._pending.values() for ask in asks) < 2:
                await asyncio.sleep(0.01)
        assert engine_calls == []
        await broker.idle()
        batch = await scorer.finish(session)
    assert batch.scores.values_BC[:, 1].tolist() == [7.0, 7.0, 7.0]
    assert batch.scores.status_BC[:, 2].tolist() == ["skipped", "ok", "skipped"]
    assert reached(engine_calls) == 4  # 3 + the one behind the gate
    async with opened([plain_judge(tmp_path)]) as scorer:
        whole = await scorer.score(rows("a", "bb", "c"))
    assert batch.scores.values_BC[:, 1].tolist() == whole.scores.values_BC[:, 0].tolist()


def test_a_preprocess_that_may_compare_responses_gets_all_of_them(tmp_path: Path) -> None:
    plain, compares = plain_judge(tmp_path), judge(tmp_path, "compares")
    graph = graph_of([plain, compares], how="weighted_sum")
    assert (graph.ahead, graph.deferred) == ((0,), (1,))


@pytest.mark.virtual_time
async def test_the_time_of_a_verdict_leaves_out_the_wait_for_the_policy(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.rewards.session.session._RENDERED_TOGETHER", 1)
    spec = plain_judge(tmp_path)
    async with opened([spec]) as scorer, scorer.streaming() as session:
        session.add(0, rows("a")[0])
        await asyncio.sleep(60)
        batch = await scorer.finish(session)
    assert batch.scores.results[0][0].latency_s < 1


async def test_what_is_rendered_ahead_is_dropped_with_its_session(
    opened: Opened, tmp_path: Path, engine_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.rewards.session.session._RENDERED_TOGETHER", 1)
    async with opened([plain_judge(tmp_path)]) as scorer:
        async with scorer.streaming() as session:
            session.add(0, rows("lost")[0])
            await asyncio.sleep(0.1)
            await session.close()
        batch = await scorer.score(rows("later"))
    assert batch.rewards_B.tolist() == [7.0]
    assert reached(engine_calls) == 1


def test_what_waits_for_something_deferred_is_deferred_as_well(tmp_path: Path) -> None:
    here, pooled = (
        judge(tmp_path, "here", engine=RECORDING),
        judge(tmp_path, "pooled", engine=POOLED, gates=("here",)),
    )
    specs = [here, pooled, rule(tmp_path, "r", "return 1")]
    graph = graph_of(specs, how="weighted_sum")
    assert graph.streamable == (2,)
    assert graph.ahead == ()
    assert graph.deferred == (0, 1)
    assert graph.gates == ((), (0,), ())


@pytest.mark.parametrize(
    "changes",
    [
        {"transforms": ({"kind": "scale", "offset": 1.0},)},
        {"weight": 0.0},
        {"part_of": "both"},
        {"gates": ("other",)},
        {"sources": SourceWeights({"maths": 1.0}, None)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_only_a_plain_score_settles_a_product(tmp_path: Path, changes: dict[str, Any]) -> None:
    """An offset lifts a 0, a weight of 0 only watches, and the others do not count everywhere."""
    specs = [
        rule(tmp_path, "plain", "return 0"),
        rule(tmp_path, "other", "return 0", **changes),
        judge(tmp_path, engine=RECORDING),
    ]
    assert graph_of(specs, how="product").cheaper == ((), (), (0,))
    assert graph_of(specs, how="product", scheduled=["plain"]).cheaper == ((), (), ())
    assert graph_of(specs, how="weighted_sum").cheaper == ((), (), ())


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


def _fields(spec: RewardSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__slots__}
