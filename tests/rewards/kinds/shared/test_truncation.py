"""Inputs that do not fit are cut where the user says so: in the texts that are judged, never in
what stands around them.

The tokenizer of these tests has a token for each character; the engines take 60 of them unless told
otherwise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import EmbedOutput, PoolingRequest, TokenOutput, ValueOutput
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.bradley_terry.reward import BradleyTerryReward
from rmrl.rewards.kinds.critique.reward import CritiqueReward
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.group.reward import GroupReward
from rmrl.rewards.kinds.process.reward import ProcessReward
from rmrl.rewards.kinds.shared.token_pieces import shares
from rmrl.rewards.kinds.shared.truncation import MARK
from rmrl.rewards.kinds.similarity.reward import SimilarityReward
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, Step
from tests.rewards.kinds.scripted import Scripted, context, dropin, said, spec
from tests.rewards.parts import ENGINE, checkpoint, items

LENGTH = 60
CUTS = ["truncate_left", "truncate_right", "truncate_middle"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SENTENCE = "tokens were left out of what the model read"


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., RewardSpec]:
    """made(kind, overlong, length=..., **entries): a spec whose engines take `length` tokens."""
    folder = checkpoint(tmp_path / "model")
    (folder / "config.json").write_text('{"max_position_embeddings": 100000}', encoding="utf-8")

    def make(kind: str, overlong: str, *, length: int = LENGTH, **entries: Any) -> RewardSpec:
        whole = spec(kind, overlong=overlong, **entries)
        engines = {
            role: dataclasses.replace(engine, path=str(folder), max_model_len=length)
            for role, engine in whole.engines.items()
        }
        return dataclasses.replace(whole, engines=engines)

    return make


@pytest.fixture
def plain(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tokenizer without a chat template: scalar models read pairs."""
    monkeypatch.setattr(tokenizer, "chat_template", None)
    return tokenizer


def scalar() -> Scripted:
    """A model that gives each input the number of its tokens."""
    return Scripted(
        lambda request: ValueOutput(float(len(request.token_ids)), len(request.token_ids))
    )


Cutting = Callable[..., BradleyTerryReward]


@pytest.fixture
def cutting(tokenizer: Any, made: Callable[..., RewardSpec]) -> Cutting:
    """cutting(overlong, **entries): a scalar reward that scores with `scalar`."""

    def make(overlong: str, **entries: Any) -> BradleyTerryReward:
        reward = made("bradley_terry", overlong, sampling=None, **entries)
        return BradleyTerryReward.from_spec(reward, context(tokenizer, main=scalar()))

    return make


# --- how much each text keeps


def test_longer_texts_lose_first():
    assert shares([10, 50], 40) == [10, 30]
    assert shares([50, 10], 40) == [30, 10]
    assert shares([50, 50], 41) == [20, 21]  # the odd one is the second's, as with "longest_first"
    assert shares([5, 50, 100], 65) == [5, 30, 30]
    assert shares([3, 3], 100) == [3, 3]


# --- scalar models


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ("truncate_right", "abcdefgh"),
        ("truncate_left", "stuvwxyz"),
        ("truncate_middle", "abcd wxyz"),
    ],
)
async def test_the_longer_text_of_a_pair_is_cut_and_the_other_stays(
    plain: Any, made: Any, how: str, kept: str
):
    length = len(plain("", "")["input_ids"]) + 5 + len(kept)
    reward = made("bradley_terry", how, sampling=None, length=length)
    about = context(plain, main=scalar())
    rows = items(LETTERS, prompt="12345")
    (result,) = await BradleyTerryReward.from_spec(reward, about).score(rows)
    assert result.rendered == f"12345\n---\n{kept}"
    assert result.value == length
    assert result.extra == {"truncated_tokens": 26 - len(kept)}
    assert result.detail == f"{26 - len(kept)} {SENTENCE} (overlong={how})"
    assert about.counts.totals == {"truncated": [1, 1]}


@pytest.mark.parametrize("how", CUTS)
async def test_the_chat_template_stays_whole(cutting: Cutting, how: str):
    (read,) = cutting(how).render(items(LETTERS * 4, prompt=LETTERS * 3))
    assert len(read.token_ids) <= LENGTH
    assert len(read.token_ids) > LENGTH - 3
    assert read.text.startswith("<|im_start|>user\n")
    assert read.text.endswith("<|im_end|>\n")
    assert "<|im_end|>\n<|im_start|>assistant\n" in read.text


