"""Peaks by hand, what is left for engines, and the sentence that refuses."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.cluster.memory_plan import MEMORY, PHASES, Claim, MemoryPlan, gib
from rmrl.errors import MemoryPlanError

GIB = 2**30


def claim(who: str, awake: float, away: float, *when: str, **changes: Any) -> Claim:
    return Claim(
        who=who,
        what="m",
        awake_bytes=int(awake * GIB),
        away_bytes=int(away * GIB),
        when=when,
        **changes,
    )


def engine(
    who: str, awake: float, away: float, *, place: str = "", resident: bool = False, **changes: Any
) -> Claim:
    when = PHASES if resident or place else ("score",)
    return claim(
        who,
        awake,
        awake if resident else away,
        *when,
        place=place,
        alternates=not resident,
        **changes,
    )


POLICY = [claim("training", 6, 4, "train"), claim("rollout", 5, 1, "rollout")]
CLAIMS = [
    *POLICY,
    engine("judge", 3, 1),
    engine("scalar", 2, 0.5),
    engine("resident", 1, 1, resident=True),
]


def plan(claims: list[Claim], budget: float) -> MemoryPlan:
    return MemoryPlan(claims, {MEMORY: int(budget * GIB)})


def test_peaks_by_hand() -> None:
    made = plan(CLAIMS, 100)
    assert made.peak("train") == (6 + 1 + 1 + 0.5 + 1) * GIB
    assert made.peak("rollout") == (4 + 5 + 1 + 0.5 + 1) * GIB
    # judge and scalar take turns: both away (1 + 0.5), and the larger step from away to awake (3 -
    # 1) on top
    assert made.peak("score") == (4 + 1 + 1 + 0.5 + 2 + 1) * GIB


def test_what_fits_exactly_is_not_refused() -> None:
    plan(CLAIMS, 11.5).check()


def test_the_refusal_names_phase_need_budget_the_largest_and_the_remedies() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        plan(CLAIMS, 11).check()
    message = str(caught.value)
    assert "phase 'rollout' needs 11.50 GiB and memory has 11.00 GiB" in message
    assert "largest: training 6.00 GiB, rollout 5.00 GiB, judge 3.00 GiB" in message
    assert "raise trainer.memory_budget_gb" in message
    assert "judge     m" in message  # the whole table follows
    assert caught.value.exit_code == 2


def test_the_largest_engine_must_fit_with_all_others_away() -> None:
    engines = [engine("large", 8, 1), engine("small", 2, 1)]
    plan(engines, 9).check()
    with pytest.raises(
        MemoryPlanError, match=r"phase 'score' needs 9.00 GiB and memory has 8.90 GiB"
    ):
        plan(engines, 8.9).check()


def test_what_the_policy_leaves_is_for_engines() -> None:
    made = plan(CLAIMS, 12)
    assert made.scoring_bytes() == (12 - 4 - 1) * GIB  # training and rollout are away
    assert made.idle_bytes() == (12 - 9) * GIB  # the rollout is awake: 4 + 5; while training 6 + 1
    assert made.scoring_bytes("judges") == 0  # nobody lives there


def test_without_a_policy_engines_have_everything_always() -> None:
    made = plan(CLAIMS[2:], 12)
    assert (made.scoring_bytes(), made.idle_bytes()) == (12 * GIB, 12 * GIB)


def test_a_pool_on_the_same_memory_takes_what_it_can_use_and_leaves_others_their_least() -> None:
    pool = [engine("x", 4, 1, place="judges"), engine("y", 3, 1, place="judges")]
    made = plan([*CLAIMS, *pool], 20)
    # the policy 9 at most, the others 2.5 then: 8.5 are left, and the pool can use 7
    assert made.scoring_bytes("judges") == made.idle_bytes("judges") == 7 * GIB
    assert (made.scoring_bytes(), made.idle_bytes()) == ((20 - 5 - 7) * GIB, (20 - 9 - 7) * GIB)
    tight = plan([*CLAIMS, *pool], 17)
    assert tight.scoring_bytes("judges") == 5.5 * GIB  # 17 - 9 - 2.5: x awake, y away
    assert tight.idle_bytes() == 2.5 * GIB  # judge and scalar away, the resident awake
    tight.check()
    with pytest.raises(
        MemoryPlanError, match=r"phase 'rollout' needs 16\.50 GiB"
    ):  # 9 + 2.5 + (4 + 1)
        plan([*CLAIMS, *pool], 16).check()


def test_two_pools_on_one_memory_never_get_more_than_there_is() -> None:
    made = plan(
        [
            engine("x", 4, 0, place="a"),
            engine("y", 3, 0, place="a"),
            engine("z", 2, 0, place="b"),
            engine("w", 2, 0),
        ],
        9,
    )
    # a: 9 less what b and the policy's place need at least (2 + 2) = 5; b: 9 - 5 - 2 = 2; the rest:
    # 2
    assert [made.scoring_bytes(place) for place in made.places()] == [5 * GIB, 2 * GIB, 2 * GIB]
    assert made.places() == ["a", "b", ""]


def test_devices_are_counted_one_by_one() -> None:
    two = ("gpu 0", "gpu 1")
    claims = [
        claim("training", 6, 0.5, "train", devices=two),
        engine("wide", 5, 1, devices=two),
        engine("one", 7, 1, devices=two[:1]),
    ]
    made = MemoryPlan(claims, dict.fromkeys(two, 8 * GIB))
    assert (made.peak("score", "gpu 0"), made.peak("score", "gpu 1")) == (
        0.5 * GIB + 8 * GIB,
        5.5 * GIB,
    )
    assert made.peak("train", "gpu 0") == 8 * GIB
    with pytest.raises(
        MemoryPlanError,
        match=r"phase 'score' needs 8\.50 GiB and gpu 0 has 8\.00 GiB; largest: one 7\.00 GiB",
    ):
        made.check()
    assert made.scoring_bytes() == 7.5 * GIB
    assert made.idle_bytes() == 2 * GIB


def test_the_table_says_who_where_and_who_takes_turns() -> None:
    lines = plan([*CLAIMS, engine("far", 2, 0, place="judges")], 14).table().splitlines()
    assert lines[0] == "memory plan"
    assert lines[1].split() == ["who", "what", "where", "awake", "away", "when"]
    assert lines[4].split() == [
        "judge",
        "m",
        "memory",
        "3.00",
        "GiB",
        "1.00",
        "GiB",
        "score",
        "(in",
        "turn)",
    ]
    assert lines[6].split() == ["resident", "m", "memory", "1.00", "GiB", "1.00", "GiB", "always"]
    assert lines[7].split()[2:4] == ["pool", "judges"]
    assert (
        lines[8].strip()
        == "peak: rollout 13.50 GiB, score 11.50 GiB, train 11.50 GiB; budget 14.00 GiB"
    )
    assert lines[9].strip() == "engines of pool judges may hold 2.00 GiB"
    assert lines[10].strip() == "engines may hold 7.00 GiB while scoring, 3.00 GiB otherwise"
    assert len(lines) == 11


def test_devices_that_look_alike_share_a_table() -> None:
    gpus = tuple(f"gpu {number}" for number in range(4))
    claims = [claim("training", 6, 1, "train", devices=gpus), engine("one", 2, 1, devices=gpus[3:])]
    text = MemoryPlan(claims, dict.fromkeys(gpus, 8 * GIB)).table()
    heads = [line for line in text.splitlines() if line.startswith("memory plan")]
    assert heads == ["memory plan of gpu 0 .. gpu 2", "memory plan of gpu 3"]
    assert text.count("training") == 2
    assert text.count("gpu 0 .. gpu 3") == 2  # where training lives, in both


def test_nobody_needs_nothing() -> None:
    empty = MemoryPlan([], {MEMORY: 0})
    empty.check()
    assert empty.peak("train") == 0
    assert empty.table() == ""
    assert gib(3 * GIB // 2) == "1.50 GiB"
