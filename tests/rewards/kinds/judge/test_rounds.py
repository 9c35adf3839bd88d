"""Votes in rounds, until they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.judge.rounds import VotesUntil, largest_agreement, votes_until_problems
from rmrl.types import Sampling, ScoreResult
from tests.rewards.kinds.scripted import Scripted, context, said, spec
from tests.rewards.parts import items

UNTIL = {"agree": 3, "at_most": 8}
WARM = Sampling(max_tokens=16, temperature=1.0)


class Judge:
    """Votes on each response in the order of its script, a few at a time."""

    def __init__(self, scripts: dict[str, Sequence[str]]) -> None:
        self.left = {response: iter(votes) for response, votes in scripts.items()}
        self.engine = Scripted(self.answer)

    def answer(self, request: Any) -> list[TextOutput]:
        (response,) = (each for each in self.left if each in request.text)
        votes = [next(self.left[response]) for _ in range(request.sampling.n)]
        return [said(vote if "no" in vote else f"Score: {vote}") for vote in votes]

    @property
    def rounds(self) -> list[list[int]]:
        """Votes asked for in each call, by response."""
        return [[each.sampling.n for each in requests] for _, requests, _ in self.engine.asked]


async def judged(
    judge: Judge, tokenizer: Any, *, sampling: Sampling = WARM, **options: Any
) -> list[ScoreResult]:
    reward = spec(
        "generative",
        sampling=sampling,
        options=GenerativeReward.Options(
            rubric="good", fence=False, **{"votes_until": UNTIL, **options}
        ),
    )
    calls = context(tokenizer, main=judge.engine)
    return await GenerativeReward.from_spec(reward, calls).score(items(*judge.left))


async def test_clear_responses_are_asked_about_three_times_and_disputed_ones_more(
    tokenizer: Any,
) -> None:
    scripts = {
        "clear": "777",  # 3 of 3
        "nearly": "7787",  # 2 of 3, then one more
        "disputed": "12345671",  # never 3 of 8
    }
    judge = Judge(scripts)
    clear, nearly, disputed = await judged(judge, tokenizer)
    # disputed: best 1 of 3, so 2 more; 1 of 5, 2 more; 1 of 7, 2 would be needed and 1 is left
    assert judge.rounds == [[3, 3, 3], [1, 2], [2], [1]]
    assert [r.extra["votes_asked"] for r in (clear, nearly, disputed)] == [3, 4, 8]
    assert [r.extra["agreed"] for r in (clear, nearly, disputed)] == [True, True, False]
    assert clear.value == pytest.approx(0.7)
    assert nearly.extra["votes"] == [7.0, 7.0, 8.0, 7.0]
    assert nearly.value == pytest.approx((7 + 7 + 8 + 7) / 4 / 10)
    assert disputed.value == pytest.approx((1 + 2 + 3 + 4 + 5 + 6 + 7 + 1) / 8 / 10)


async def test_the_agreed_value_with_majority(tokenizer: Any) -> None:
    judge = Judge({"split": "78878"})
    (result,) = await judged(judge, tokenizer, votes="majority")
    # 8 twice of 3, one more: 7; one more: 8
    assert judge.rounds == [[3], [1], [1]]
    assert result.value == pytest.approx(0.8)


async def test_votes_that_lie_close_agree(tokenizer: Any) -> None:
    judge = Judge({"close": "678"})
    (result,) = await judged(judge, tokenizer, votes_until={**UNTIL, "within": 2})
    assert result.extra["votes_asked"] == 3


async def test_votes_that_cannot_be_read_are_asked_for_and_do_not_agree(tokenizer: Any) -> None:
    judge = Judge({"vague": ["no", "no", "5", "5", "5"]})
    (result,) = await judged(judge, tokenizer)
    assert judge.rounds == [[3], [2]]
    assert result.extra["votes"] == [None, None, 5.0, 5.0, 5.0]
    assert result.value == pytest.approx(0.5)
    judge = Judge({"silent": ["no"] * 8})
    (result,) = await judged(judge, tokenizer)
    assert (result.value, result.status, result.extra["votes_asked"]) == (None, "unparseable", 8)


async def test_an_input_that_fails_is_not_asked_again(tokenizer: Any) -> None:
    failure = said("", failure="overlong", detail="9 tokens and 8")
    engine = Scripted(lambda _: [failure])
    reward = spec(
        "generative",
        sampling=WARM,
        options=GenerativeReward.Options(rubric="good", votes_until=UNTIL),
    )
    (result,) = await GenerativeReward.from_spec(reward, context(tokenizer, main=engine)).score(
        items("r")
    )
    assert len(engine.asked) == 1
    assert (result.value, result.status) == (None, "overlong")


async def test_one_failed_vote_does_not_end_the_rounds(tokenizer: Any) -> None:
    failure = said("", failure="provider_error", detail="503")
    rounds = iter([[said("Score: 7"), failure, said("Score: 8")], [said("Score: 7")] * 2])
    engine = Scripted(lambda _: next(rounds))
    reward = spec(
        "generative",
        sampling=WARM,
        options=GenerativeReward.Options(rubric="good", votes_until={"agree": 3, "at_most": 5}),
    )
    (result,) = await GenerativeReward.from_spec(reward, context(tokenizer, main=engine)).score(
        items("r")
    )
    # 7 once of 3: 2 more, which make 7 three times
    assert len(engine.asked) == 2
    assert (result.status, result.extra["agreed"]) == ("ok", True)
    assert result.extra["votes"] == [7.0, None, 8.0, 7.0, 7.0]


async def test_rounds_are_seeded(tokenizer: Any) -> None:
    def seeds(judge: Judge) -> list[int]:
        return [request.sampling.seed for request in judge.engine.requests]

    drawn: list[list[int]] = []
    for seed in (None, None, 5):
        judge = Judge({"split": "78878"})
        sampling = Sampling(max_tokens=16, temperature=1.0, seed=seed)
        await judged(judge, tokenizer, sampling=sampling)
        drawn.append(seeds(judge))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 3  # a round never repeats the draws of another
    assert all(0 <= seed < 2**31 for seed in drawn[0])


async def test_nobody_is_asked_about_nothing(tokenizer: Any) -> None:
    judge = Judge({})
    assert await judged(judge, tokenizer) == []
    assert judge.rounds == []


def test_agreement_by_hand() -> None:
    assert largest_agreement([], 0.0) == 0
    assert largest_agreement([None, 3.0], 0.0) == 1
    assert largest_agreement([3.0, 1.0, 3.0, 2.0, 3.0], 0.0) == 3
    # 0.4 - 0.3 is 0.10000000000000003
    assert largest_agreement([0.3, 0.4], 0.1) == 2
    assert largest_agreement([0.3, 0.41], 0.1) == 1
    # 1 2 3 lie within 2, so do 3 4 5; not all five
    assert largest_agreement([5.0, 4.0, 3.0, 2.0, 1.0], 2.0) == 3


def test_how_many_are_asked_next() -> None:
    until = VotesUntil(agree=3, at_most=8)
    assert until.more([7.0, 7.0, 7.0], 3) == 0
    assert until.more([7.0, 8.0, 7.0], 3) == 1
    assert until.more([7.0, 8.0, 9.0], 3) == 2
    assert until.more([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 7) == 1
    assert until.more([None] * 8, 8) == 0


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (3, "votes_until=3: give entries, known: agree, at_most, within"),
        ({**UNTIL, "agre": 3}, "votes_until.agre: no such entry; did you mean 'agree'?"),
        ({"agree": 3}, "w.votes_until needs at_most, e.g. {agree: 3, at_most: 8}"),
        ({"agree": 1, "at_most": 3}, "votes_until.agree=1: give at least 2"),
        ({"agree": 4, "at_most": 3}, "at_most=3 is below agree=4"),
        ({**UNTIL, "within": -1}, "within=-1: must not be negative"),
    ],
)
def test_entries_that_cannot_be(entries: Any, sentence: str) -> None:
    (problem,) = votes_until_problems(entries, "w.votes_until")
    assert sentence in problem


def test_what_does_not_go_together() -> None:
    options = GenerativeReward.Options(score_tokens={"Y": 1.0, "N": 0.0}, votes_until=UNTIL)
    (problem,) = GenerativeReward.problems(options, "w")
    assert "w.votes_until: with score_tokens nothing is sampled" in problem
    options = GenerativeReward.Options(rubric="good", votes_until=UNTIL)
    assert GenerativeReward.problems(options, "w") == []
    cold = Sampling(max_tokens=16, temperature=0.0)
    many = Sampling(max_tokens=16, temperature=1.0, n=4)
    assert "temperature" in GenerativeReward.dropin_problem(None, options, cold)
    assert "sampling.n=4" in GenerativeReward.dropin_problem(None, options, many)
    assert GenerativeReward.dropin_problem(None, options, WARM) == ""
    options = GenerativeReward.Options(rubric="good", votes_until=UNTIL, min_votes=9)
    assert "min_votes=9" in GenerativeReward.dropin_problem(None, options, WARM)
