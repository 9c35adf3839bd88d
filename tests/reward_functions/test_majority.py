"""The rule of TTRL: what most responses to a prompt answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_functions.majority import compute_score
from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.dropins.signatures import InLists, rule_form

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("responses", "scores", "shares"),
    [
        # 0.5 three times in three spellings, 2 once, one response without an answer
        (
            ["\\boxed{0.5}", "so \\boxed{\\frac{1}{2}}", "\\boxed{1/2}", "it is 2", "no idea"],
            [1, 1, 1, 0, 0],
            [0.6, 0.6, 0.6, 0.2, 0],
        ),
        # two answers share the first place
        (["4", "#### 4", "\\boxed{5}", "5.0", "6"], [1, 1, 1, 1, 0], [0.4, 0.4, 0.4, 0.4, 0.2]),
        (["<answer>The Louvre</answer>", "\\boxed{louvre.}", "<answer>Orsay</answer>"], [1, 1, 0], [2 / 3, 2 / 3, 1 / 3]),
        (["-5", "5", "-5"], [1, 0, 1], [2 / 3, 1 / 3, 2 / 3]),
        (["what", "why"], [0, 0], [0, 0]),
        # what math-verify cannot read equals itself alone
        (["\\boxed{3@#}", "\\boxed{3@#}", "\\boxed{\\frac{}}", "\\boxed{2}"], [1, 1, 0, 0], [0.5, 0.5, 0.25, 0.25]),
    ],
)  # fmt: skip
def test_the_answer_of_most(responses: list[str], scores: list[int], shares: list[float]) -> None:
    verdicts = compute_score(responses)
    assert [verdict["score"] for verdict in verdicts] == scores
    assert [verdict["share"] for verdict in verdicts] == pytest.approx(shares)


def test_a_response_alone_has_no_majority() -> None:
    assert compute_score(["\\boxed{4}"]) == [None]


def test_it_is_called_with_whole_groups() -> None:
    dropin = load_dropin(ROOT / "reward_functions" / "majority.py", "majority")
    assert dropin.compute_score is not None
    assert isinstance(rule_form(dropin.compute_score, "majority"), InLists)
