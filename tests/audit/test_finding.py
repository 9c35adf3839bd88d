"""Verdicts, power and budget, by hand and by a clock that is moved by hand; words of the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import binom

from rmrl.audit.finding import Example, Finding, Limits, Trial, noted, unmeasured, verdict_of
from rmrl.audit.subject import Budget, OverBudgetError
from rmrl.commands.audit import key_words
from rmrl.config.load import compose_config
from rmrl.config.schema import AuditConfig
from rmrl.errors import ConfigError

LIMITS = Limits(0.05, 0.95)
EXAMPLE = Example(prompt="p", response="r")


def rate(faulty: int, count: int) -> Finding:
    trials = [Trial(number < faulty, EXAMPLE) for number in range(count)]
    return LIMITS.rate("a.b", "tried", trials, fault="accepted")


@pytest.mark.parametrize(
    ("faulty", "count", "verdict"),
    [(0, 4, "not measurable"), (0, 60, "pass"), (6, 60, "pass"), (8, 60, "fail"), (2, 5, "fail")],
)
def test_a_share_fails_where_its_whole_interval_lies_above_the_limit(
    faulty: int, count: int, verdict: str
) -> None:
    assert rate(faulty, count).verdict == verdict


def test_the_power_is_the_share_that_fails_four_times_in_five() -> None:
    least = next(faulty for faulty in range(61) if rate(faulty, 60).verdict == "fail")
    share = LIMITS.smallest_share(60)
    assert binom.sf(least - 1, 60, share) == pytest.approx(0.8)


def test_what_may_never_happen_fails_the_first_time() -> None:
    trials = [Trial(False, EXAMPLE)] * 30
    assert LIMITS.never("a.b", "tried", trials, fault="raise").verdict == "pass"
    trials += [Trial(True, EXAMPLE)]
    assert LIMITS.never("a.b", "tried", trials, fault="raise").verdict == "fail"
    assert LIMITS.never("a.b", "tried", [], fault="raise").verdict == "not measurable"


def test_notes_and_what_is_not_measurable_pass_nothing() -> None:
    silent = [noted("a.b", "tried", "found"), unmeasured("a.c", "tried", "no rows")]
    assert verdict_of(silent) == "not measurable"
    assert verdict_of([*silent, rate(0, 60)]) == "pass"
    assert verdict_of([*silent, rate(0, 60), rate(60, 60)]) == "fail"


def test_a_budget_ends_with_its_seconds_and_with_its_responses() -> None:
    now = [100.0]
    budget = Budget(lambda: now[0], 10.0, responses=3)
    now[0] = 200.0
    budget.begin()
    budget.take(2)
    with pytest.raises(OverBudgetError, match="max_responses=3"):
        budget.take(2)
    now[0] = 210.0
    with pytest.raises(OverBudgetError, match="budget_s=10"):
        budget.take(1)


def test_a_function_becomes_a_section(tmp_path: Path) -> None:
    words = key_words([f"{tmp_path}/mine.py::score", "label=human", "out=x"])
    assert words[1:] == ["audit.label=human", "out=x"]
    reward = compose_config(words, AuditConfig).reward
    assert reward.models == ["score"]
    assert reward.specs == {"score": {"function": f"{tmp_path}/mine.py:score"}}
    assert key_words(["trl.rewards:f"]) == ["reward.models=['trl.rewards:f']"]
    with pytest.raises(ConfigError, match="one function"):
        key_words(["a.py", "b.py"])
