"""Each hint against scores worked out by hand, and silence where there is nothing to see."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.rewards.session.monitor import Monitor, PairMoments, share_at_least
from rmrl.types import ScoreResult, Scores

LENGTHS = [10, 20, 30, 40] * 8


def scores(**columns: Sequence[float | ScoreResult | None]) -> Scores:
    """A number is a verdict, None one that could not be read."""
    return Scores(
        names=tuple(columns),
        results=tuple(tuple(result(each) for each in column) for column in columns.values()),
    )


def result(given_: float | ScoreResult | None) -> ScoreResult:
    if isinstance(given_, ScoreResult):
        return given_
    return ScoreResult(value=given_, status="ok" if given_ is not None else "unparseable")


def monitor(**changes: float) -> Monitor:
    return Monitor(RewardMonitorConfig(**{"window": 4, **changes}))  # type: ignore[arg-type]


def uneven(count: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).standard_normal(count).tolist()


def test_moments_add_up_to_the_correlation_of_all() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(300) * 1e-3 + 5e4
    y = -0.5 * (x - 5e4) * 1e3 + rng.standard_normal(300)
    y[7] = math.nan
    whole = PairMoments()
    for part in np.split(np.arange(300), [10, 11, 250]):
        whole += PairMoments.of(x[part], y[part])
    keep = np.isfinite(y)
    assert whole.n == 299
    assert whole.correlation == pytest.approx(np.corrcoef(x[keep], y[keep])[0, 1], rel=1e-6)


def test_a_correlation_needs_evidence() -> None:
    # atanh(1/2) = 0.549; times sqrt(n - 3) it passes 4 from n = 57 on
    def half(n: int) -> PairMoments:
        return PairMoments(n, 0.0, 0.0, 4.0, 4.0, 2.0)

    assert half(56).correlation is None
    assert half(57).correlation == pytest.approx(0.5)
    assert PairMoments.of(np.asarray([1e300, 2e300, 1.0]), np.ones(3)) == PairMoments(
        1, 1.0, 1.0, 0.0, 0.0, 0.0
    )
    # Fisher's standard error 1 / sqrt(n - 3) exists from four pairs on.
    assert PairMoments(3, 0.0, 0.0, 1.0, 1.0, 1.0).correlation is None
    assert PairMoments(4, 0.0, 0.0, 1.0, 1.0, 1.0).correlation == 1.0
    assert PairMoments(100, 5.0, 0.0, 0.0, 1.0, 0.0).correlation is None
    assert (
        PairMoments(100, 1e9, 0.0, 1e-6, 1.0, 1e-3).correlation is None
    )  # constant up to rounding


def test_a_share_needs_evidence() -> None:
    # Wilson at 4: (0.5 + 1 - 4 sqrt(1/32 + 1/16)) / 3 for 4 of 8; hits of all: n / (n + 16)
    assert share_at_least(4, 8) == pytest.approx((1.5 - 4 * math.sqrt(3 / 32)) / 3)
    assert share_at_least(4, 4) == pytest.approx(4 / 20)
    assert share_at_least(0, 50) == pytest.approx(0.0)


def test_components_that_disagree() -> None:
    base = uneven(32)
    left, right = [*base], [-x for x in base]
    left[4], right[4] = 5.0, -5.0
    left[9], right[9] = -9.0, 9.0
    left[17], right[17] = 7.0, -7.0
    said = monitor().observe(12, scores(helpful=left, brief=right), LENGTHS)
    assert said == [
        "step 12: look at samples 5, 10 and 18 of this step in samples.jsonl: helpful and brief"
        " disagree (correlation -1.00 over 1 step), most of all here"
    ]


def test_a_weak_disagreement_is_seen_over_steps_and_not_in_one() -> None:
    watch = monitor(window=50)
    heard: list[int] = []
    for step in range(40):
        rng = np.random.default_rng(step)
        a, noise = rng.standard_normal((2, 8))
        heard += [step] * len(
            watch.observe(
                step, scores(a=a.tolist(), b=(-0.6 * a + 0.8 * noise).tolist()), LENGTHS[:8]
            )
        )
    # true r = -0.6: atanh = 0.69, evidence from about 37 pairs on, which is the fifth step
    assert len(heard) == 1
    assert 2 <= heard[0] <= 12


def test_a_score_that_follows_length() -> None:
    lengths = list(range(100, 132))
    longer = monitor().observe(3, scores(a=[n / 10 for n in lengths]), lengths)
    assert longer == [
        "step 3: look at samples 30, 31 and 32 of this step in samples.jsonl: a likes longer"
        " responses (correlation with length +1.00 over 1 step); these do it the most"
    ]
    shorter = monitor().observe(3, scores(a=[-n / 10 for n in lengths]), lengths)
    assert shorter == [
        "step 3: look at samples 1, 2 and 3 of this step in samples.jsonl: a likes shorter"
        " responses (correlation with length -1.00 over 1 step); these do it the most"
    ]


def test_verdicts_that_cannot_be_read() -> None:
    truncated = ScoreResult(value=None, status="judge_truncated")
    column = [*uneven(24), None, truncated, *([None] * 6)]
    assert (
        monitor().observe(7, scores(judge=column), LENGTHS)
        == [
            # 8 of 32: Wilson (0.25 + 0.25 - 4 sqrt(0.1875/32 + 16/4096)) / 1.5 = 0.07 is not above
            # 0.1; with the next step it is
        ]
    )
    watch = monitor(unparseable=0.05)
    assert watch.observe(7, scores(judge=column), LENGTHS) == [
        "step 7: look at samples 25, 26 and 27 of this step in samples.jsonl: 8 of 32 verdicts of"
        " judge could not be read over 1 step"
    ]


def test_other_failures_are_not_parse_failures() -> None:
    column = [
        *uneven(8),
        *([ScoreResult(value=None, status="timeout")] * 16),
        *([ScoreResult(value=None, status="skipped")] * 8),
    ]
    assert monitor().observe(1, scores(judge=column), LENGTHS) == []


def test_rows_that_were_not_asked_for_do_not_count_among_the_verdicts() -> None:
    skipped = ScoreResult(value=None, status="skipped")
    column = [*([None] * 16), *([skipped] * 16)]
    # 16 of 16: 16 / (16 + 16) = 0.5 is above 0.4; 16 of 32 would be (0.75 - 0.43) / 1.5 = 0.21
    [hint] = monitor(unparseable=0.4).observe(3, scores(judge=column), LENGTHS)
    assert "16 of 16 verdicts of judge could not be read" in hint


def test_a_rate_of_the_past_is_said_without_samples_of_today() -> None:
    watch = monitor(unparseable=0.2)
    assert (
        watch.observe(1, scores(judge=[*uneven(20), *([None] * 12)]), LENGTHS) == []
    )  # 12/32: (0.625 - 0.416) / 1.5 = 0.14
    assert watch.observe(2, scores(judge=[*uneven(2), *([None] * 30)]), LENGTHS) != []
    watch = monitor(unparseable=0.2)
    watch.observe(1, scores(judge=[None] * 32), LENGTHS)
    watch._reported.clear()
    said = watch.observe(2, scores(judge=uneven(32)), LENGTHS)
    assert said == [
        "step 2: 32 of 64 verdicts of judge could not be read over 2 steps (none of them in this"
        " step)"
    ]


def test_a_component_that_never_moves() -> None:
    watch = monitor()
    column = [None, *([0.1 + 0.2] * 15), *([0.3] * 16)]  # apart by one rounding
    heard = [
        watch.observe(step, scores(format=column, b=uneven(32, step)), LENGTHS)
        for step in range(1, 5)
    ]
    assert heard[:3] == [[], [], []]
    # 31 verdicts a step; of the positions 2..32 the first, the middle (15 further) and the last
    assert heard[3] == [
        "step 4: look at samples 2, 17 and 32 of this step in samples.jsonl: format gave 0.3 to all"
        " 124 responses of 4 steps, so nothing can be learned from it; these are some"
    ]


def test_one_step_that_differs_is_not_constant() -> None:
    watch = monitor()
    for step in range(1, 5):
        column = [1.0] * 31 + [1.0 if step != 2 else 0.0]
        assert watch.observe(step, scores(format=column), LENGTHS) == []
    assert (
        len(watch.observe(6, scores(format=[1.0] * 32), LENGTHS)) == 0
    )  # step 2 is still in the window
    assert len(watch.observe(7, scores(format=[1.0] * 32), LENGTHS)) == 1


def judged(text: str, read: str, value: float) -> ScoreResult:
    return ScoreResult(value=value, raw_text=text, rendered=read)


def test_a_judge_that_repeats_itself() -> None:
    same = "The response is excellent.\nScore: 10"
    column = [
        judged(same if i % 4 else f"A careful reading of answer {i}.", f"input {i}", value)
        for i, value in enumerate(uneven(32))
    ]
    assert monitor().observe(5, scores(judge=column), LENGTHS) == [
        "step 5: look at samples 2, 3 and 4 of this step in samples.jsonl: judge wrote the same"
        " text about 24 of 32 different inputs, beginning 'The response is excellent.\\nScore: 10'"
    ]


def test_equal_inputs_short_verdicts_and_few_inputs_may_repeat() -> None:
    same = "The response is excellent.\nScore: 10"
    noise = uneven(32)
    equal_inputs = [judged(same, f"input {i % 4}", value) for i, value in enumerate(noise)]
    short = [judged("Score: 10", f"input {i}", value) for i, value in enumerate(noise)]
    half = [
        judged(same if i % 2 else f"A careful reading of answer {i}.", f"input {i}", value)
        for i, value in enumerate(noise)
    ]
    for column in (equal_inputs, short, half):
        assert monitor().observe(1, scores(judge=column), LENGTHS) == []


def test_a_hint_returns_after_a_window() -> None:
    watch = monitor()
    lengths = list(range(32))
    heard = [
        step
        for step in range(1, 11)
        if watch.observe(step, scores(a=[float(n) for n in lengths]), lengths)
    ]
    assert heard == [1, 5, 9]
    assert watch.metrics() == {"monitor/hints": 1.0}


def test_the_window_forgets() -> None:
    watch = monitor()
    lengths = list(range(32))
    watch.observe(1, scores(a=[float(n) for n in lengths]), lengths)
    for step in range(2, 6):
        watch.observe(step, scores(a=uneven(32, step)), lengths)
    assert watch.metrics() == {"monitor/hints": 0.0}


def test_switched_off_or_nothing_to_look_at() -> None:
    lengths = list(range(32))
    assert monitor(enable=False).observe(1, scores(a=[float(n) for n in lengths]), lengths) == []
    assert monitor(enable=False).metrics() == {}
    assert monitor().observe(1, Scores(names=(), results=()), []) == []
    assert monitor().observe(1, scores(dead=[None]), [3]) == []


def test_infinite_scores_are_looked_past() -> None:
    # a of the other three grows with lengths 20, 30, 40; the longest stand at 4, 8, 12, ...
    said = monitor().observe(1, scores(a=[math.inf, 1.0, 2.0, 3.0] * 8), LENGTHS)
    assert len(said) == 1
    assert said[0].startswith(
        "step 1: look at samples 4, 8 and 12 of this step in samples.jsonl: a likes longer"
        " responses"
    )


def test_a_resumed_monitor_says_what_an_unbroken_one_says() -> None:
    lengths = list(range(32))

    def column(step: int) -> Scores:
        rising = [float(n) for n in lengths]
        return scores(
            a=rising if step % 3 else uneven(32, step),
            b=[*uneven(24, step), *([None] * 8)],
            c=[1.0] * 32,
        )

    whole = monitor()
    heard = [whole.observe(step, column(step), lengths) for step in range(1, 13)]
    before, after = monitor(), monitor()
    first = [before.observe(step, column(step), lengths) for step in range(1, 7)]
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + [after.observe(step, column(step), lengths) for step in range(7, 13)] == heard
    assert any(heard[6:])


def test_pairs_before_a_pause_count_after_it() -> None:
    """Neither half has evidence for r = -0.6 by itself, both together do."""
    watch = monitor(window=50)
    hints: list[str] = []
    for step in range(13):
        rng = np.random.default_rng(step)
        a, noise = rng.standard_normal((2, 8))
        columns = scores(a=a.tolist(), b=(-0.6 * a + 0.8 * noise).tolist())
        hints += watch.observe(step, columns, LENGTHS[:8])
        state = json.loads(json.dumps(watch.state_dict()))
        watch = monitor(window=50)
        watch.load_state_dict(state)
    assert len(hints) == 1
    assert "a and b disagree" in hints[0]


def test_a_component_that_comes_later_and_one_that_goes() -> None:
    watch = monitor()
    lengths = list(range(32))
    watch.observe(1, scores(a=uneven(32)), lengths)
    assert len(watch.observe(2, scores(b=[float(n) for n in lengths]), lengths)) == 1


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([4, 16, 64]),
    binary=st.floats(0.3, 0.7),
    offset=st.sampled_from([0.0, 1e6, -3.0]),
    missing=st.floats(0.0, 0.03),
)
def test_healthy_random_scores_are_left_in_peace(
    seed: int, size: int, binary: float, offset: float, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    watch = Monitor(RewardMonitorConfig())
    for step in range(40):
        lengths = rng.integers(5, 500, size)
        judge = [
            None if rng.random() < missing else offset + float(x) for x in rng.standard_normal(size)
        ]
        written = [
            judged(
                f"Reading {rng.integers(10**9)} closely, I find it fair.",
                f"{step} {i}",
                rng.random(),
            )
            for i in range(size)
        ]
        found = scores(
            judge=judge, correct=(rng.random(size) < binary).astype(float).tolist(), critic=written
        )
        assert watch.observe(step, found, lengths.tolist()) == []


def test_responses_that_end_inside_their_thinking_are_no_failure_of_the_judge() -> None:
    detail = "the response ends inside its thinking"
    unasked = ScoreResult(value=None, status="unparseable", detail=detail, unasked=True)
    column = [*uneven(12), *([unasked] * 20)]
    # 20 of 32: (0.625 + 0.25 - 4 sqrt(0.2344/32 + 16/4096)) / 1.5 = 0.30
    [hint] = monitor(unparseable=0.29).observe(3, scores(judge=column), LENGTHS)
    assert hint == (
        "step 3: look at samples 13, 14 and 15 of this step in samples.jsonl: judge was not"
        " asked about 20 of 32 responses over 1 step: the response ends inside its thinking"
    )
    assert monitor(unparseable=0.31).observe(3, scores(judge=column), LENGTHS) == []


def test_a_monitor_goes_on_with_the_responses_that_were_not_asked_about() -> None:
    unasked = ScoreResult(value=None, status="unparseable", unasked=True)
    first = monitor(unparseable=0.29)
    first.observe(1, scores(judge=[*uneven(12), *([unasked] * 20)]), LENGTHS)
    again = monitor(unparseable=0.29)
    state = first.state_dict()
    again.load_state_dict(state)
    assert again.state_dict() == state
    # checkpoints of earlier versions have no such counts
    for step in state["steps"]:
        del step["unasked"]
    again.load_state_dict(state)
