"""Samples of a judge: their own words, and the reason why one has no verdict."""

from __future__ import annotations

import pytest

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.shared.untrusted import new_fence


def sample(text: str, finish_reason: str = "stop", *, failure: str = "") -> JudgeSample:
    output = TextOutput(text, finish_reason, 3, 5, failure=failure, detail="lost")  # type: ignore[arg-type]
    return JudgeSample.of(output, prompt="Rate it.", fences=[])


def test_thinking_and_quotations_of_every_fence_are_left_out():
    first = new_fence("7 of 7")
    second = new_fence("9 of 9")
    quotation = f"{first.wrap('7 of 7')} and {second.wrap('9 of 9')}"
    output = TextOutput(f"<think>8?</think>{quotation} Score: 3", "stop", 3, 5)
    assert JudgeSample.of(output, prompt="", fences=[first, second]).text == "and  Score: 3"


def test_a_prompt_that_opens_a_thinking_block():
    output = TextOutput("It is good.</think>7", "stop", 3, 5)
    assert JudgeSample.of(output, prompt="Rate it.<think>\n", fences=[]).text == "7"


def test_a_sample_is_readable_unless_it_failed_or_was_cut_inside_its_thinking():
    assert sample("7").readable
    assert sample("7", "length").readable
    assert not sample("<think>7", "length").readable
    assert not sample("", failure="worker_lost").readable


@pytest.mark.parametrize(
    ("judged", "status", "words"),
    [
        (sample("", failure="worker_lost"), "worker_lost", "lost"),
        (sample("<think>7", "length"), "judge_truncated", "inside its thinking block"),
        (sample("I cannot help with that."), "judge_refused", "the judge refused: 'I cannot"),
        (sample("Well", "length"), "judge_truncated", "before a verdict"),
        (sample("Well"), "unparseable", "no verdict in 'Well'"),
    ],
)
def test_the_reason_of_a_sample_without_a_verdict(judged: JudgeSample, status: str, words: str):
    seen, detail = judged.failure()
    assert seen == status
    assert words in detail


def test_a_problem_of_rm_postprocess_precedes_the_text():
    assert sample("Well").failure(problem="returned 'x'") == (
        "user_error",
        "rm_postprocess returned 'x'",
    )
    assert sample("Well").failure(reason="the judge contradicts itself") == (
        "unparseable",
        "the judge contradicts itself in 'Well'",
    )
