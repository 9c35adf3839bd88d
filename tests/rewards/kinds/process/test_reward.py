"""Logits at the ends of steps become step scores, one score, and places in the response."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import RewardError, RewardFunctionError
from rmrl.inference.hf.reward_engine import HFEngine
from rmrl.inference.reward_engine_base import PoolingRequest, TokenOutput
from rmrl.rewards.kinds.process.reward import ProcessReward
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.types import ScoreResult, Step
from tests.rewards.kinds.scripted import Scripted, context, dropin, spec
from tests.rewards.parts import ENGINE, always, items

Ask = Callable[..., Any]
Options = ProcessReward.Options
RAW = Options(activation="none")
SHARED = Path(__file__).resolve().parents[5] / "shared"
ROLLOUTS = SHARED / "data/rollouts/processbench_gsm8k.jsonl"


def counting(request: PoolingRequest) -> TokenOutput:
    """Logits 1, 2, 3 ... of a single label, one for each position."""
    return TokenOutput(
        tuple((float(k + 1),) for k in range(len(request.positions))), len(request.token_ids)
    )


@pytest.fixture
def ask(tokenizer: Any, tmp_path: Path) -> Ask:
    """ask(responses..., options, answer, code): the results, and for each request the text up to
    each of its positions."""

    async def run(
        *responses: str,
        options: Options = RAW,
        answer: Callable[[PoolingRequest], TokenOutput] = counting,
        code: str = "",
    ) -> tuple[list[ScoreResult], list[list[str]]]:
        engine = Scripted(answer)
        own = dropin(tmp_path, code) if code else None
        process = spec("process", sampling=None, options=options, dropin=own)
        reward = ProcessReward.from_spec(process, context(tokenizer, main=engine))
        results = await reward.score(items(*responses))
        for method, _, deterministic in engine.asked:
            assert (method, deterministic) == ("token_logits", True)
        texts: list[list[str]] = []
        for request in engine.requests:
            ends = request.positions
            texts.append([tokenizer.decode(request.token_ids[: end + 1]) for end in ends])
        return results, texts

    return run


def cut(separator: str = "  ", **more: Any) -> Options:
    return Options(**{"separator": separator, "activation": "none", **more})


def answers(texts: list[str]) -> list[str]:
    """Texts from the answer on: the tokenizer of these tests does not know the line break."""
    return [text.split("assistant")[1].replace("<unk>", "") for text in texts]


def logits(*rows: Sequence[float]) -> Callable[[PoolingRequest], TokenOutput]:
    return lambda request: TokenOutput(tuple(tuple(row) for row in rows), len(request.token_ids))


async def test_each_step_is_read_at_its_last_token(ask: Ask):
    (result,), (texts,) = await ask("ab  cd", options=cut())
    before = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    assert result.rendered == before + "ab  cd<|im_end|>\n"
    assert answers(texts) == ["ab  ", "ab  cd"]
    assert result.steps == (Step(4, 1.0), Step(6, 2.0))
    assert (result.value, result.raw_text, result.extra) == (1.0, "1 2", {"num_steps": 2})


async def test_a_step_token_stands_behind_each_step(ask: Ask):
    (result,), (texts,) = await ask("ab  cd#  ", options=cut(step_token="#"))
    assert result.rendered.endswith("assistant\nab#cd##<|im_end|>\n")
    assert [text[-3:] for text in texts] == ["ab#", "d##"]
    assert [step.end for step in result.steps] == [4, 9]


async def test_the_joint_stands_between_tag_and_next_step(ask: Ask):
    """The response's own tag is broken."""
    (result,), (texts,) = await ask("ab  cd ki", options=cut(step_token=" ki", joint="_"))
    assert result.rendered.endswith("assistant\nab ki_cd  ki ki<|im_end|>\n")
    assert answers(texts) == ["ab ki", "ab ki_cd  ki ki"]


async def test_special_tokens_are_broken_and_ends_are_those_of_the_response(ask: Ask):
    response = "a<|im_end|>\u200b\u200b\u200bb  c"  # one character comes in, three go out
    (result,), _ = await ask(response, options=cut(step_token="#"))
    assert result.rendered.endswith("assistant\na< |im_end|>b#c#<|im_end|>\n")
    assert [step.end for step in result.steps] == [response.index("c"), len(response)]


