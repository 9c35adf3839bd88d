"""Process rewards that go to their tokens."""

from __future__ import annotations

import dataclasses

import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.reads.setting import EACH, Reads
from rmrl.types import Step
from tests.rewards.combine.parts import combined, process, rewards, spec


def test_parts_are_weighted_and_their_scalar_stays_out():
    specs = [spec("prm", 0.5, tokens=True), spec("a", 2.0)]
    batch = combined(specs, [process(0.7, (4, 1.0), (9, 0.4)), process(0.2, (3, 0.2))], [1.0, 3.0])
    assert rewards(batch) == [2.0, 6.0]
    assert batch.steps == ((Step(4, 0.5), Step(9, 0.2)), (Step(3, 0.1),))
    assert batch.columns_BC is not None
    assert batch.columns_BC[:, 0].tolist() == [0.7, 0.2]


def test_parts_of_two_rewards_are_merged_in_order():
    specs = [spec("p", 1.0, tokens=True), spec("q", 2.0, tokens=True)]
    batch = combined(specs, [process(0.0, (4, 1.0), (9, 2.0))], [process(0.0, (2, 5.0), (9, 0.5))])
    assert rewards(batch) == [0.0]
    assert batch.steps == ((Step(2, 10.0), Step(4, 1.0), Step(9, 3.0)),)


def test_parts_are_transformed_one_by_one():
    halved = spec(
        "prm", 2.0, tokens=True, transforms=({"kind": "scale", "factor": 0.5, "offset": 1.0},)
    )
    assert combined([halved], [process(0.0, (4, 1.0), (9, 3.0))]).steps == (
        (Step(4, 3.0), Step(9, 5.0)),
    )


def test_without_to_tokens_the_scalar_counts():
    batch = combined([spec("prm", 2.0)], [process(0.7, (4, 1.0))])
    assert rewards(batch) == [1.4]
    assert batch.steps == ()


def test_a_verdict_without_parts_keeps_its_scalar():
    batch = combined([spec("prm", 2.0, "impute", value=-1.0, tokens=True)], [process(0.7), None])
    assert rewards(batch) == [1.4, -2.0]
    assert batch.steps == ((), ())


def test_masked_rows_and_closed_gates_have_no_parts():
    specs = [spec("format"), spec("prm", tokens=True, gates=("format",))]
    part = process(1.0, (4, 1.0))
    batch = combined(specs, [1.0, 0.0, None], [part, part, part])
    assert batch.steps == ((Step(4, 1.0),), (), ())
    assert rewards(batch) == [1.0, 0.0, None]
    assert combined([spec("a"), spec("prm", tokens=True)], [None, 1.0], [part, part]).steps == (
        (),
        (Step(4, 1.0),),
    )


def test_renormalize_reaches_the_parts():
    specs = [spec("prm", 1.0, tokens=True), spec("a", 3.0, "renormalize")]
    assert combined(specs, [process(0.0, (4, 1.0))], [None]).steps == ((Step(4, 4.0),),)


def test_only_a_sum_can_leave_the_scalar_out():
    with pytest.raises(
        ConfigError, match=r"reward 'prm' sends scores to tokens .* with reward.combine=min"
    ):
        combined([spec("prm", tokens=True)], [process(1.0, (4, 1.0))], how="min")


def test_statistics_over_responses_do_not_fit_their_parts():
    ranked = spec("prm", tokens=True, transforms=({"kind": "rank"},))
    with pytest.raises(ConfigError, match=r"with the transforms rank\(group\)"):
        combined([ranked], [process(1.0, (4, 1.0))])


def test_a_weight_of_zero_that_rises_later_is_checked_from_the_start():
    specs = [spec("a"), spec("prm", 0.0, tokens=True, transforms=({"kind": "rank"},))]
    columns = ([1.0], [process(1.0, (4, 1.0))])
    assert combined(specs, *columns).steps == ()
    with pytest.raises(ConfigError, match="with the transforms rank"):
        combined(specs, *columns, weight_schedules={"prm": [[0, 0], [10, 1]]})


def test_scores_of_turns_go_to_the_turns_and_add_up_with_those_of_other_rewards():
    """.5 * 1 + 2 * 3 on turn 0, .5 * -2 on turn 1; the part of a text stays apart."""
    turns = process(0.0, (0, 1.0), (0, -2.0))
    scored = dataclasses.replace(turns, steps=(Step(0, 1.0, turn=0), Step(0, -2.0, turn=1)))
    first = dataclasses.replace(turns, steps=(Step(0, 3.0, turn=0),))
    specs = [
        dataclasses.replace(spec("a", 0.5), reads=Reads(per_turn=EACH)),
        dataclasses.replace(spec("b", 2.0), reads=Reads(per_turn=EACH)),
        spec("prm", 1.0, tokens=True),
    ]
    batch = combined(specs, [scored], [first], [process(0.0, (4, 1.0))])
    assert rewards(batch) == [0.0]
    assert batch.steps == ((Step(4, 1.0), Step(0, 6.5, turn=0), Step(0, -1.0, turn=1)),)
