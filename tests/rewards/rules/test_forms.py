"""Rules written for other trainers: how they are told apart, what they are called with, and what
their mistakes are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import RewardFunctionError
from rmrl.rewards.rules.forms import InLists, MisfitError, OneByOne, rule_form
from rmrl.rewards.scoring.items import ResponseRow
from rmrl.rewards.specs.resolve import resolve_rewards
from rmrl.rewards.specs.section import Surroundings
from rmrl.types import Prompt, RewardBatch
from tests.rewards.parts import make_scorer

MODULE = """
import asyncio

def lengths(completions, **columns):
    return [float(len(c[0]["content"] if isinstance(c, list) else c)) for c in completions]

def seen(prompts, completions, **columns):
    return [{"score": 1, "prompt": prompts[0], "completion": completions[0], "names": sorted(columns)}]

def tokens(completion_ids, **columns):
    return [sum(ids) for ids in completion_ids]

def level(completions, difficulty):
    return [d for d in difficulty]

def unsure(completions):
    return [None]

def logs(completions, log_extra, log_metric):
    log_extra("first", [c[0]["content"][:1] for c in completions])
    log_metric("share", 0.5)
    return [1.0]

LOCK = None

async def waits(completions, ground_truth, **columns):
    global LOCK
    LOCK = LOCK or asyncio.Lock()  # belongs to the loop of the first call
    async with LOCK:
        await asyncio.sleep(0)
    return [float(c[0]["content"] == g) for c, g in zip(completions, ground_truth, strict=True)]

async def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    await asyncio.sleep(0)
    return float(solution_str == ground_truth)

class Exact:
    def __init__(self, args=None, **kwargs):
        self.right = 2.0

    def __call__(self, completions, solution, **kwargs):
        return [self.right if c == s else 0.0 for c, s in zip(completions, solution, strict=True)]

class Later(Exact):
    async def __call__(self, completions, solution, **kwargs):
        return [self.right if c == s else 0.0 for c, s in zip(completions, solution, strict=True)]

def two(completions): return [1.0, 2.0]
def bare(completions): return 1.0
def broken(completions): return [1.0 / 0]
def text(completions): return ["0.5"]

def ranks(completions):
    texts = [c[0]["content"] for c in completions]
    return [sorted(texts).index(text) for text in texts]

def needs_state(completions, trainer_state):
    return [0.0 for _ in completions]

def batch(data_sources, solution_strs, ground_truths, extra_infos):
    return [{"score": float(s == g), "count": len(solution_strs)} for s, g in zip(solution_strs, ground_truths, strict=True)]

class Tensor:
    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return self.values[i]

def reward_func(queries, prompts, labels, **kwargs):
    ends = [float(query.removeprefix(prompt) == label) for query, prompt, label in zip(queries, prompts, labels, strict=True)]
    return {"rewards": Tensor(ends), "scores": Tensor(ends), "extra_logs": {"length": [len(q) for q in queries], "mean": 0.5}}

def above(solution_str, threshold):
    return float(len(solution_str) > threshold)

def longer_than(limit):
    def rule(completions, **columns):
        return [float(len(c[0]["content"]) > limit) for c in completions]
    return rule

class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, completions, **columns):
        return [self.factor for _ in completions]

def breaks(completions, **columns):
    return [1 / int(c[0]["content"]) for c in completions]