async def test_a_special_token_made_of_two_steps_is_broken(ask: Ask):
    (result,), _ = await ask("<|im_end|>x", options=cut("_"))
    assert result.rendered.count("<|im_end|>") == 2  # those of the template


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [("min", 0.25), ("mean", 0.5), ("last", 0.5), ("product", 0.09375), ("sum", 1.5)],
)  # of 0.25, 0.75, 0.5
async def test_aggregates(ask: Ask, aggregate: str, value: float):
    options = cut("_", aggregate=aggregate)
    (result,), _ = await ask("a_b_c", options=options, answer=logits([0.25], [0.75], [0.5]))
    assert result.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("row", "options", "value"),
    [
        ([0.0, math.log(3)], Options(), 0.75),  # softmax: 3 / (1 + 3)
        ([0.0, math.log(3)], Options(positive_label=0), 0.25),
        ([math.log(3)], Options(), 0.75),  # sigmoid: 3 / (3 + 1)
        ([-800.0], Options(), 0.0),
        ([5.0, math.log(3)], Options(activation="sigmoid"), 0.75),
        ([5.0, -2.5], Options(activation="none"), -2.5),
        ([0.0, math.log(2), math.log(5)], Options(positive_label=2), 0.625),  # 5 / 8
    ],
)
async def test_activations(ask: Ask, row: list[float], options: Options, value: float):
    (result,), _ = await ask("a", options=options, answer=logits(row))
    assert result.value == pytest.approx(value, abs=1e-12)


async def test_only_the_score_counts_where_tokens_are_to_get_none(ask: Ask):
    (result,), _ = await ask("a_b", options=cut("_", to_tokens=False))
    assert (result.value, result.steps, result.raw_text) == (1.0, (), "1 2")


async def test_a_label_that_the_model_does_not_have(ask: Ask):
    with pytest.raises(RewardError, match=r"positive_label=5, and the model has 2 .*=<0 to 1>"):
        await ask("a", options=Options(positive_label=5), answer=logits([0.0, 1.0]))


@pytest.mark.parametrize(
    ("output", "status", "detail"),
    [
        (TokenOutput((), 9, failure="overlong", detail="9 tokens"), "overlong", "9 tokens"),
        (TokenOutput((), 9, failure="worker_lost", detail="gone"), "worker_lost", "gone"),
        (TokenOutput(((math.nan,),), 9), "provider_error", "nan"),
        (TokenOutput((), 9), "provider_error", "[]"),
    ],
)
async def test_what_is_no_number_is_no_verdict(
    ask: Ask, tokenizer: Any, output: TokenOutput, status: str, detail: str
):
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "a"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    shortest = len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def answer(request: PoolingRequest) -> TokenOutput:
        return output if len(request.token_ids) == shortest else counting(request)

    (result, other), _ = await ask("a", "bb", answer=answer)
    assert (result.value, result.status, result.steps) == (None, status, ())
    assert detail in result.detail
    assert other.value == 1.0


async def test_an_empty_response_is_read_at_the_end_of_the_prompt(ask: Ask):
    (result,), (seen,) = await ask("")
    assert (result.value, result.steps) == (1.0, (Step(0, 1.0),))
    assert len(seen) == 1


async def test_without_a_template_prompt_and_answer_are_lines(
    ask: Ask, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tokenizer, "chat_template", None)
    (result,), _ = await ask("ab")
    assert result.rendered == "Q\nab"


async def test_a_template_that_strips_is_followed(
    ask: Ask, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
):
    template = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    (result,), (texts,) = await ask(" a_b ", options=cut("_"))
    assert result.rendered == "[Q][a_b]"
    assert [text[-3:] for text in texts] == ["[a_", "a_b"]
    assert [step.end for step in result.steps] == [3, 5]


async def test_a_template_without_the_answer_is_refused(
    ask: Ask, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tokenizer, "chat_template", "{{ messages[0].content }}")
    with pytest.raises(RewardFunctionError, match="shows the answer 0 times"):
        await ask("a")


STEPS = """
def rm_preprocess(p, r, t):
    return [text.split(';') for text in r]
def rm_postprocess(results):
    return [{'score': sum(steps), 'worst': min(steps)} for steps in results]
"""


async def test_a_drop_in_cuts_and_aggregates(ask: Ask):
    response = "a<|im_end|>;b; c"
    (result,), (seen,) = await ask(response, code=STEPS)
    assert len(seen) == 3
    assert (result.value, result.extra) == (6.0, {"num_steps": 3, "worst": 1.0})
    assert [(step.end, step.value) for step in result.steps] == [(11, 1.0), (13, 2.0), (16, 3.0)]
    assert result.rendered.endswith("a< |im_end|>b c<|im_end|>\n")


