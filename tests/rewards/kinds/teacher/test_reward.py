"""Kind `teacher`: which tokens it rates, what it makes of the answer, and its numbers beside those
of transformers."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import LogprobsOutput, LogprobsRequest
from rmrl.inference.reward_engines import build_engine
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.teacher.reward import TeacherReward
from rmrl.rewards.specs.spec import OnMissing, RewardSpec, SourceWeights
from rmrl.types import Prompt, ScoreItem, ScoreResult
from tests.engine_models import write_llama
from tests.rewards.parts import ENGINE, engine, rows, rule, scored

Answer = Callable[[LogprobsRequest], LogprobsOutput]


def halves(request: LogprobsRequest) -> LogprobsOutput:
    """-0.5, -1, -1.5, ... for the response's tokens."""
    count = len(request.token_ids) - request.start
    return LogprobsOutput.of([-0.5 * (n + 1) for n in range(count)], len(request.token_ids))


class Engine:
    """Calls to an engine that keeps its requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[LogprobsRequest] = []

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        assert (method, deterministic) == ("token_logprobs", True)
        self.requests += requests
        return list(map(self.answer, requests))


def ask(
    items: Sequence[ScoreItem], tokenizer: Any, *, answer: Answer = halves, **options: Any
) -> tuple[list[ScoreResult], list[LogprobsRequest]]:
    spec = RewardSpec(
        name="big",
        kind="teacher",
        weight=1.0,
        engines={"main": ENGINE},
        options=TeacherReward.Options(**options),
    )
    asked = Engine(answer)
    context = KindContext(pool=None, tokenizer=lambda _: tokenizer, calls={"main": asked})  # type: ignore[arg-type]
    results = asyncio.run(TeacherReward.from_spec(spec, context).score(items))
    return results, asked.requests


def item(text: str = "ab", **changes: Any) -> ScoreItem:
    return ScoreItem(
        **{
            "prompt_id": "q",
            "messages": [{"role": "user", "content": "Q"}],
            "response": text,
            "rm_prompt": "hint: Q",
            **changes,
        }
    )


def test_it_rates_the_policys_own_tokens():
    """No tokenizer is loaded: prompt 7 8, response 9 10 11; (-0.5 - 1 - 1.5) / 3."""
    given = item(prompt_token_ids=(7, 8), token_ids=np.asarray([9, 10, 11], dtype=np.int32))
    (result,), requests = ask([given], None)
    assert requests == [LogprobsRequest((7, 8, 9, 10, 11), 2)]
    assert result.value == -1.0
    assert result.token_logprobs is not None
    assert result.token_logprobs.tolist() == [-0.5, -1.0, -1.5]
    assert result.tokens_in == 5


def test_texts_pass_through_the_teachers_template_and_end_with_its_end_token(tokenizer: Any):
    """A text that was cut has no end token."""
    (_, cut), requests = ask([item(), item(finish_reason="length")], tokenizer)
    prompt = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    ids = tuple(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    a, b = tokenizer("ab", add_special_tokens=False)["input_ids"]
    assert requests[0] == LogprobsRequest((*ids, a, b, tokenizer.eos_token_id), len(ids))
    assert requests[1] == LogprobsRequest((*ids, a, b), len(ids))
    assert cut.rendered == prompt + "ab"


def test_it_may_read_a_prompt_that_the_policy_does_not_see(tokenizer: Any):
    given = item(prompt_token_ids=(7, 8), token_ids=(9,))
    _, ((request),) = ask([given], tokenizer, prompt="rm_prompt")
    prompt = "<|im_start|>user\nhint: Q<|im_end|>\n<|im_start|>assistant\n"
    ids = tuple(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    assert request == LogprobsRequest((*ids, 9), len(ids))


@pytest.mark.parametrize(
    ("output", "status", "said"),
    [
        (LogprobsOutput(b"", 4, failure="overlong", detail="too long"), "overlong", "too long"),
        (LogprobsOutput(b"", 4, failure="worker_lost", detail="gone"), "worker_lost", "gone"),
        (LogprobsOutput.of([-1.0, -math.inf], 4), "provider_error", "1 finite"),
        (LogprobsOutput.of([-1.0, math.nan], 4), "provider_error", "for 2 tokens"),
        (LogprobsOutput.of([-1.0], 4), "provider_error", "for 2 tokens"),
    ],
)
def test_a_failure_is_a_status_and_no_number(output: LogprobsOutput, status: str, said: str):
    given = item(prompt_token_ids=(7, 8), token_ids=(9, 10))
    (result,), _ = ask([given], None, answer=lambda _: output)
    assert (result.value, result.token_logprobs, result.status) == (None, None, status)
    assert said in result.detail


@pytest.mark.parametrize(
    ("text", "said"), [("", "no token"), ("a\ud83d", "half of a letter, a lone surrogate at 1")]
)
def test_a_text_that_cannot_be_rated_costs_its_own_row(text: str, said: str, tokenizer: Any):
    results, requests = ask([item(text, finish_reason="length"), item()], tokenizer)
    assert [result.status for result in results] == ["user_error", "ok"]
    assert said in results[0].detail
    assert len(requests) == 1


def test_entries_that_make_no_sense():
    check = TeacherReward.problems
    assert check(TeacherReward.Options(), "w") == []
    assert check(TeacherReward.Options(clip=0), "w") == []
    (clip,) = check(TeacherReward.Options(clip=-1.0), "w")
    (prompt,) = check(TeacherReward.Options(prompt="policies"), "w")
    assert clip.startswith("w.clip=-1.0: must not be negative")
    assert "did you mean 'policy'" in prompt


# --- through the scorer


def spec(name: str = "big", **changes: Any) -> RewardSpec:
    """A fake teacher: the script's numbers for `a`, `b` and the end token of the tests'
    tokenizer."""
    script = {"token_logprobs": {ord("a") - 28: -1.0, ord("b") - 28: -3.0, 1: -0.5, 2: -0.5}}
    defaults: dict[str, Any] = {
        "weight": 0.5,
        "options": TeacherReward.Options(clip=4.0),
        "engines": {"main": engine(kwargs=script)},
    }
    return RewardSpec(name=name, kind="teacher", **(defaults | changes))


def batch_of(specs: Sequence[RewardSpec], tokenizer: Any, *texts: Any, **settings: Any) -> Any:
    """`texts`: responses, or rows."""
    batch: list[Any] = []
    for text in texts:
        batch += rows(text) if isinstance(text, str) else [text]
    return asyncio.run(scored(specs, batch, tokenizer, **settings))


def test_its_tokens_stay_out_of_the_reward(tokenizer: Any, tmp_path: Path):
    """The rule's length alone is the reward; what the teacher said goes to the trainer with its
    weight and clip."""
    length = rule(tmp_path, "length", "return len(solution_str)")
    batch = batch_of([spec(), length], tokenizer, "ab", "a")
    assert batch.rewards_B.tolist() == [2.0, 1.0]
    assert batch.scores.values_BC[:, 0].tolist() == [(-1 - 3 - 0.5) / 3, (-1 - 0.5) / 2]
    ((first,), (second,)) = batch.teachers
    assert (first.name, first.weight, first.clip) == ("big", 0.5, 4.0)
    assert first.logprobs.tolist() == [-1.0, -3.0, -0.5]
    assert second.logprobs.tolist() == [-1.0, -0.5]


def test_without_to_tokens_its_mean_is_a_score_like_any_other(tokenizer: Any):
    plain = TeacherReward.Options(to_tokens=False)
    batch = batch_of([spec(options=plain)], tokenizer, "a")
    assert batch.rewards_B.tolist() == [0.5 * -0.75]
    assert batch.teachers == ()


def test_a_watched_teacher_teaches_nothing(tokenizer: Any):
    batch = batch_of([spec(weight=0.0)], tokenizer, "a")
    assert batch.teachers == ()
    assert batch.scores.values_BC.tolist() == [[-0.75]]


def test_each_data_source_has_its_own_teacher(tokenizer: Any):
    """reward.by_source gives the row's weight, and the other teacher is not asked about it."""
    only_maths = SourceWeights({"maths": 2.0}, None)
    only_code = SourceWeights({"code": 0.25}, None)
    batch = batch_of(
        [spec(sources=only_maths), spec("coder", sources=only_code)],
        tokenizer,
        *rows("a", source="maths"),
        *rows("ab", source="code"),
    )
    weights = [[(t.name, t.weight) for t in row] for row in batch.teachers]
    assert weights == [[("big", 2.0)], [("coder", 0.25)]]
    assert batch.scores.status_BC.tolist() == [["ok", "skipped"], ["skipped", "ok"]]


