"""A second model keeps the best votes of a judge."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import LabelOutput, TextOutput, ValueOutput
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.group.reward import GroupReward
from rmrl.rewards.kinds.judge.case import Choice
from rmrl.rewards.kinds.judge.meta_votes import keep_problem, meta_problems
from rmrl.rewards.kinds.shared.untrusted import new_fence
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.specs.labels import LabelReading
from rmrl.types import Sampling, ScoreItem, ScoreResult
from tests.rewards.kinds.scripted import Scripted, context, dropin, said, spec
from tests.rewards.parts import items

META = {"path": "/models/meta", "keep": 2}


class Court:
    """A judge that writes the same votes about every response, and a model that knows a number for
    each critique: the first of `scores` whose key is in what it reads."""

    def __init__(
        self, votes: Sequence[str | TextOutput], scores: dict[str, float | ValueOutput]
    ) -> None:
        self.scores = scores
        self.votes = list(votes)
        self.tokenizer: Any = None
        self.read: list[str] = []
        """What the second model read."""
        self.judge = Scripted(self.vote)
        self.meta = Scripted(self.score)

    def vote(self, request: Any) -> list[TextOutput]:
        given = self.votes[: request.sampling.n]
        self.votes = [*self.votes[len(given) :], *given]
        return [said(vote) if isinstance(vote, str) else vote for vote in given]

    def score(self, request: Any) -> ValueOutput:
        # The tokenizer has no token for a line break.
        text = self.tokenizer.decode(request.token_ids).replace("<unk>", "\n")
        self.read.append(text)
        (found,) = [score for key, score in self.scores.items() if key in text]
        if isinstance(found, ValueOutput):
            return found
        return ValueOutput(found, 100)


async def judged(
    court: Court,
    tokenizer: Any,
    *responses: str,
    meta: dict[str, Any] = META,
    n: int = 4,
    given: dict[str, Any] | None = None,
    **options: Any,
) -> list[ScoreResult]:
    """`given`: fields of the spec."""
    court.tokenizer = tokenizer
    asks = {"rubric": "good", "fence": False, **options}
    fields: dict[str, Any] = {
        "sampling": Sampling(max_tokens=64, temperature=1.0, n=n),
        "roles": ("main", "meta"),
        **(given or {}),
    }
    reward = spec("generative", options=GenerativeReward.Options(meta=meta, **asks), **fields)
    calls = context(tokenizer, main=court.judge, meta=court.meta, remote=court.judge)
    return await GenerativeReward.from_spec(reward, calls).score(items(*(responses or ("r",))))


FOUR = ("vague. Score: 2", "sharp. Score: 8", "lenient. Score: 9", "careful. Score: 5")
SCORES: dict[str, float | ValueOutput] = {
    "vague": -1.0,
    "sharp": 3.0,
    "lenient": 0.5,
    "careful": 2.0,
}


async def test_the_votes_with_the_best_critiques_make_the_score(tokenizer: Any) -> None:
    court = Court(FOUR, SCORES)
    (result,) = await judged(court, tokenizer)
    # 8 and 5 are kept: 6.5 of 10. All four: (2 + 8 + 9 + 5) / 4 = 6 of 10.
    assert result.value == pytest.approx(0.65)
    assert result.extra == {
        "votes": [2.0, 8.0, 9.0, 5.0],
        "meta": [-1.0, 3.0, 0.5, 2.0],
        "kept": [False, True, False, True],
        "on_scale": 6.5,
        "meta_shift": pytest.approx(0.05),
    }
    assert result.tokens_in == 10 + 4 * 100
    assert result.tokens_out == sum(map(len, FOUR))
    ((method, requests, deterministic),) = court.meta.asked
    assert (method, len(requests), deterministic) == ("classify", 4, True)


async def test_the_second_model_reads_the_question_and_the_critique_as_its_answer(
    tokenizer: Any,
) -> None:
    thinks = "<think>hm, Score: 1</think>sharp <|im_end|>. Score: 8"
    court = Court(["vague. Score: 2", thinks], SCORES)
    (result,) = await judged(court, tokenizer, "r<|im_end|>", meta={**META, "keep": 1}, n=2)
    question = result.rendered.removesuffix("<|im_start|>assistant\n")
    assert "Response:\nr< |im_end|>\n" in question
    assert court.read == [
        f"{question}<|im_start|>assistant\nvague. Score: 2<|im_end|>\n",
        f"{question}<|im_start|>assistant\nsharp < |im_end|>. Score: 8<|im_end|>\n",
    ]


async def test_a_quoted_response_does_not_reach_the_second_model(tokenizer: Any) -> None:
    quoted = new_fence("Perfect!", salt="Q").wrap("Perfect!")
    court = Court(
        [f"It says {quoted} and no more. Score: 3", "vague. Score: 1"],
        {"no more": 1.0, "vague": 0.0},
    )
    (result,) = await judged(
        court, tokenizer, "Perfect!", meta={**META, "keep": 1}, n=2, fence=True
    )
    assert result.extra["on_scale"] == 3.0
    assert court.read[0].count("Perfect!") == 1  # in the question


async def test_without_a_template_the_second_model_reads_a_pair(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", None)
    court = Court(["vague. Score: 2", "sharp. Score: 8"], SCORES)
    (result,) = await judged(court, tokenizer, meta={**META, "keep": 1}, n=2)
    pair = tokenizer(result.rendered.rstrip(), "sharp. Score: 8")["input_ids"]
    assert court.meta.requests[1].token_ids == tuple(pair)


async def test_its_own_tokens_are_broken_in_the_question_and_the_critique(
    tokenizer: Any, tmp_path: Path
) -> None:
    from tests.rewards.parts import chat_tokenizer

    other = chat_tokenizer(tmp_path)
    other.add_tokens(["<verdict>"], special_tokens=True)
    court = Court(["vague <verdict>. Score: 2", "sharp. Score: 8"], SCORES)
    court.tokenizer = other
    reward = spec(
        "generative",
        roles=("main", "meta"),
        sampling=Sampling(max_tokens=64, temperature=1.0, n=2),
        options=GenerativeReward.Options(rubric="good", meta={**META, "keep": 1}),
    )
    calls = context(tokenizer, main=court.judge, meta=court.meta)
    calls.tokenizer = lambda path: other if path == "/models/meta" else tokenizer
    (result,) = await GenerativeReward.from_spec(reward, calls).score(items("so <verdict>"))
    assert "so <verdict>" in result.rendered  # no token of the judge's
    assert "so < verdict>" in court.read[0]
    assert "vague < verdict>." in court.read[0]


async def test_of_equal_critiques_the_first_ones_count(tokenizer: Any) -> None:
    court = Court(FOUR, dict.fromkeys(SCORES, 0.5))
    (result,) = await judged(court, tokenizer)
    assert result.extra["kept"] == [True, True, False, False]
    assert result.extra["on_scale"] == 5.0  # 2 and 8


async def test_only_votes_that_can_be_read_compete(tokenizer: Any) -> None:
    failed = said("", failure="provider_error", detail="503")
    court = Court(["sharp, no number", "lenient. Score: 9", failed, *FOUR[::3]], SCORES)
    (result,) = await judged(court, tokenizer, n=5)
    # 9, 2 and 5 could be read; 5 (2.0) and 9 (0.5) are kept
    assert result.extra["votes"] == [None, 9.0, None, 2.0, 5.0]
    assert result.extra["meta"] == [None, 0.5, None, -1.0, 2.0]
    assert result.extra["kept"] == [False, True, False, False, True]
    assert result.extra["on_scale"] == 7.0
    assert len(court.read) == 3


async def test_where_there_is_nothing_to_choose_nobody_is_asked(tokenizer: Any) -> None:
    court = Court(["so so", "sharp. Score: 8", "hm", "careful. Score: 5"], SCORES)
    (result,) = await judged(court, tokenizer)
    assert court.meta.asked == []
    assert result.extra["meta"] == [None] * 4
    assert result.extra["kept"] == [False, True, False, True]
    assert (result.extra["on_scale"], result.extra["meta_shift"]) == (6.5, 0.0)
    assert result.tokens_in == 10


async def test_min_votes_counts_readable_votes(tokenizer: Any) -> None:
    votes = ["so so", "sharp. Score: 8", "careful. Score: 5", "lenient. Score: 9"]
    court = Court(votes, SCORES)
    (result,) = await judged(court, tokenizer, min_votes=4)
    assert (result.value, result.status, court.meta.asked) == (None, "unparseable", [])
    assert "3 of 4 votes could be read and min_votes is 4" in result.detail
    court = Court(votes, SCORES)
    (result,) = await judged(court, tokenizer, min_votes=3)
    assert (result.status, result.extra["on_scale"]) == ("ok", 6.5)


@pytest.mark.parametrize(
    ("output", "status", "words"),
    [
        (
            ValueOutput(math.nan, 9, failure="overlong", detail="9 tokens and 8"),
            "overlong",
            "9 tokens and 8",
        ),
        (ValueOutput(math.nan, 9, failure="timeout", detail="late"), "timeout", "late"),
        (ValueOutput(math.nan, 9), "provider_error", "the model gave nan"),
    ],
)
async def test_a_critique_without_a_score_costs_the_row_its_own(
    tokenizer: Any, output: ValueOutput, status: str, words: str
) -> None:
    court = Court(FOUR, {**SCORES, "lenient": output})
    (result,) = await judged(court, tokenizer)
    assert (result.value, result.status) == (None, status)
    assert result.detail == f"the meta model gave no score to a critique: {words}"
    assert result.extra["meta"] == [-1.0, 3.0, None, 2.0]
    assert result.extra["kept"] == [False] * 4
    assert result.tokens_in == 10 + 3 * 100 + 9


async def test_rows_do_not_share_a_choice(tokenizer: Any) -> None:
    votes = [*FOUR[:2], "so so", "so so"]
    court = Court([*FOUR, *votes, *FOUR[::-1]], SCORES)
    first, second, third = await judged(court, tokenizer, "a", "b", "c")
    assert [r.extra["on_scale"] for r in (first, second, third)] == [6.5, 5.0, 6.5]
    assert second.extra["meta"] == [None] * 4
    assert third.extra["kept"] == [True, False, True, False]
    assert len(court.meta.asked) == 1  # one call for all rows
    assert len(court.read) == 8


async def test_votes_in_rounds_are_chosen_from_when_they_end(tokenizer: Any) -> None:
    rounds = [
        "vague. Score: 2",
        "sharp. Score: 8",  # never two equal ones
        "lenient. Score: 9",
        "careful. Score: 5",
    ]
    court = Court(rounds, SCORES)
    (result,) = await judged(court, tokenizer, n=1, votes_until={"agree": 2, "at_most": 4})
    assert [requests[0].sampling.n for _, requests, _ in court.judge.asked] == [2, 1, 1]
    assert (result.extra["votes_asked"], result.extra["agreed"]) == (4, False)
    assert result.extra["kept"] == [False, True, False, True]
    assert result.extra["on_scale"] == 6.5
    assert len(court.meta.asked) == 1
    court = Court(["vague. Score: 2", "sharp. Score: 2"], SCORES)
    (result,) = await judged(court, tokenizer, n=1, votes_until={"agree": 2, "at_most": 4})
    assert (result.extra["votes_asked"], result.extra["kept"]) == (2, [True, True])
    assert court.meta.asked == []


async def test_the_kept_votes_are_combined_as_ever(tokenizer: Any) -> None:
    votes = [
        "vague. Score: 2",
        "vague too. Score: 2",
        "sharp. Score: 8",
        "careful. Score: 8",
        "lenient. Score: 9",
    ]
    scores = {"vague": -1.0, "sharp": 3.0, "careful": 2.0, "lenient": 0.5}
    court = Court(votes, scores)
    (result,) = await judged(court, tokenizer, n=5, meta={**META, "keep": 3}, votes="majority")
    # 8, 8, 9; of all five 2 and 8 are equally frequent: 5
    assert result.extra["on_scale"] == 8.0
    assert result.extra["meta_shift"] == pytest.approx(0.3)


async def test_a_drop_ins_columns_are_those_of_the_first_kept_vote(
    tokenizer: Any, tmp_path: Path
) -> None:
    code = (
        "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
        "    return [[{'role': 'system', 'content': 'Judge.'}, {'role': 'user', 'content': text}]\n"
        "            for text in text_responses]\n"
        "def rm_postprocess(results):\n"
        "    return [{'score': float(text[-1]), 'word': text.split('.')[0]} for text in results]\n"
    )
    court = Court(FOUR, SCORES)
    given = {"dropin": dropin(tmp_path, code)}
    (result,) = await judged(court, tokenizer, given=given)
    assert (result.value, result.extra["word"]) == (6.5, "sharp")
    assert result.extra["meta_shift"] == pytest.approx(0.5)
    assert court.read[0] == (
        "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
        "<|im_start|>assistant\nvague. Score: 2<|im_end|>\n"
    )
    code = code.replace(
        "[{'role': 'system', 'content': 'Judge.'}, {'role': 'user', 'content': text}]", "text"
    )
    court = Court(FOUR, SCORES)
    given = {"dropin": dropin(tmp_path, code)}
    await judged(court, tokenizer, given=given)
    assert court.read[0].startswith("<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\nvague.")


async def test_a_judge_on_a_server_and_a_second_model_of_ours(tokenizer: Any) -> None:
    court = Court(FOUR, SCORES)
    remote = HTTPSpec(url="http://localhost/v1", wire="openai")
    (result,) = await judged(court, tokenizer, given={"remote": remote, "roles": ("meta",)})
    assert result.value == pytest.approx(0.65)
    assert court.read[0].startswith("<|im_start|>user\nYou judge a response")


async def test_one_of_several_labels(tokenizer: Any) -> None:
    court = Court(["vague. Score: 2", "sharp. Score: 8"], SCORES)
    reading = LabelReading(("wrong", "right"), "none", {"right": 1.0})
    logits = iter([LabelOutput((0.0, 4.0), 7), LabelOutput((9.0, -4.0), 7)])
    court.meta = Scripted(lambda _: next(logits))
    (result,) = await judged(
        court, tokenizer, meta={**META, "keep": 1}, n=2, given={"labels": reading}
    )
    assert (result.extra["meta"], result.extra["on_scale"]) == ([4.0, -4.0], 2.0)
    assert court.meta.asked[0][0] == "label_logits"


# --- comparisons


def pair(number: int = 0) -> list[ScoreItem]:
    rows = items("q3", "q1")
    return [dataclasses.replace(row, group=number) for row in rows]


def divided(request: Any) -> list[TextOutput]:
    """One good reason for the better response, two bad ones for the other."""
    first, second = re.findall(r"q(\d)", request.text)
    right, wrong = ("A", "B") if first > second else ("B", "A")
    return [
        said(f"{why}. [[{name}]]")
        for why, name in (("sharp", right), ("vague", wrong), ("vague", wrong))
    ]


async def compared(
    court: Court, tokenizer: Any, *, meta: dict[str, Any], how: str = "pairwise"
) -> list[ScoreResult]:
    court.tokenizer = tokenizer
    reward = spec(
        "group",
        roles=("main", "meta"),
        sampling=Sampling(max_tokens=64, temperature=1.0, n=3),
        options=GroupReward.Options(fence=False, reasoning=True, meta=meta, how=how),
    )
    calls = context(tokenizer, main=Scripted(divided), meta=court.meta)
    return await GroupReward.from_spec(reward, calls).score(pair())


async def test_a_comparison_counts_the_votes_that_are_kept(tokenizer: Any) -> None:
    plain = await compared(Court([], {}), tokenizer, meta={})
    assert [result.value for result in plain] == [0.0, 1.0]  # two of three are wrong
    assert "kept" not in plain[0].extra
    court = Court([], {"sharp": 3.0, "vague": -1.0})
    results = await compared(court, tokenizer, meta={**META, "keep": 1})
    assert [result.value for result in results] == [1.0, 0.0]
    for result in results:
        # in both orders
        assert result.extra["meta"] == [[3.0, -1.0, -1.0]] * 2
        assert result.extra["kept"] == [[True, False, False]] * 2
    assert sum(result.tokens_in for result in results) == 2 * (10 + 3 * 100)
    assert len(court.meta.asked) == 1
    assert court.read[0].count("q3") == court.read[0].count("q1") == 1
    assert court.read[0].endswith("<|im_start|>assistant\nsharp. [[A]]<|im_end|>\n")


async def test_a_critique_of_a_comparison_without_a_score_leaves_it_without_a_verdict(
    tokenizer: Any,
) -> None:
    late = ValueOutput(math.nan, 9, failure="timeout", detail="late")
    court = Court([], {"sharp": late, "vague": -1.0})
    results = await compared(court, tokenizer, meta={**META, "keep": 1})
    assert [(result.value, result.status) for result in results] == [(None, "timeout")] * 2
    assert "2 of its 2 comparisons failed: the meta model gave no score" in results[0].detail


# --- entries


def test_choice_by_hand() -> None:
    scores = [ScoreResult(value=value) for value in (0.5, 0.7, 0.7, -1.0)]
    assert Choice([0, 2, 3, 5], 2, scores).kept == [2, 3]
    assert Choice([0, 2, 3, 5], 1, scores).kept == [2]
    assert Choice([0, 2, 3, 5], 3, scores).kept == [0, 2, 3]
    assert Choice([1, 4], 2).kept == [1, 4]
    assert Choice([], 2).columns(2) == {"meta": [None, None], "kept": [False, False]}


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (3, "w.meta=3: give entries, known: path, adapter, engine, keep"),
        ({**META, "kep": 3}, "w.meta.kep: no such entry"),
        ({"keep": 3}, "w.meta: the model that scores the critiques is not named"),
        ({"path": "x"}, "w.meta needs keep, e.g. w.meta={path: <folder or hub id>, keep: 4}"),
        ({**META, "keep": 0}, "w.meta.keep=0: give at least 1"),
        ({**META, "keep": 1.5}, "w.meta.keep=1.5: give a whole number"),
        ({**META, "activation": "relu"}, "w.meta.activation='relu': not a choice"),
        ({**META, "label": True}, "w.meta.label=True: give a name or a whole number"),
    ],
)
def test_entries_that_cannot_be(entries: Any, sentence: str) -> None:
    (problem,) = meta_problems(entries, "w.meta")
    assert sentence in problem


def test_what_does_not_go_together() -> None:
    assert meta_problems({}, "w.meta") == []
    assert keep_problem({}, 1, "sampling.n") == ""
    options = GenerativeReward.Options(score_tokens={"Y": 1.0, "N": 0.0}, meta=META)
    (problem,) = GenerativeReward.problems(options, "w")
    assert "w.meta: with score_tokens nothing is sampled" in problem
    options = GenerativeReward.Options(rubric="good", meta=META)
    assert GenerativeReward.problems(options, "w") == []

    def problem_of(n: int, **more: Any) -> str:
        options = GenerativeReward.Options(rubric="good", meta=META, **more)
        sampling = Sampling(max_tokens=16, temperature=1.0, n=n)
        return GenerativeReward.dropin_problem(None, options, sampling)

    assert problem_of(3) == ""
    of_group = GroupReward.Options(meta=META)
    assert GroupReward.problems(of_group, "w") == []
    (problem,) = GroupReward.problems(GroupReward.Options(meta={"keep": 1}), "w")
    assert "w.meta: the model that scores the critiques is not named" in problem
    two = Sampling(max_tokens=16, temperature=1.0, n=2)
    assert "keeps meta.keep=2 of sampling.n=2" in GroupReward.dropin_problem(None, of_group, two)
    assert GroupReward.dropin_problem(None, GroupReward.Options(), two) == ""
    assert "keeps meta.keep=2 of sampling.n=2 votes" in problem_of(2)
    assert problem_of(1, votes_until={"agree": 2, "at_most": 3}) == ""
    problem = problem_of(1, votes_until={"agree": 2, "at_most": 2})
    assert "keeps meta.keep=2 of votes_until.at_most=2 votes" in problem
    assert "raise votes_until.at_most or lower meta.keep" in problem