"""

Score = Callable[..., Any]


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Score:
    """score(name, *rows): named in reward.models as a user names it, resolved, run in a worker."""
    (tmp_path / "rules_of_others.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    around = Surroundings(device="cpu", threads=1, functions_dirs=[tmp_path])

    async def run(name: str, *rows: ResponseRow) -> RewardBatch:
        resolved = resolve_rewards(RewardConfig(models=[name]), around)
        assert resolved.problems == []
        scorer = make_scorer(resolved.specs, tokenizer)
        try:
            return await scorer.score(rows)
        finally:
            await scorer.close()

    return run


def row(
    text: str = "four", *, plain: bool = False, token_ids: tuple[int, ...] = (), **extra_info: Any
) -> ResponseRow:
    turns = [{"role": "user", "content": "2+2?"}]
    prompt = Prompt(
        id="0",
        messages=turns,
        token_ids=(),
        ground_truth="four",
        extra_info=extra_info,
        plain_text=plain,
        data_source="sums",
    )
    return ResponseRow(prompt=prompt, text=text, token_ids=token_ids, tokens=len(token_ids))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lengths", [4.0, 2.0]),
        ("waits", [1.0, 0.0]),
        ("compute_score", [1.0, 0.0]),
        ("Exact", [2.0, 0.0]),
        ("Later", [2.0, 0.0]),
    ],
)
async def test_every_form_gives_scores(score: Score, name: str, expected: list[float]) -> None:
    batch = await score(f"rules_of_others:{name}", row("four"), row("no"))
    assert [r.detail for r in batch.scores.results[0]] == ["", ""]
    assert batch.rewards_B.tolist() == expected


async def test_a_conversation_has_messages_and_plain_text_has_strings(score: Score) -> None:
    batch = await score("rules_of_others:seen", row(level=3), row(plain=True))
    chat, plain = (r.extra for r in batch.scores.results[0])
    assert chat["prompt"] == [{"role": "user", "content": "2+2?"}]
    assert chat["completion"] == [{"role": "assistant", "content": "four"}]
    assert (plain["prompt"], plain["completion"]) == ("2+2?", "four")
    columns = [
        "answer",
        "data_source",
        "extra_info",
        "finish_reason",
        "ground_truth",
        "response_tokens",
        "solution",
    ]
    assert (plain["names"], chat["names"]) == (columns, sorted([*columns, "level"]))


async def test_token_ids_where_there_are_some(score: Score) -> None:
    batch = await score("rules_of_others:tokens", row(token_ids=(7, 8)), row())
    known, unknown = batch.scores.results[0]
    assert known.value == 15.0
    assert (unknown.status, unknown.detail) == (
        "user_error", "tokens needs completion_ids, and this response came as text, without its tokens; "
        "give reward.specs.<name>.tokenizer=<the policy's>",
    )  # fmt: skip


async def test_columns_are_entries_of_extra_info_and_none_is_no_verdict(score: Score) -> None:
    batch = await score("rules_of_others:level", row(difficulty=3), row(other=1))
    there, lacking = batch.scores.results[0]
    assert there.value == 3.0
    assert lacking.status == "user_error"
    assert lacking.detail.startswith("level needs difficulty, which this row does not have")
    assert lacking.detail.endswith("extra_info (here: other)")
    batch = await score("rules_of_others:unsure", row())
    assert batch.scores.results[0][0].status == "unparseable"


async def test_what_is_logged_becomes_columns(score: Score) -> None:
    batch = await score("rules_of_others:logs", row())
    assert batch.scores.results[0][0].extra == {"first": "f", "share": 0.5}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "two",
            "two returned 2 rewards for 1 completion; return exactly one per completion, in order",
        ),
        ("bare", "bare returned 1.0 (float); a list with one reward per completion is needed"),
        ("broken", "broken raised ZeroDivisionError"),
        ("text", "text returned '0.5' (str); a score is a number"),
    ],
)
async def test_mistakes_are_reported(score: Score, name: str, said: str) -> None:
    (result,) = (await score(f"rules_of_others:{name}", row())).scores.results[0]
    assert (result.value, result.status) == (None, "user_error")
    assert result.detail.startswith(said)


async def test_a_drop_in_file_may_have_the_form_as_well(score: Score, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def compute_score(completions, **columns):\n    return [3.0]\n", encoding="utf-8"
    )
    assert (await score("mine", row())).rewards_B.tolist() == [3.0]


def signature(parameters: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(f"def function({parameters}):\n    return [locals()]\n", scope)
    return scope["function"]


@pytest.mark.parametrize(
    ("parameters", "form"),
    [
        ("solution_str", OneByOne),
        ("**columns", OneByOne),
        ("prompts, completions, answer", InLists),
        ("completions", InLists),
        ("prompts, **columns", InLists),
        ("completion_ids, **columns", InLists),
    ],
)
def test_forms_are_distinguished_by_parameters(parameters: str, form: type) -> None:
    assert type(rule_form(signature(parameters), "here")) is form


def test_a_row_wins_over_the_names_of_the_ground_truth() -> None:
    offered = {
        "solution_str": "r",
        "messages": [],
        "plain_text": False,
        "ground_truth": "g",
        "extra_info": {"solution": "long"},
    }
    returned = rule_form(signature("completions, solution, answer, missing=1"), "here").call(
        offered
    )
    assert (returned["solution"], returned["answer"], returned["missing"]) == (["long"], ["g"], 1)


def test_arrays_of_one_are_lists_of_one() -> None:
    import numpy as np

    offered = {"solution_str": "r", "messages": [], "plain_text": False, "extra_info": {}}
    assert rule_form(lambda completions: np.asarray([0.5]), "here").call(offered) == 0.5
    for returned in (np.asarray(0.5), np.asarray([0.5, 1.0]), {"score": 1}, "1", []):
        with pytest.raises(MisfitError):
            rule_form(lambda completions, returned=returned: returned, "here").call(offered)


def test_both_forms_at_once_are_refused() -> None:
    with pytest.raises(
        RewardFunctionError, match=r"here: function.* names both solution_str and prompts"
    ):
        rule_form(signature("solution_str, prompts"), "here")


# --- groups, other trainers' signatures, arguments


def grouped(*texts: str, group: int = 0) -> list[ResponseRow]:
    return [dataclasses.replace(row(text), group=group) for text in texts]


@pytest.fixture
def resolved_with(tmp_path: Path, score: Score, tokenizer: Any) -> Score:
    """resolved_with(function, arguments, *rows): a rule with arguments of its own."""
    around = Surroundings(device="cpu", threads=1, functions_dirs=[tmp_path])

    async def run(function: str, arguments: dict[str, Any], *rows: ResponseRow) -> Any:
        spec = {"kind": "rule", "function": f"rules_of_others:{function}", "arguments": arguments}
        resolved = resolve_rewards(RewardConfig(models=["mine"], specs={"mine": spec}), around)
        if resolved.problems:
            return resolved.problems
        scorer = make_scorer(resolved.specs, tokenizer)
        try:
            return (await scorer.score(rows)).rewards_B.tolist()
        finally:
            await scorer.close()

    return run


async def test_a_function_that_looks_at_the_group_gets_the_group(score: Score) -> None:
    """Alone every response would have the rank 0."""
    batch = await score(
        "rules_of_others:ranks", *grouped("b", "c", "a"), *grouped("z", "y", group=1)
    )
    assert batch.rewards_B.tolist() == [1.0, 2.0, 0.0, 1.0, 0.0]


async def test_a_group_that_raises_costs_the_rows_it_has_to(score: Score) -> None:
    batch = await score("rules_of_others:breaks", *grouped("2", "0", "4"))
    assert [result.value for result in batch.scores.results[0]] == [0.5, None, 0.25]
    assert "ZeroDivisionError" in batch.scores.results[0][1].detail


async def test_the_batch_signature_of_verl(score: Score) -> None:
    batch = await score("rules_of_others:batch", *grouped("four", "no"))
    assert batch.rewards_B.tolist() == [1.0, 0.0]
    assert [result.extra["count"] for result in batch.scores.results[0]] == [2, 2]


async def test_the_signature_of_openrlhf(score: Score) -> None:
    batch = await score("rules_of_others:reward_func", *grouped("four", "no"))
    assert batch.rewards_B.tolist() == [1.0, 0.0]
    first, second = (result.extra for result in batch.scores.results[0])
    assert (first["scores"], second["scores"]) == (1.0, 0.0)
    assert (first["length"], second["length"]) == (len("2+2?four"), len("2+2?no"))
    assert first["mean"] == 0.5


async def test_a_function_that_needs_the_trainers_state_gets_a_hint(score: Score) -> None:
    (result,) = (await score("rules_of_others:needs_state", row())).scores.results[0]
    assert result.status == "user_error"
    assert "change weights by step with reward.weight_schedules" in result.detail


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("above", {"threshold": 3}, [1.0, 0.0]),
        ("longer_than", {"limit": 3}, [1.0, 0.0]),
        ("Scaled", {"factor": 2.5}, [2.5, 2.5]),
    ],
)
async def test_a_rule_may_have_arguments_of_its_own(
    resolved_with: Score, function: str, arguments: dict[str, Any], expected: list[float]
) -> None:
    assert await resolved_with(function, arguments, row("four"), row("no")) == expected


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("above", {"treshold": 3}, "takes no argument 'treshold'; did you mean 'threshold'?"),
        ("above", {}, "needs threshold, which no rule is given"),
        ("Scaled", {"speed": 1}, "Scaled(speed=1) raised TypeError"),
        (
            "above",
            "3",
            (
                "reward.specs.mine.arguments='3': give entries, e.g."
                " reward.specs.mine.arguments.threshold=0.5"
            ),
        ),
    ],
)
async def test_wrong_arguments_are_found_before_anything_starts(
    resolved_with: Score, function: str, arguments: Any, words: str
) -> None:
    (problem,) = await resolved_with(function, arguments)
    assert words in problem


async def test_token_ids_of_text_come_from_the_tokenizer_that_is_named(
    tmp_path: Path, score: Score, tokenizer: Any
) -> None:
    spec = {"kind": "rule", "function": "rules_of_others:tokens", "tokenizer": "/policy"}
    around = Surroundings(device="cpu", threads=1, functions_dirs=[tmp_path])
    resolved = resolve_rewards(RewardConfig(models=["mine"], specs={"mine": spec}), around)
    scorer = make_scorer(resolved.specs, tokenizer)
    try:
        batch = await scorer.score([row("four"), row(token_ids=(7, 8))])
    finally:
        await scorer.close()
    assert batch.rewards_B.tolist() == [
        sum(tokenizer("four", add_special_tokens=False)["input_ids"]),
        15.0,
    ]


OTHERS = """
import logging

