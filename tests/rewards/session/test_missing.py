from __future__ import annotations

import math

import pytest

from rmrl.errors import MissingVerdictsError
from rmrl.rewards.session.missing import CAUSES, VerdictCounts, budget_problems, check_missing
from rmrl.types import STATUSES, ScoreResult, Scores


def column(*statuses: str) -> tuple[ScoreResult, ...]:
    return tuple(
        ScoreResult(value=1.0 if s == "ok" else None, status=s, detail=f"{s} happened")
        for s in statuses
    )  # type: ignore[arg-type]


def scores(*statuses: str) -> Scores:
    return Scores(names=("judge",), results=(column(*statuses),))


def test_counts_keep_the_first_detail_of_each_failure() -> None:
    counts = VerdictCounts()
    counts.add(column("ok", "timeout", "skipped"))
    counts.add((ScoreResult(value=None, status="timeout", detail="later"),))
    counts.add((ScoreResult(value=None, status="provider_error"),))
    assert (counts.rows, counts.asked, counts.missing()) == (5, 4, 3)
    assert counts.examples == {"timeout": "timeout happened"}


def test_every_status_of_a_failure_has_one_cause() -> None:
    assert sorted(s for statuses in CAUSES.values() for s in statuses) == sorted(
        set(STATUSES) - {"ok", "skipped"}
    )


@pytest.mark.parametrize(
    ("statuses", "stops"),
    [
        (("ok", "ok", "ok", "ok", "timeout"), False),  # 1 of 5 = 0.2, allowed
        (("ok", "ok", "ok", "timeout"), True),  # 1 of 4 = 0.25
        (("skipped",) * 6 + ("ok", "ok", "timeout", "timeout"), True),  # 2 of the 4 asked
        (("skipped",) * 8 + ("ok", "timeout"), False),  # one of a few that a gate left over
        (("skipped",) * 10, False),
        ((), False),
    ],
)
def test_the_share_is_of_the_rows_that_were_asked(statuses: tuple[str, ...], stops: bool) -> None:
    if not stops:
        check_missing(scores(*statuses), allowed=0.2, by_cause={})
        return
    said = r"reward 'judge' gave no verdict for \d of 4 responses (?s:.*)timeout happened"
    with pytest.raises(MissingVerdictsError, match=said) as caught:
        check_missing(scores(*statuses), allowed=0.2, by_cause={})
    assert caught.value.exit_code == 3


def test_a_cause_has_a_budget_of_its_own() -> None:
    mixed = scores(*["ok"] * 6, "unparseable", "unparseable", "unparseable", "user_error")
    check_missing(mixed, allowed=0.5, by_cause={"data": 0.3, "infrastructure": 0.0})
    with pytest.raises(
        MissingVerdictsError, match=r"max_missing_by_cause.user=0 allows 0%"
    ) as caught:
        check_missing(mixed, allowed=0.5, by_cause={"user": 0.0})
    assert "1 of 10 responses (1 user_error)" in str(caught.value)


def test_nothing_missing_is_allowed_when_the_user_says_so() -> None:
    with pytest.raises(MissingVerdictsError):
        check_missing(scores("skipped", "ok", "timeout"), allowed=0.0, by_cause={})


def test_budgets_are_shares_of_known_causes() -> None:
    assert budget_problems(0.2, {"data": 1, "user": 0.0}) == []
    (share,) = budget_problems(1.5, {})
    assert "reward.max_missing=1.5 is a share: give a number between 0 and 1" in share
    unknown, wrong = budget_problems(0.2, {"dta": 0.1, "user": "all"})
    assert "did you mean 'data'" in unknown
    assert "'all' is a share" in wrong
    assert budget_problems(math.nan, {}) != []