async def test_what_fits_is_not_touched(cutting: Cutting):
    rows = items("short", LETTERS * 9)
    cut = await cutting("truncate_right").score(rows)
    whole = await cutting("missing").score(rows)
    assert cut[0] == whole[0]
    assert cut[1].extra["truncated_tokens"] > 0
    assert whole[1].extra == {}


async def test_where_nothing_is_to_be_cut_nothing_is_counted(tokenizer: Any, made: Any):
    about = context(tokenizer, main=scalar())
    reward = BradleyTerryReward.from_spec(made("bradley_terry", "missing", sampling=None), about)
    await reward.score(items(LETTERS * 9))
    assert about.counts.totals == {}


async def test_of_a_conversation_the_oldest_turns_go_first_from_the_left(cutting: Cutting):
    turns = [
        {"role": "user", "content": "old old old"},
        {"role": "assistant", "content": "mid"},
        {"role": "user", "content": "new"},
    ]
    (item,) = items("answer")
    rows = [dataclasses.replace(item, rm_prompt=turns)]
    (whole,) = cutting("missing").render(rows)
    (read,) = cutting("truncate_left", length=len(whole.token_ids) - 8).render(rows)
    assert len(read.token_ids) == len(whole.token_ids) - 8
    for turn in ("user\nold", "assistant\nmid", "user\nnew"):
        assert f"<|im_start|>{turn}<|im_end|>" in read.text
    assert read.text.count("<|im_start|>") == 4


async def test_a_frame_that_does_not_fit_stays_as_it_was(cutting: Cutting):
    (read,) = cutting("truncate_right", length=8).render(items("response"))
    assert (read.left_out, "response" in read.text) == (0, True)


async def test_a_drop_in_gets_shorter_texts_and_its_own_words_stay(
    cutting: Cutting, tmp_path: Path
):
    code = (
        "def rm_preprocess(p, r, t, responses):\n"
        "    return [f'Task: {a} Reply: {b} Good?' for a, b in zip(p, responses)]\n"
        "def rm_postprocess(results):\n"
        "    return results\n"
    )
    reward = cutting("truncate_right", dropin=dropin(tmp_path, code))
    (read,) = reward.render(items(LETTERS * 9, prompt="why"))
    assert len(read.token_ids) == LENGTH
    assert read.text.startswith("Task: why Reply: abcdefghijkl")
    assert read.text.endswith(" Good?")


async def test_a_special_token_is_not_made_by_joining_the_halves(cutting: Cutting):
    reward = cutting("truncate_middle")
    for length in range(40, 60):
        (read,) = reward.render(items(f"<|im_{'x' * length}end|>"))
        assert read.text.count("<|im_end|>") == 2


# --- judges


@pytest.mark.parametrize("how", CUTS)
async def test_a_judge_keeps_its_question_and_the_fence_and_the_cut_is_marked(
    tokenizer: Any, made: Any, how: str
):
    engine = Scripted(lambda _: [said("Score: 7")])
    options = GenerativeReward.Options(rubric="short")
    sampling = Sampling(max_tokens=100, temperature=0.0)
    reward = made("generative", how, length=900, options=options, sampling=sampling)
    about = context(tokenizer, main=engine)
    rows = items(LETTERS * 60, prompt="why")
    (result,) = await GenerativeReward.from_spec(reward, about).score(rows)
    (request,) = engine.requests
    assert 780 < len(request.token_ids) <= 800  # 100 tokens are kept for the verdict
    assert result.value == 0.7  # 7 of the rubric's 0 to 10
    rendered = result.rendered
    assert rendered.count("[begin ") == rendered.count("[end ") == 2  # the note and the fence
    assert rendered.count(MARK) == 1
    assert "Rubric:\nshort" in rendered
    assert rendered.rstrip().endswith("<|im_start|>assistant")
    assert "why" in rendered
    assert about.counts.totals == {"truncated": [1, 1]}