class Call:  # an object of TRL's form that a function makes, as trl.rewards.get_... return them
    __name__ = "scaled_length"

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, completions, **columns):
        return [self.factor * len(c[0]["content"]) for c in completions]

def get_scaled_length(factor):
    return Call(factor)

class Overlong:  # ms-swift: settings in args, token ids in response_token_ids
    def __init__(self, args=None, **kwargs):
        self.longest = args.soft_max_length

    def __call__(self, completions, **kwargs):
        return [float(len(ids) <= self.longest) for ids in kwargs["response_token_ids"]]

class Tools:  # ms-swift: the first parameter is the completions, whatever its name
    def __call__(self, infer_requests, solution, messages, is_truncated):
        last = [turns[-1]["content"] for turns in messages]
        assert last == infer_requests and not any(is_truncated)
        return [float(text == s) for text, s in zip(infer_requests, solution, strict=True)]

def one_at_a_time(queries, prompts, labels):  # OpenRLHF: written for one response
    assert len(queries) == 1
    return {"rewards": 0.5, "extra_logs": {"length": 4}}

class Zero:
    shape = ()
    def item(self):
        return 0.25

def scalar(queries, prompts, labels):
    assert len(queries) == 1
    return Zero()

def correct(completion, answer, info, difficulty=0, **fields):  # verifiers
    assert fields["state"]["answer"] == answer and fields["task"] == "sums"
    return float(completion[-1]["content"] == answer) + info["level"] / 10