def test_a_missing_verdict_follows_on_missing(tokenizer: Any):
    """`c` has probability 0 in the script: masked, or passed over, which gives the other teacher
    the whole weight."""
    failing = spec()
    other = spec("other", engines={"main": engine(path="/models/other")})
    assert batch_of([failing, other], tokenizer, "a", "c").keep_B.tolist() == [True, False]
    passed = dataclasses.replace(failing, on_missing=OnMissing(policy="renormalize"))
    batch = batch_of([passed, other], tokenizer, "a", "c")
    assert batch.keep_B.tolist() == [True, True]
    weights = [[(t.name, t.weight) for t in row] for row in batch.teachers]
    assert weights == [[("big", 0.5), ("other", 0.5)], [("other", 1.0)]]


def test_transforms_and_other_combiners_are_refused(tokenizer: Any):
    scaled = spec(transforms=({"kind": "scale", "factor": 2.0},))
    with pytest.raises(ConfigError, match="only clipped and weighted"):
        batch_of([scaled], tokenizer, "a")
    with pytest.raises(ConfigError, match=r"sends scores to tokens .* with reward\.combine=min"):
        batch_of([spec()], tokenizer, "a", combine="min")


# --- real numbers


def test_the_numbers_are_those_of_transformers(tmp_path: Path):
    """Each token's log-softmax in float32, one text at a time and without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = write_llama(tmp_path / "llama")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    generator = np.random.default_rng(3)
    requests: list[LogprobsRequest] = []
    for length, start in ((2, 1), (9, 4), (40, 39), (64, 10), (33, 33)):
        ids = tuple(generator.integers(4, 1000, length).tolist())
        requests.append(LogprobsRequest(ids, start))
    rater = build_engine(dataclasses.replace(ENGINE, path=str(folder), name="hf", dtype="float32"))
    rater.start()
    for request, output in zip(requests, rater.token_logprobs(requests), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([request.token_ids])).logits[0].double()
        expected = []
        for position in range(request.start, len(request.token_ids)):
            row = logits[position - 1]
            expected.append(float(row[request.token_ids[position]] - row.logsumexp(dim=0)))
        assert output.values().tolist() == pytest.approx(expected, abs=1e-5)
        assert output.tokens_in == len(request.token_ids)


def test_what_a_model_cannot_rate_is_marked(tmp_path: Path):
    """1024 positions, of which one stays free, and a vocabulary of 1024."""
    folder = write_llama(tmp_path / "llama")
    rater = build_engine(dataclasses.replace(ENGINE, path=str(folder), name="hf", dtype="float32"))
    rater.start()
    long, strange, fine = rater.token_logprobs(
        [
            LogprobsRequest((5,) * 1024, 1000),
            LogprobsRequest((5, 1024), 1),
            LogprobsRequest((5,) * 1023, 1022),
        ]
    )
    assert long.failure == "overlong"
    assert "1024 tokens and max_model_len is 1024" in long.detail
    assert strange.failure == "provider_error"
    assert "token 1024, and the model's vocabulary has 1024" in strange.detail
    assert (fine.failure, len(fine.values())) == ("", 1)


def test_a_prompt_of_the_data_is_what_the_teacher_reads(tokenizer: Any):
    """Through the row: prompt tokens of the policy and the tokens it wrote."""
    prompt = Prompt(id="q", messages=[{"role": "user", "content": "Q"}], token_ids=(5, 6))
    (row,) = rows("ab")
    row = dataclasses.replace(row, prompt=prompt, token_ids=(ord("a") - 28, ord("b") - 28))
    batch = batch_of([spec()], None, row)
    assert batch.scores.results[0][0].tokens_in == 4
    assert batch.teachers[0][0].logprobs.tolist() == [-1.0, -3.0]
