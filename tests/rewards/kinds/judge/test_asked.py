"""A judge is asked for its verdict behind its own text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.group.reward import GroupReward
from rmrl.rewards.kinds.judge.asked import VerdictTree, levels_of
from rmrl.rewards.kinds.rubric.row_criteria import Options as RubricOptions
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult
from tests.rewards.kinds.scripted import GREEDY, Scripted, context, dropin, said, spec
from tests.rewards.parts import items

Options = GenerativeReward.Options
ASK = Options(rubric="It is right.", verdict="ask")
CHANCES = {"7": 0.5, "9": 0.25, "1": 0.2}
"""Probabilities of the first digit; behind a 1 comes a 0 with .75."""
READS_ONLY = "def rm_postprocess(results):\n    return [1.0 for _ in results]\n"
ASKS_ONLY = (
    "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
    "    return [f'{p} {r}' for p, r in zip(text_prompts, text_responses, strict=True)]\n"
)


@pytest.fixture(scope="module")
def bpe(smollm2: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2)


def likely(probability: float) -> float:
    return math.log(probability) if probability else -math.inf


class Judge:
    """Writes `texts`, then says how likely each token is behind `prefix`."""

    def __init__(self, bpe: Any, *texts: TextOutput, chances: Any = None) -> None:
        self.bpe = bpe
        self.texts = list(texts)
        self.chances = chances or {"Score: ": CHANCES, "Score: 1": {"0": 0.75}}
        self.behind: list[str] = []
        self.engine = Scripted(self.answer)

    def answer(self, request: GenerateRequest) -> list[TextOutput]:
        if not request.choice_tokens:
            return self.texts
        assert (request.sampling.max_tokens, request.sampling.temperature) == (1, 0.0)
        read = self.bpe.decode(request.token_ids)
        self.behind.append(read.split("assistant\n")[-1])
        chances = next(of for end, of in self.chances.items() if read.endswith(end))
        numbers = tuple(
            likely(chances.get(self.bpe.decode([token]), 0.0)) for token in request.choice_tokens
        )
        return [TextOutput("7", "length", 100, 1, numbers)]

    async def score(
        self,
        options: Any,
        rows: list[ScoreItem] | None = None,
        kind: str = "generative",
        **entries: Any,
    ) -> list[ScoreResult]:
        entries = {"overlong": "missing", **entries}
        reward = spec(kind, options=options, **entries)
        made = REWARD_KINDS[kind].from_spec(reward, context(self.bpe, main=self.engine))
        return await made.score(rows or items("r"))


@pytest.mark.parametrize(
    ("scale", "levels"),
    [
        ([0, 10], [str(level) for level in range(11)]),
        ([1.0, 5.0], ["1", "2", "3", "4", "5"]),
        ([-1, 1], ["-1", "0", "1"]),
        ([0, 1], [f"{tenth / 10:.1f}" for tenth in range(11)]),
        ([0.5, 0.7], ["0.5", "0.6", "0.7"]),
        ([0, 100], [str(level) for level in range(101)]),
        ([0, 101], []),
        ([0, 0.25], []),
        ([0.5, 9.5], []),
        ([], []),
    ],
)
def test_the_levels_of_a_scale(scale: list[float], levels: list[str]):
    assert levels_of(scale) == tuple(levels)


def test_a_level_that_begins_another_one_has_what_that_leaves(bpe: Any):
    tree = VerdictTree("\n\nScore: ", levels_of([0, 10]), bpe, where="w")
    assert bpe.decode(tree.prefix) == "\n\nScore: "
    assert [bpe.decode(node.path) for node in tree.nodes] == ["", "1"]
    assert [bpe.decode(node.tokens) for node in tree.nodes] == ["0123456789", "0"]
    first = [likely(CHANCES.get(str(digit), 0.0)) for digit in range(10)]
    verdict = tree.verdict([first, [likely(0.75)]])
    assert verdict is not None
    # 10: .2 * .75; 1: .2 * .25; the mass is .95
    assert verdict.mass == pytest.approx(0.95)
    shares = {level: share for level, share in verdict.shares.items() if share}
    assert shares == pytest.approx(
        {"1": 0.05 / 0.95, "7": 0.5 / 0.95, "9": 0.25 / 0.95, "10": 0.15 / 0.95}
    )
    assert verdict.level == "7"
    assert verdict.expected() == pytest.approx((0.05 + 3.5 + 2.25 + 1.5) / 0.95)


def test_shares_need_no_more_than_a_common_constant(bpe: Any):
    tree = VerdictTree("\nScore: ", ("2", "3"), bpe, where="w")
    verdict = tree.verdict([[1.0, 1.0]])
    assert verdict is not None
    assert (verdict.shares, verdict.mass) == ({"2": 0.5, "3": 0.5}, 1.0)
    assert tree.verdict([[-math.inf, -math.inf]]) is None


def test_equal_tokens_for_two_levels_are_refused(bpe: Any):
    with pytest.raises(ConfigError, match="with the same tokens; write verdict=parse"):
        VerdictTree("Score: ", ("2", "2"), bpe, where="w")


@pytest.mark.parametrize(
    ("verdict", "on_scale"), [("ask", 7.0), ("expect", (0.05 + 3.5 + 2.25 + 1.5) / 0.95)]
)
async def test_the_judge_is_asked_behind_its_text(bpe: Any, verdict: str, on_scale: float):
    judge = Judge(bpe, said("It is long."))
    (result,) = await judge.score(Options(rubric="It is right.", verdict=verdict))
    assert judge.behind == ["It is long.\n\nScore: ", "It is long.\n\nScore: 1"]
    assert result.extra["on_scale"] == pytest.approx(on_scale)
    assert result.value == pytest.approx(on_scale / 10)
    assert result.extra["label_mass"] == pytest.approx(0.95)
    assert result.raw_text == "It is long."
    # 10 tokens of the question and 100 at each of two nodes
    assert (result.tokens_in, result.tokens_out) == (210, len("It is long.") + 2)


@pytest.mark.parametrize(("floor", "status"), [(0.9, "ok"), (0.96, "unparseable")])
async def test_levels_that_the_judge_would_not_write_are_no_verdict(
    bpe: Any, floor: float, status: str
):
    """All levels have 0.95 together."""
    judge = Judge(bpe, said("It is long."))
    options = Options(rubric="It is right.", verdict="ask", min_label_mass=floor)
    (result,) = await judge.score(options)
    assert result.status == status
    assert result.extra["label_mass"] == pytest.approx(0.95)
    assert ("below min_label_mass=0.96" in result.detail) == (status == "unparseable")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("It is long.\nScore: 3", "It is long."),  # asked again in its place
        ("It is long.\n\n**Final score:** 3/10\n", "It is long."),
        ("Score: 3 is too low.\nIt is long.", "Score: 3 is too low.\nIt is long."),
        ("<think>Hm.</think>\nIt is long.", "<think>Hm.</think>\nIt is long."),
        ("It ends with <|im_end|>", "It ends with < |im_end|>"),  # no end of its turn
    ],
)
async def test_what_the_verdict_is_asked_behind(bpe: Any, text: str, asked: str):
    judge = Judge(bpe, said(text))
    await judge.score(ASK)
    assert judge.behind[0] == f"{asked}\n\nScore: "


@pytest.mark.parametrize(
    ("output", "status", "words"),
    [
        (said("It is lo", "length"), "judge_truncated", "raise sampling.max_tokens"),
        (said("<think>Hm", "length"), "judge_truncated", "inside its thinking block"),
        (said("I can't help with that."), "judge_refused", "refused"),
        (said(""), "unparseable", "no verdict"),
        (said("", failure="timeout", detail="60 s"), "timeout", "60 s"),
    ],
)
async def test_a_judge_without_a_whole_text_is_not_asked(
    bpe: Any, output: TextOutput, status: str, words: str
):
    judge = Judge(bpe, output)
    (result,) = await judge.score(ASK)
    assert (result.value, result.status, judge.behind) == (None, status, [])
    assert words in result.detail


async def test_a_question_that_fails_is_the_status_of_its_row(bpe: Any):
    judge = Judge(bpe, said("It is long."))
    overlong = TextOutput("", "", 9, 0, failure="overlong", detail="9 tokens and 8")
    judge.engine.answer = lambda request: [overlong] if request.choice_tokens else judge.texts
    (result,) = await judge.score(ASK)
    assert (result.value, result.status) == (None, "overlong")
    assert result.detail == "when asked for the verdict: 9 tokens and 8"
    assert result.raw_text == "It is long."


async def test_an_engine_without_probabilities_gives_no_verdict(bpe: Any):
    judge = Judge(bpe, said("It is long."), chances={"": {}})
    (result,) = await judge.score(ASK)
    assert (result.value, result.status) == (None, "unparseable")
    assert "the engine returned no probability of a verdict" in result.detail


async def test_each_sample_is_asked_and_counts(bpe: Any):
    judge = Judge(bpe, said("One."), said("Cut", "length"), said("Three."))
    sampling = Sampling(max_tokens=16, temperature=1.0, n=3)
    (result,) = await judge.score(ASK, sampling=sampling)
    assert result.extra["votes"] == [7.0, None, 7.0]
    assert judge.behind[::2] == ["One.\n\nScore: ", "Three.\n\nScore: "]
    assert (result.tokens_in, result.tokens_out) == (10 + 400, len("One.CutThree.") + 4)
    # The texts are drawn; what is asked behind them is not.
    assert [deterministic for _, _, deterministic in judge.engine.asked] == [False, True]


async def test_votes_in_rounds_are_asked(bpe: Any):
    judge = Judge(bpe, said("One."), said("Two."))
    options = Options(rubric="x", verdict="ask", votes_until={"agree": 2, "at_most": 4})
    sampling = Sampling(max_tokens=16, temperature=1.0)
    (result,) = await judge.score(options, sampling=sampling)
    assert (result.extra["votes"], result.extra["agreed"]) == ([7.0, 7.0], True)


async def test_a_dropin_that_only_asks(bpe: Any, tmp_path: Path):
    judge = Judge(bpe, said("It is long."))
    options = Options(fence=False, verdict="ask")
    (result,) = await judge.score(options, dropin=dropin(tmp_path, ASKS_ONLY))
    assert (result.value, result.rendered) == (7.0, "Q r")


async def test_a_holistic_rubric_is_asked(bpe: Any):
    judge = Judge(bpe, said("It is long."))
    options = RubricOptions(criteria=["It is right."], combine="holistic", verdict="ask")
    (result,) = await judge.score(options, kind="rubric")
    assert result.value == 0.7


async def test_a_pair_is_asked(bpe: Any):
    judge = Judge(
        bpe, said("The first is longer.\nVerdict: [[B]]"), chances={"[[": {"A": 0.6, "B": 0.3}}
    )
    options = GroupReward.Options(reasoning=True, verdict="ask", both_orders=False)
    first, second = await judge.score(options, items("r", "s"), kind="group")
    assert judge.behind == ["The first is longer.\n\nVerdict: [["]
    assert {first.value, second.value} == {0.0, 1.0}
    assert first.extra["label_mass"] == [pytest.approx(0.9)]
    assert {first.tokens_in, second.tokens_in} == {110, 0}


Problem = Callable[[], list[str] | str]


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        (lambda: GenerativeReward.problems(Options(verdict="asks"), "w"), "w.verdict='asks': not a choice; did you mean 'ask'? known: ask, expect, parse"),
        (lambda: GenerativeReward.problems(Options(verdict="ask", scale=[]), "w"), "w.scale=[] has no levels"),
        (lambda: GenerativeReward.problems(Options(verdict="ask", scale=[0, 0.25]), "w"), "no levels"),
        (lambda: GenerativeReward.dropin_problem(None, Options(verdict="ask", parser="(?P<score>.)"), GREEDY), "verdict=ask, which asks the judge for its verdict, beside parser"),
        (lambda: GenerativeReward.dropin_problem(None, Options(verdict="ask", score_tokens={"Yes": 1.0}), GREEDY), "beside score_tokens"),
        (lambda: GenerativeReward.dropin_problem(None, Options(verdict="ask"), Sampling(max_tokens=8, choice=("1", "2"))), "beside sampling.choice"),
        (lambda: GenerativeReward.dropin_problem(None, Options(verdict="ask"), Sampling(max_tokens=8, regex="1")), "beside sampling.regex"),
        (lambda: GenerativeReward.dropin_problem(None, Options(verdict="ask"), Sampling(max_tokens=8, json_schema="{}")), "beside sampling.json_schema"),
        (lambda: GroupReward.problems(GroupReward.Options(verdict="expect"), "w"), "w.verdict='expect': not a choice; known: ask, parse"),
        (lambda: GroupReward.problems(GroupReward.Options(verdict="ask"), "w"), "reasoning=true"),
        (lambda: GroupReward.problems(GroupReward.Options(verdict="ask", how="listwise", reasoning=True), "w"), "how=listwise"),
        (lambda: GroupReward.dropin_problem(None, GroupReward.Options(verdict="ask", parser="(?P<verdict>A)"), GREEDY), "beside parser"),
        (lambda: REWARD_KINDS["rubric"].problems(RubricOptions(criteria=["x"], verdict="ask"), "w"), "combine=weighted_mean does not read it"),
        (lambda: REWARD_KINDS["rubric"].dropin_problem(None, RubricOptions(criteria=["x"], combine="holistic", verdict="ask"), Sampling(max_tokens=8, choice=("1",))), "beside sampling.choice"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_a_sentence(problems: Problem, words: str):
    assert words in str(problems())


def test_a_dropin_that_reads_is_not_asked_beside(tmp_path: Path):
    reads = dropin(tmp_path, ASKS_ONLY + READS_ONLY)
    problem = GenerativeReward.dropin_problem(reads, Options(verdict="ask"), GREEDY)
    assert "a drop-in with rm_postprocess" in problem


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("generative", ASK),
        ("group", GroupReward.Options(reasoning=True, verdict="ask")),
        ("rubric", RubricOptions(criteria=["x"], combine="holistic", verdict="ask")),
    ],
)
def test_a_server_is_not_asked(bpe: Any, kind: str, options: Any):
    remote = HTTPSpec(wire="openai", url="http://localhost:1", model="m")
    reward = spec(kind, roles=(), remote=remote, options=options)
    with pytest.raises(ConfigError, match=r"r\.verdict=ask: a server does not return"):
        REWARD_KINDS[kind].from_spec(reward, context(bpe))


def test_an_input_leaves_room_for_what_is_asked(bpe: Any, tmp_path: Path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 256}', encoding="utf-8")
    reward = spec("generative", options=ASK, overlong="truncate_right")
    engine = dataclasses.replace(reward.engines["main"], path=str(tmp_path), max_model_len=256)
    limits: dict[str, int] = {}
    for verdict in ("parse", "ask"):
        options = dataclasses.replace(ASK, verdict=verdict)
        changed = dataclasses.replace(reward, engines={"main": engine}, options=options)
        limit = GenerativeReward(changed, context(bpe))._judge.limit
        assert limit is not None
        limits[verdict] = limit.tokens
    tree = VerdictTree("\n\nScore: ", levels_of([0, 10]), bpe, where="w")
    assert limits["parse"] - limits["ask"] == tree.length