async def correct_later(prompt, completion, answer):
    return float(prompt[-1]["content"] == "2+2?" and completion[-1]["content"] == answer)

class Rubric:  # of verifiers 0.1 to 0.3, as far as it matters here
    def __init__(self, bonus=0.0):
        self.bonus = bonus
        self.logger = logging.getLogger("verifiers.rubrics.rubric.Rubric")

    async def score_rollout(self, state):
        await self.score_group([state])

    async def score_group(self, states):
        lengths = [len(state["completion"][-1]["content"]) for state in states]
        for state, length in zip(states, lengths):
            if state["completion"][-1]["content"] == "bad":
                self.logger.error("Error calling reward function longest: division by zero")
            state["reward"] = float(length == max(lengths)) + self.bonus
            state["metrics"] = {"longest": state["reward"], "answer": len(state["answer"])}

rubric = Rubric()
nothing_to_call = object()
"""


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Score:
    """others(name, entries, *rows): the result of each row, of a rule with entries of its own."""
    (tmp_path / "rules_of_more_others.py").write_text(OTHERS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    around = Surroundings(device="cpu", threads=1, functions_dirs=[tmp_path])

    async def run(name: str, entries: dict[str, Any], *rows: ResponseRow) -> Any:
        spec = {"kind": "rule", "function": f"rules_of_more_others:{name}", **entries}
        resolved = resolve_rewards(RewardConfig(models=["mine"], specs={"mine": spec}), around)
        assert resolved.problems == []
        scorer = make_scorer(resolved.specs, tokenizer)
        try:
            batch = await scorer.score(rows, within_budget=False)
        finally:
            await scorer.close()
        return batch.scores.results[0]

    return run


async def test_an_object_that_a_function_makes_is_called_as_trl_calls_it(others: Score) -> None:
    """It was called as a class of ms-swift's: with strings where TRL passes messages."""
    entries = {"arguments": {"factor": 0.5}}
    results = await others("get_scaled_length", entries, row("four"), row("no"))
    assert [result.value for result in results] == [2.0, 1.0]


