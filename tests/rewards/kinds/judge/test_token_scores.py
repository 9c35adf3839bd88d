"""Scores by the probability of one token."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.numbers import is_number
from rmrl.errors import ConfigError
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens, score_token_problems

YES_NO = {"Yes": 1.0, "No": 0.0}


@pytest.fixture
def bpe(smollm2: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2)


def scored(
    values: dict[str, float], logprobs: list[float]
) -> tuple[float, dict[str, float]] | None:
    return ScoreTokens(values, None, where="w").score(logprobs)


def test_the_expected_value():
    # exp(-0.1) = 0.904837, exp(-2.3) = 0.100259: 0.904837 / 1.005096 = 0.900249
    found = scored(YES_NO, [-0.1, -2.3])
    assert found is not None
    assert found[0] == pytest.approx(0.900249, abs=1e-6)
    assert found[1] == pytest.approx({"Yes": 0.900249, "No": 0.099751}, abs=1e-6)
    # A constant in common changes nothing: logits will do.
    shifted = scored(YES_NO, [999.9, 997.7])
    assert shifted is not None
    assert shifted[0] == pytest.approx(found[0])


def test_more_than_two_answers():
    found = scored({"1": 1.0, "2": 2.0, "5": 5.0}, [math.log(0.2), math.log(0.1), math.log(0.1)])
    assert found is not None
    assert found[0] == pytest.approx(2.25)  # (0.2 * 1 + 0.1 * 2 + 0.1 * 5) / 0.4


def test_probabilities_that_the_engine_does_not_report():
    assert scored(YES_NO, [-math.inf, -3.0]) == (0.0, {"Yes": 0.0, "No": 1.0})
    assert scored(YES_NO, [-math.inf, -math.inf]) is None
    assert scored(YES_NO, []) is None


def test_the_space_before_an_answer_follows_the_prompt(bpe: Any):
    tokens = ScoreTokens(YES_NO, bpe, where="w")
    assert bpe.convert_ids_to_tokens(list(tokens.ids_after("...assistant\n"))) == ["Yes", "No"]
    assert bpe.convert_ids_to_tokens(list(tokens.ids_after("<|im_start|>"))) == ["Yes", "No"]
    assert bpe.convert_ids_to_tokens(list(tokens.ids_after("Answer:"))) == ["ĠYes", "ĠNo"]


def test_an_answer_that_is_one_token_only_the_other_way(bpe: Any):
    tokens = ScoreTokens({"7": 7.0, "8": 8.0}, bpe, where="w")  # digits have no form with a space
    assert bpe.convert_ids_to_tokens(list(tokens.ids_after("Answer:"))) == ["7", "8"]


def test_answers_of_several_tokens_are_named(bpe: Any):
    with pytest.raises(
        ConfigError,
        match=(
            r"reward.specs.j.score_tokens: '10' is 2 tokens of the judge's tokenizer \('1', '0'\)"
        ),
    ):
        ScoreTokens({"10": 1.0, "1": 0.0}, bpe, where="reward.specs.j.score_tokens").ids_after("\n")


def test_answers_that_are_unknown_tokens(tokenizer: Any):
    with pytest.raises(
        ConfigError, match="some answers are the same token of the judge's tokenizer"
    ):
        ScoreTokens({"é": 1.0, "ü": 0.0}, tokenizer, where="w").ids_after("\n")


def test_configured_answers_are_texts_with_finite_numbers():
    assert score_token_problems({"Yes": 1, "No": 0.0}, "w.score_tokens") == []
    assert score_token_problems({}, "w.score_tokens") == []
    (alone,) = score_token_problems({"Yes": 1}, "w.score_tokens")
    assert alone.endswith("give at least two")
    (blank,) = score_token_problems({"Yes": 1, " ": 0}, "w.score_tokens")
    assert blank == "w.score_tokens: ' ' is no answer; give its text"


def test_truth_values_are_no_numbers():
    assert is_number(1)
    assert is_number(-0.5)
    for value in (True, "1", None, math.inf):
        assert not is_number(value)