async def test_a_judge_that_writes_more_than_half_its_context_reads_half(tokenizer: Any, made: Any):
    options = GenerativeReward.Options(rubric="short")
    sampling = Sampling(max_tokens=5000, temperature=0.0)
    reward = made("generative", "truncate_right", length=1600, sampling=sampling, options=options)
    (read,) = GenerativeReward.from_spec(reward, context(tokenizer)).render(items(LETTERS * 60))
    assert 780 < len(read.token_ids) <= 800


async def test_the_second_model_of_a_judge_reads_the_question_cut_and_the_critique_whole(
    tokenizer: Any, made: Any
):
    long = "x" * 60 + " Score: 3"

    def answer(request: Any) -> ValueOutput:
        length = len(request.token_ids)
        if length > 700:
            return ValueOutput(math.nan, length, failure="overlong", detail="over 700")
        return ValueOutput(float(length), length)

    def about(*critiques: str) -> tuple[Any, Scripted, GenerativeReward]:
        reward = made(
            "generative",
            "truncate_right",
            roles=("main", "meta"),
            length=700,
            sampling=Sampling(max_tokens=16, temperature=1.0, n=2),
            options=GenerativeReward.Options(rubric="short", meta={"path": "x", "keep": 1}),
        )
        meta = Scripted(answer)
        judge = Scripted(lambda _: list(map(said, critiques)))
        asked = context(tokenizer, main=judge, meta=meta)
        return asked, meta, GenerativeReward.from_spec(reward, asked)

    asked, meta, reward = about(long, "Score: 4")
    (read,) = reward.render(items(LETTERS * 60))
    assert 680 < len(read.token_ids) <= 684  # 16 tokens are kept for the verdict
    (result,) = await reward.score(items(LETTERS * 60))
    first, second = (tokenizer.decode(request.token_ids) for request in meta.requests)
    assert f"<|im_start|>assistant<unk>{long}<|im_end|>" in first  # <unk>: the line break
    assert first.count(MARK) == second.count(MARK) == 1
    assert first.count("[ begin ") == first.count("[ end ") == 2  # the note and the fence
    lengths = [len(request.token_ids) for request in meta.requests]
    # 70 tokens more do not fit; those of the second critique do, with the end of its turn (2) and
    # the spaces in the four marks.
    assert 690 < lengths[0] <= 700
    assert lengths[1] == len(read.token_ids) + len("Score: 4") + 2 + 4
    assert result.extra["meta"] == lengths
    assert result.extra["truncated_tokens"] >= read.left_out + 50
    assert asked.counts.totals == {"truncated": [1, 1]}
    # Of a critique nothing is cut.
    asked, meta, reward = about("y" * 800 + " Score: 3", "Score: 4")
    (result,) = await reward.score(items("r"))
    assert (result.value, result.status) == (None, "overlong")
    assert result.detail == "the meta model gave no score to a critique: over 700"


async def test_a_critique_is_cut_for_both_models(tokenizer: Any, made: Any):
    critic = Scripted(lambda _: [said("fine")])
    reward = made(
        "critique",
        "truncate_right",
        roles=("main", "scorer"),
        length=700,
        options=CritiqueReward.Options(scorer={"path": "x"}),
    )
    about = context(tokenizer, main=critic, scorer=scalar())
    (result,) = await CritiqueReward.from_spec(reward, about).score(items(LETTERS * 60))
    (read,) = CritiqueReward.from_spec(reward, about).render_scorer(items(LETTERS * 60), ["fine"])
    assert len(read.token_ids) <= 700
    assert "A critique of the reply above:\nfine<|im_end|>" in read.text
    assert result.value == len(read.token_ids)
    assert result.extra["truncated_tokens"] > read.left_out > 0
    assert about.counts.totals == {"truncated": [1, 1]}


async def test_a_group_judge_reads_as_much_of_each_response(tokenizer: Any, made: Any):
    engine = Scripted(
        lambda request: [said("A" if "aaa" in request.messages[-1][1].partition("bbb")[0] else "B")]
    )
    reward = made("group", "truncate_right", length=900, options=GroupReward.Options())
    about = context(tokenizer, main=engine)
    results = await GroupReward.from_spec(reward, about).score([*items("a" * 900, "b" * 900)])
    assert [r.value for r in results] == [1.0, 0.0]
    for request in engine.requests:
        text = request.messages[-1][1]
        assert abs(text.count("a" * 100) - text.count("b" * 100)) <= 1
        assert text.count(MARK) == 2
        assert len(request.token_ids) <= 884
    assert about.counts.totals == {"position_flips": [0, 1], "truncated": [2, 2]}
    assert all(r.extra["truncated_tokens"] > 0 for r in results)