async def test_a_class_of_ms_swift_gets_its_settings_and_the_token_ids(others: Score) -> None:
    entries = {"arguments": {"args": {"soft_max_length": 2}}}
    rows = [row("four", token_ids=(1, 2, 3)), row("no", token_ids=(1, 2))]
    results = await others("Overlong", entries, *rows)
    assert [result.value for result in results] == [0.0, 1.0]


async def test_an_older_class_of_ms_swift_gets_the_completions(others: Score) -> None:
    results = await others("Tools", {}, *grouped("four", "no"))
    assert [result.detail for result in results] == ["", ""]
    assert [result.value for result in results] == [1.0, 0.0]


@pytest.mark.parametrize(("name", "value"), [("one_at_a_time", 0.5), ("scalar", 0.25)])
async def test_a_function_of_openrlhf_may_return_one_number_for_one_response(
    others: Score, name: str, value: float
) -> None:
    results = await others(name, {}, *grouped("four", "no"))
    assert [result.value for result in results] == [value, value]


async def test_a_reward_function_of_verifiers_is_called_once_per_response(others: Score) -> None:
    results = await others("correct", {}, row("four", level=1), row("no", level=2))
    assert [result.value for result in results] == [1.1, 0.2]
    results = await others("correct_later", {}, row("four"), row("no"))
    assert [result.value for result in results] == [1.0, 0.0]


async def test_a_rubric_of_verifiers_scores_a_group_and_its_metrics_are_columns(
    others: Score,
) -> None:
    results = await others("rubric", {}, *grouped("four", "no", "five"))
    assert [result.value for result in results] == [1.0, 0.0, 1.0]
    assert results[1].extra == {"longest": 0.0, "answer": len("four")}
    entries = {"arguments": {"bonus": 0.5}}
    results = await others("Rubric", entries, *grouped("four", "no"))
    assert [result.value for result in results] == [1.5, 0.5]


async def test_what_a_rubric_logs_as_an_error_is_no_reward_of_zero(others: Score) -> None:
    """verifiers counts a reward function that raises as 0."""
    results = await others("rubric", {}, *grouped("four", "bad"))
    assert [result.status for result in results] == ["ok", "user_error"]
    assert "longest: division by zero" in results[1].detail
