"""What gpu_memory_utilization=null means: plans in whole GiB, and shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmrl.assemble.gpu_shares import Open, chosen_shares
from rmrl.cluster.memory_plan import PHASES, Claim, MemoryPlan
from rmrl.inference.gpu_reserve import Reserve

GIB = 2**30
GPU = 100 * GIB


def claim(who: str, awake: int, away: int, *when: str, engine: bool = False) -> Claim:
    return Claim(
        who=who,
        what="",
        awake_bytes=awake * GIB,
        away_bytes=away * GIB,
        when=when,
        devices=("gpu 0",),
        place="" if engine else None,
        alternates=engine,
    )


TRAINING = claim("training", 50, 10, "train")
ROLLOUT = claim("rollout", 20, 5, "rollout")
CLEAR = claim("clear", 10, 1, "score", engine=True)
SAFE = claim("safe", 10, 1, "score", engine=True)


def grows(name: str, least: int, useful: int) -> Open:
    return Open(name, (name,), Reserve(least * GIB, useful * GIB))


OPEN = {
    "rollout": grows("rollout", 20, 100),
    "clear": grows("clear", 10, 50),
    "safe": grows("safe", 10, 110),
}


def shares(claims: list[Claim], budget: int = 85, **changes: Open) -> dict[str, float | None]:
    plan = MemoryPlan(claims, {"gpu 0": budget * GIB})
    chosen = chosen_shares(plan, OPEN | changes, GPU)
    return {name: share.of_gpu for name, share in chosen.items()}


def test_an_engine_takes_what_the_others_leave_while_it_is_awake() -> None:
    # 85 - 5 %. Sampling: 80 - 12 (others, away) = 20 + 12 x 4. Scoring: 80 - 16: clear takes all 20
    # steps, 10 + 20 x 2, safe 10 + 10 x 5.
    assert shares([TRAINING, ROLLOUT, CLEAR, SAFE]) == {"rollout": 0.68, "clear": 0.5, "safe": 0.6}


def test_the_line_names_the_reason() -> None:
    plan = MemoryPlan([TRAINING, ROLLOUT, CLEAR, SAFE], {"gpu 0": 85 * GIB})
    chosen = chosen_shares(plan, OPEN, GPU)
    lines = [share.line for share in chosen.values()]
    assert lines == [
        "rollout=0.68: 68.00 GiB of each GPU, all that the plan leaves",
        "clear=0.5: 50.00 GiB of each GPU, a full batch has no use for more",
        "safe=0.6: 60.00 GiB of each GPU, all that the plan leaves",
    ]
    assert [share.extra_bytes for share in chosen.values()] == [48 * GIB, 40 * GIB, 50 * GIB]


def test_engines_that_are_never_put_away_grow_together() -> None:
    # Training: 80 - 50 (policy) - 20 - 10 leaves nothing. 80 - 20 - 20 - 10 leaves 30, five steps
    # that take 4 + 2.
    stay = [replace(each, away_bytes=each.awake_bytes, when=PHASES) for each in (ROLLOUT, CLEAR)]
    only = {"safe": grows("safe", 10, 10)}
    assert shares([TRAINING, *stay], **only) == {"rollout": 0.2, "clear": 0.1, "safe": 0.1}
    small = replace(TRAINING, awake_bytes=20 * GIB)
    assert shares([small, *stay], **only) == {"rollout": 0.4, "clear": 0.2, "safe": 0.1}


def test_a_phase_that_does_not_fit_anyway_is_no_reason_against_another() -> None:
    """Micro-batches that fit are chosen elsewhere."""
    larger = replace(TRAINING, awake_bytes=200 * GIB)
    assert shares([larger, ROLLOUT, CLEAR, SAFE]) == {"rollout": 0.68, "clear": 0.5, "safe": 0.6}


def test_what_does_not_fit_keeps_the_least() -> None:
    assert shares([TRAINING, ROLLOUT, CLEAR, SAFE], budget=30) == {
        "rollout": 0.2,
        "clear": 0.1,
        "safe": 0.1,
    }


def test_a_judge_of_the_rollout_engines_grows_with_them() -> None:
    # Scoring: 80 - 10 - 5 - 1 - 15 = 49 more for the judge. Sampling: 80 - 10 - 1 - 20 = 49 more.
    judge = claim("judge", 15, 0, "score", engine=True)
    together = Open("rollout", ("rollout", "judge"), Reserve(20 * GIB, 100 * GIB))
    assert shares([TRAINING, ROLLOUT, judge, SAFE], rollout=together)["rollout"] == 0.68
    wide = replace(judge, awake_bytes=25 * GIB)
    assert shares([TRAINING, ROLLOUT, wide, SAFE], rollout=together)["rollout"] == 0.56


@pytest.mark.parametrize(("least", "share"), [(20.5, 0.21), (20, 0.2)])
def test_the_least_is_rounded_up(least: float, share: float) -> None:
    size = Reserve(int(least * GIB), int(least * GIB))
    plan = MemoryPlan([ROLLOUT], {"gpu 0": 82 * GIB})
    chosen = chosen_shares(plan, {"rollout": Open("rollout", ("rollout",), size)}, GPU)
    assert chosen["rollout"].of_gpu == share