# --- steps

STEPS = "one.two.three.four.five"


@pytest.mark.parametrize(
    ("how", "ends"),
    [("truncate_right", [4, 8]), ("truncate_left", [19, 23]), ("truncate_middle", [4, 23])],
)
async def test_steps_that_are_left_out_have_no_score_and_the_others_keep_their_places(
    tokenizer: Any, made: Any, how: str, ends: list[int]
):
    def counting(request: PoolingRequest) -> TokenOutput:
        logits = tuple((float(k + 1),) for k in range(len(request.positions)))
        return TokenOutput(logits, len(request.token_ids))

    options = ProcessReward.Options(separator=".", activation="none", aggregate="sum")
    frame = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    empty = tokenizer(frame, add_special_tokens=False)["input_ids"]
    reward = made("process", how, sampling=None, options=options, length=len(empty) + 10)
    about = context(tokenizer, main=Scripted(counting))
    (result,) = await ProcessReward.from_spec(reward, about).score(items(STEPS))
    assert result.steps == (Step(ends[0], 1.0), Step(ends[1], 2.0))
    assert all(STEPS[end - 1] == "." or end == len(STEPS) for end in ends)
    assert result.value == 3.0  # of the steps that were read
    assert result.extra["num_steps"] == 2
    assert result.extra["steps_left_out"] == 3
    assert about.counts.totals == {"truncated": [1, 1]}


async def test_a_first_step_that_does_not_fit_leaves_the_response_as_it_was(
    tokenizer: Any, made: Any
):
    options = ProcessReward.Options(separator=".")
    reward = made("process", "truncate_right", sampling=None, options=options, length=30)
    (read,) = ProcessReward.from_spec(reward, context(tokenizer)).render(items("a" * 50 + ".b"))
    assert (read.left_out, len(read.token_ids) > 30) == (0, True)


# --- embeddings


async def test_each_embedded_text_is_cut_by_itself(plain: Any, made: Any):
    engine = Scripted(lambda request: EmbedOutput((1.0, 0.0), len(request.text)))
    frame = len(plain("")["input_ids"])
    options = SimilarityReward.Options(curve=[], prefix="q:")
    reward = made(
        "similarity", "truncate_left", sampling=None, length=frame + 2 + 10, options=options
    )
    (result,) = await SimilarityReward.from_spec(reward, context(plain, main=engine)).score(
        items(LETTERS, truth="0123456789ABCDEF")
    )
    assert [request.text for request in engine.requests] == ["q:qrstuvwxyz", "q:6789ABCDEF"]
    assert result.value == 1.0
    assert result.extra["truncated_tokens"] == 16 + 6


@pytest.mark.parametrize("kind", REWARD_KINDS)
def test_the_kinds_that_read_texts_can_cut_them(kind: str):
    facts = REWARD_KINDS[kind]
    assert facts.truncates == (bool(facts.roles) and not facts.rates_tokens)


# --- a real tokenizer


@pytest.mark.parametrize(("how", "side"), [("truncate_right", "right"), ("truncate_left", "left")])
def test_of_a_real_cross_encoder_it_is_longest_first(ms_marco: Path, how: str, side: str):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ms_marco, truncation_side=side)
    words = [f"the river runs to the sea on day {n} and" for n in range(400)]
    pairs = [
        (" ".join(words[:a]), " ".join(words[a : a + b]))
        for a, b in ((3, 200), (200, 3), (90, 91), (60, 20), (2, 3))
    ]
    engine = dataclasses.replace(ENGINE, path=str(ms_marco), runner="pooling", max_model_len=None)
    reward = RewardSpec(
        name="r", kind="bradley_terry", weight=1.0, engines={"main": engine}, overlong=how
    )
    kind = BradleyTerryReward.from_spec(reward, context(tokenizer, main=scalar()))
    for prompt, response in pairs:
        (read,) = kind.render(items(response, prompt=prompt))
        expected = tokenizer(prompt, response, truncation="longest_first", max_length=512)
        assert list(read.token_ids) == expected["input_ids"]
        assert list(read.token_type_ids or ()) == expected["token_type_ids"]