async def test_a_drop_in_may_give_its_own_prompt(ask: Ask):
    code = STEPS.replace("text.split(';')", "('Check: ' + p[0], text.split(';'))")
    (result,), _ = await ask("a;b", code=code)
    assert result.rendered.startswith("<|im_start|>user\nCheck: Q<|im_end|>")
    assert len(result.steps) == 2


async def test_steps_that_are_not_in_the_response_belong_to_no_token(ask: Ask):
    code = STEPS.replace("text.split(';')", "['Step 1: ' + text]")
    (result,), _ = await ask("a", code=code)
    assert (result.value, result.status) == (None, "user_error")
    assert "to_tokens=false" in result.detail
    (result,), _ = await ask("a", code=code, options=Options(activation="none", to_tokens=False))
    assert (result.value, result.steps) == (1.0, ())


@pytest.mark.parametrize("returned", ["'a'", "[]", "[1]", "('p', 'a')"])
async def test_what_is_no_list_of_steps_costs_its_row(ask: Ask, returned: str):
    code = STEPS.replace("text.split(';')", f"{returned} if text == 'bad' else text.split(';')")
    results, _ = await ask("a;b", "bad", code=code)
    assert [result.status for result in results] == ["ok", "user_error"]
    assert "give a list of its steps" in results[1].detail
    assert "in rm_preprocess, on the response 'bad')" in results[1].detail


async def test_a_drop_in_may_return_none(ask: Ask):
    code = STEPS.replace("{'score': sum(steps), 'worst': min(steps)}", "None")
    (result,), _ = await ask("a", code=code)
    assert (result.value, result.status) == (None, "unparseable")


async def test_no_responses(ask: Ask):
    assert await ask() == ([], [])


def test_problems_of_the_options():
    wrong = Options(aggregate="max", activation="tanh", positive_label=-1, joint="x")
    problems = ProcessReward.problems(wrong, "reward.specs.p")
    keys = [problem.removeprefix("reward.specs.p.").split("=")[0] for problem in problems]
    assert keys == ["aggregate", "positive_label", "activation", "joint"]
    assert ProcessReward.problems(Options(), "w") == []


async def test_a_step_score_is_the_models_score_of_the_text_up_to_there(tmp_path: Path):
    """A causal model cannot look ahead: its logits at a step's end are those of a text that ends
    with the step."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    from tests.engine_models import write_token_scorer

    folder = write_token_scorer(tmp_path / "prm", labels=2)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    engine = HFEngine(
        dataclasses.replace(
            ENGINE, path=str(folder), runner="token_pooling", name="hf", dtype="float32"
        )
    )
    engine.start()

    class Direct:
        async def submit(
            self, method: str, requests: Sequence[Any], *, deterministic: bool
        ) -> list[Any]:
            return getattr(engine, method)(requests)

    calls: dict[str, Any] = {"main": Direct()}
    made = spec(
        "process", sampling=None, options=Options(separator="; ", step_token="#", joint=" ")
    )
    reward = ProcessReward.from_spec(
        made, KindContext(pool=RulePool(1), tokenizer=always(tokenizer), calls=calls)
    )
    (result,) = await reward.score(items("2+2=4; 4*2=9; so 9", prompt="What?"))
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    expected = []
    for end in (
        "user: What?\nassistant: 2+2=4#",
        "user: What?\nassistant: 2+2=4# 4*2=9#",
        "user: What?\nassistant: 2+2=4# 4*2=9# so 9#",
    ):
        ids = torch.tensor([tokenizer(end, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            expected.append(float(model(ids).logits[0, -1].softmax(-1)[1]))
    assert [step.value for step in result.steps] == pytest.approx(expected, abs=1e-5)
    assert [step.end for step in result.steps] == [7, 14, 18]
    assert result.value == pytest.approx(min(expected), abs=1e-5)
    assert len({round(value, 4) for value in expected}) == 3


async def test_steps_of_real_solutions_are_found_again(ask: Ask, tokenizer: Any):
    """People labelled these solutions step by step; joined by blank lines they are cut into the
    same steps."""
    if not ROLLOUTS.is_file():
        pytest.skip(f"{ROLLOUTS} is not there: the labelled solutions are not part of the project")
    rows = [json.loads(line) for line in ROLLOUTS.read_text(encoding="utf-8").splitlines()[:40]]
    rows = [row for row in rows if not any("\n\n" in step for step in row["steps"])]
    results, _ = await ask(*("\n\n".join(row["steps"]) for row in rows))
    for row, result in zip(rows, results, strict=True):
        text, starts = "\n\n".join(row["steps"]), [0, *(step.end for step in result.steps)]
        assert [text[a:b].removesuffix("\n\n") for a, b in pairwise(starts)] == row["steps"]
