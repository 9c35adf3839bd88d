"""Cosines of embeddings become scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.data.json_text import StructuredReference
from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import EmbedOutput, EmbedRequest
from rmrl.rewards.kinds.similarity.curve import curve_value
from rmrl.rewards.kinds.similarity.reward import SimilarityReward
from rmrl.types import ScoreItem, ScoreResult
from tests.rewards.kinds.scripted import Scripted, context, dropin, spec
from tests.rewards.parts import items, problems_of

Ask = Callable[..., Any]
Options = SimilarityReward.Options
CURVE = [[0.65, 0.1], [0.85, 1.0]]


def at_angle(cosine: float) -> EmbedOutput:
    return EmbedOutput((cosine, math.sqrt(1 - cosine * cosine)), 3)


def embed(request: EmbedRequest) -> EmbedOutput:
    """A text that is a number has that cosine to any other text."""
    text = request.text.removeprefix("query: ")
    try:
        return at_angle(float(text))
    except ValueError:
        return at_angle(1.0)


@pytest.fixture
def ask(tokenizer: Any, tmp_path: Path) -> Ask:
    """ask(items or responses, options, answer, code): the results, and the texts that were
    embedded."""

    async def run(
        *rows: ScoreItem | str,
        options: Options | None = None,
        answer: Callable[[EmbedRequest], EmbedOutput] = embed,
        code: str = "",
    ) -> tuple[list[ScoreResult], list[str]]:
        engine = Scripted(answer)
        made = spec(
            "similarity",
            sampling=None,
            options=options or Options(),
            dropin=dropin(tmp_path, code) if code else None,
        )
        given = [items(row, truth="reference")[0] if isinstance(row, str) else row for row in rows]
        results = await SimilarityReward.from_spec(made, context(tokenizer, main=engine)).score(
            given
        )
        assert all(
            (method, deterministic) == ("embed", True) for method, _, deterministic in engine.asked
        )
        return results, [request.text for request in engine.requests]

    return run


@pytest.mark.parametrize(
    ("cosine", "value"),
    [
        (-1.0, 0.1),
        (0.65, 0.1),
        (0.70, 0.1 * 10**0.25),  # a quarter of the way: 0.17783
        (0.75, 0.1 * 10**0.5),  # 0.31623
        (0.80, 0.1 * 10**0.75),  # 0.56234
        (0.85, 1.0),
        (1.0, 1.0),
    ],
)
def test_the_default_curve(cosine: float, value: float):
    assert curve_value(cosine, CURVE) == pytest.approx(value)


def test_a_linear_curve_of_three_points():
    curve = [[0.0, -1.0], [0.5, 0.0], [1.0, 2.0]]
    assert [curve_value(x, curve, "linear") for x in (-0.5, 0.25, 0.5, 0.75, 1.0)] == [
        -1.0,
        -0.5,
        0.0,
        1.0,
        2.0,
    ]


def test_exponential_curves_join_at_their_points():
    curve = [[0.0, 1.0], [0.5, 4.0], [1.0, 2.0]]
    assert curve_value(0.25, curve) == pytest.approx(2.0)  # 1 * 4 ** 0.5
    assert curve_value(0.5, curve) == pytest.approx(4.0)
    assert curve_value(0.75, curve) == pytest.approx(4 * 0.5**0.5)


async def test_the_cosine_goes_through_the_curve(ask: Ask):
    results, texts = await ask("0.75", "0.2")
    assert texts == ["0.75", "reference", "0.2", "reference"]
    assert [r.value for r in results] == pytest.approx([0.316228, 0.1], abs=1e-6)
    assert results[0].extra == {"cosine": pytest.approx(0.75)}
    assert (results[0].rendered, results[0].tokens_in, results[0].raw_text) == (
        "0.75\n---\nreference",
        6,
        "0.75",
    )


async def test_without_a_curve_the_cosine_is_the_score(ask: Ask):
    (result,), _ = await ask("0.25", options=Options(curve=[]))
    assert result.value == pytest.approx(0.25)


async def test_the_nearest_of_several_references_counts(ask: Ask):
    row = dataclasses.replace(
        items("x")[0], extra_info={"answers": {"good": ["0.1", "0.9", "0.4"]}}
    )
    (result,), texts = await ask(
        row, options=Options(reference="extra_info.answers.good", curve=[])
    )
    assert texts == ["x", "0.1", "0.9", "0.4"]
    assert result.value == pytest.approx(0.9)


async def test_a_list_as_ground_truth_holds_several_references(ask: Ask):
    row = items("x", truth=StructuredReference(["0.1", "0.9"]))[0]
    (result,), texts = await ask(row, options=Options(curve=[]))
    assert texts == ["x", "0.1", "0.9"]
    assert result.value == pytest.approx(0.9)


async def test_the_prompt_may_be_the_reference_and_texts_get_their_prefix(ask: Ask):
    _, texts = await ask("0.5", options=Options(reference="rm_prompt", prefix="query: "))
    assert texts == ["query: 0.5", "query: Q"]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (
            "ground_truth",
            (
                "row 0 has no reference: ground_truth has to be a text or a list of texts, and"
                " nothing there"
            ),
        ),
        ("extra_info.answer", "extra_info.answer"),
        ("extra_info.number", "7 there"),
    ],
)
async def test_a_row_without_a_reference_is_named(ask: Ask, reference: str, words: str):
    row = dataclasses.replace(items("x", truth=None)[0], extra_info={"number": 7})
    (result,), texts = await ask(row, options=Options(reference=reference))
    assert (result.value, result.status, texts) == (None, "user_error", [])
    assert words in result.detail


async def test_one_row_without_a_reference_leaves_the_others(ask: Ask):
    (first, second), _ = await ask(items("x", truth="")[0], "0.9")
    assert (first.status, second.value) == ("user_error", 1.0)


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (EmbedOutput((), 9, failure="overlong", detail="9 tokens and 8"), "overlong"),
        (EmbedOutput((math.nan, 1.0), 9), "provider_error"),
        (EmbedOutput((), 9), "provider_error"),
    ],
)
async def test_what_is_no_vector_is_no_verdict(ask: Ask, output: EmbedOutput, status: str):
    (result,), _ = await ask("x", answer=lambda r: output if r.text == "x" else at_angle(1.0))
    assert (result.value, result.status) == (None, status)
    assert result.detail


async def test_vectors_of_different_lengths_are_an_error(ask: Ask):
    with pytest.raises(RewardError, match=r"different lengths \(1, 2\)"):
        await ask("x", answer=lambda r: EmbedOutput((1.0,), 1) if r.text == "x" else at_angle(1.0))


DROPIN = """
def rm_preprocess(p, r, t, ground_truths):
    return [(text.strip(), [truth, '0.9']) for text, truth in zip(r, ground_truths)]
def rm_postprocess(results):
    return [{'score': 2 * cosine, 'raw': cosine} for cosine in results]
"""


async def test_a_drop_in_gives_texts_and_reads_cosines(ask: Ask):
    (result,), texts = await ask(" 1.0 ", code=DROPIN)
    assert texts == ["1.0", "reference", "0.9"]
    assert (result.value, result.extra["raw"]) == (pytest.approx(2.0), pytest.approx(1.0))
    (result,), texts = await ask(
        " 1.0 ", code=DROPIN.replace("(text.strip(), [truth, '0.9'])", "text.strip()")
    )
    assert texts == ["1.0", "reference"]


async def test_a_row_for_which_a_drop_in_returns_no_text_is_lost_alone(ask: Ask):
    code = DROPIN.replace("(text.strip(), [truth, '0.9'])", "7 if text == 'bad' else text")
    results, _ = await ask("1.0", "bad", code=code)
    assert [result.status for result in results] == ["ok", "user_error"]
    assert "returned 7 (int) for a response; give the text to embed" in results[1].detail
    assert "in rm_preprocess, on the response 'bad')" in results[1].detail


async def test_no_responses(ask: Ask):
    assert await ask() == ([], [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(reference="extra_info."), "give ground_truth, rm_prompt, or extra_info.<key>"),
        (Options(reference="answer"), "give ground_truth"),
        (Options(shape="cubic"), "not a choice; known: exponential, linear"),
        (Options(curve=[[0.5, 1.0]]), "at least two points"),
        (Options(curve=[[0.5, 1.0], [0.5, 2.0]]), "must rise"),
        (Options(curve=[[0.5, 0.0], [0.6, 1.0]]), "above 0"),
    ],
)
def test_problems_of_the_options(options: Options, words: str):
    (problem,) = SimilarityReward.problems(options, "reward.specs.s")
    assert problem.startswith("reward.specs.s.")
    assert words in problem


def test_a_curve_is_of_numbers():
    (problem,) = problems_of(SimilarityReward, {"curve": [[0.5, "a"], [0.6, 1.0]]})
    assert problem.endswith("give a list, each a list, each a finite number")


def test_options_without_problems():
    assert SimilarityReward.problems(Options(), "w") == []
    assert (
        SimilarityReward.problems(
            Options(curve=[[0.0, -1.0], [1.0, 1.0]], shape="linear", reference="extra_info.a.b"),
            "w",
        )
        == []
    )
