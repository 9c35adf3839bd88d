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
from rmrl.rewards.dropins.signatures import InLists, MisfitError, OneByOne, rule_form
from rmrl.rewards.entries.resolve import Resolved, resolve_rewards
from rmrl.rewards.entries.section import Surroundings
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import Prompt, RewardBatch
from tests.rewards.parts import make_scorer

MODULE = """
import asyncio
import logging

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


@dataclasses.dataclass
class Rules:
    """Rules of the module above, as a user names them."""

    folder: Path
    tokenizer: Any

    def resolve(self, name: str, **entries: Any) -> Resolved:
        dropin = (self.folder / f"{name}.py").exists()
        function = name if dropin else f"rules_of_others:{name}"
        config = RewardConfig(models=[function])
        if entries:
            spec = {"kind": "rule", "function": function, **entries}
            config = RewardConfig(models=["mine"], specs={"mine": spec})
        surroundings = Surroundings(device="cpu", threads=1, functions_dirs=[self.folder])
        return resolve_rewards(config, surroundings)

    async def score(self, name: str, *rows: ResponseRow, **entries: Any) -> RewardBatch:
        """Rewards of the rows, by a rule that runs in a worker."""
        resolved = self.resolve(name, **entries)
        assert resolved.problems == []
        scorer = make_scorer(resolved.specs, self.tokenizer)
        try:
            return await scorer.score(rows)
        finally:
            await scorer.close()

    async def results(self, name: str, *rows: ResponseRow, **entries: Any) -> Any:
        return (await self.score(name, *rows, **entries)).scores.results[0]

    async def rewards(self, name: str, *rows: ResponseRow, **entries: Any) -> list[float]:
        return (await self.score(name, *rows, **entries)).rewards_B.tolist()


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Rules:
    (tmp_path / "rules_of_others.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return Rules(tmp_path, tokenizer)


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
    ("name", "arguments", "expected"),
    [
        ("lengths", None, [4.0, 2.0]),
        ("waits", None, [1.0, 0.0]),
        ("compute_score", None, [1.0, 0.0]),
        ("Exact", None, [2.0, 0.0]),
        ("Later", None, [2.0, 0.0]),
        ("above", {"threshold": 3}, [1.0, 0.0]),
        ("longer_than", {"limit": 3}, [1.0, 0.0]),
        ("Scaled", {"factor": 2.5}, [2.5, 2.5]),
        # An object that a function makes is called as TRL calls it, with messages.
        ("get_scaled_length", {"factor": 0.5}, [2.0, 1.0]),
        ("correct_later", None, [1.0, 0.0]),
    ],
)
async def test_every_form_gives_scores(
    rules: Rules, name: str, arguments: dict[str, Any] | None, expected: list[float]
) -> None:
    entries = {} if arguments is None else {"arguments": arguments}
    batch = await rules.score(name, row("four"), row("no"), **entries)
    assert [r.detail for r in batch.scores.results[0]] == ["", ""]
    assert batch.rewards_B.tolist() == expected


async def test_a_conversation_has_messages_and_plain_text_has_strings(rules: Rules) -> None:
    results = await rules.results("seen", row(level=3), row(plain=True))
    chat, plain = (r.extra for r in results)
    assert chat["prompt"] == [{"role": "user", "content": "2+2?"}]
    assert chat["completion"] == [{"role": "assistant", "content": "four"}]
    assert (plain["prompt"], plain["completion"]) == ("2+2?", "four")
    columns = "answer data_source extra_info finish_reason ground_truth response_tokens solution"
    assert plain["names"] == columns.split()
    assert chat["names"] == sorted([*columns.split(), "level"])


async def test_token_ids_where_there_are_some(rules: Rules) -> None:
    known, unknown = await rules.results("tokens", row(token_ids=(7, 8)), row())
    assert known.value == 15.0
    assert unknown.status == "user_error"
    assert "tokens needs completion_ids, and this response came as text" in unknown.detail
    assert "give reward.specs.<name>.tokenizer=<the policy's>" in unknown.detail


async def test_token_ids_of_text_come_from_the_tokenizer_that_is_named(
    rules: Rules, tokenizer: Any
) -> None:
    rows = [row("four"), row(token_ids=(7, 8))]
    rewards = await rules.rewards("tokens", *rows, tokenizer="/policy")
    assert rewards == [sum(tokenizer("four", add_special_tokens=False)["input_ids"]), 15.0]


async def test_columns_are_entries_of_extra_info_and_none_is_no_verdict(rules: Rules) -> None:
    complete, incomplete = await rules.results("level", row(difficulty=3), row(other=1))
    assert complete.value == 3.0
    assert incomplete.status == "user_error"
    assert incomplete.detail.startswith("level needs difficulty, which this row does not have")
    assert incomplete.detail.endswith("extra_info (here: other)")
    (unsure,) = await rules.results("unsure", row())
    assert unsure.status == "unparseable"


async def test_what_is_logged_becomes_columns(rules: Rules) -> None:
    (result,) = await rules.results("logs", row())
    assert result.extra == {"first": "f", "share": 0.5}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("two", "two returned 2 rewards for 1 completion; return exactly one per completion"),
        ("bare", "bare returned 1.0 (float); a list with one reward per completion is needed"),
        ("broken", "broken raised ZeroDivisionError"),
        ("text", "text returned '0.5' (str); a score is a number"),
        ("needs_state", "change weights by step with reward.weight_schedules"),
    ],
)
async def test_mistakes_are_reported(rules: Rules, name: str, words: str) -> None:
    (result,) = await rules.results(name, row())
    assert (result.value, result.status) == (None, "user_error")
    assert words in result.detail


async def test_a_drop_in_file_may_have_the_form_as_well(rules: Rules) -> None:
    file = rules.folder / "mine.py"
    file.write_text("def compute_score(completions, **columns):\n    return [3.0]\n")
    assert await rules.rewards("mine", row()) == [3.0]


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


async def test_a_function_that_looks_at_the_group_gets_the_group(rules: Rules) -> None:
    """Alone every response would have the rank 0."""
    rows = [*grouped("b", "c", "a"), *grouped("z", "y", group=1)]
    assert await rules.rewards("ranks", *rows) == [1.0, 2.0, 0.0, 1.0, 0.0]


async def test_a_group_that_raises_costs_the_rows_it_has_to(rules: Rules) -> None:
    results = await rules.results("breaks", *grouped("2", "0", "4"))
    assert [result.value for result in results] == [0.5, None, 0.25]
    assert "ZeroDivisionError" in results[1].detail


async def test_the_batch_signature_of_verl(rules: Rules) -> None:
    results = await rules.results("batch", *grouped("four", "no"))
    assert [result.value for result in results] == [1.0, 0.0]
    assert [result.extra["count"] for result in results] == [2, 2]


async def test_the_signature_of_openrlhf(rules: Rules) -> None:
    results = await rules.results("reward_func", *grouped("four", "no"))
    assert [result.value for result in results] == [1.0, 0.0]
    first, second = (result.extra for result in results)
    assert (first["scores"], second["scores"]) == (1.0, 0.0)
    assert (first["length"], second["length"]) == (len("2+2?four"), len("2+2?no"))
    assert first["mean"] == 0.5


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("above", {"treshold": 3}, "takes no argument 'treshold'; did you mean 'threshold'?"),
        ("above", {}, "needs threshold, which no rule is given"),
        ("Scaled", {"speed": 1}, "Scaled(speed=1) raised TypeError"),
        ("above", "3", "arguments='3': give entries, e.g. reward.specs.mine.arguments.threshold="),
    ],
)
def test_wrong_arguments_are_found_before_anything_starts(
    rules: Rules, function: str, arguments: Any, words: str
) -> None:
    (problem,) = rules.resolve(function, arguments=arguments).problems
    assert words in problem


# --- ms-swift, OpenRLHF and verifiers


@pytest.mark.parametrize(
    ("name", "arguments", "rows", "values"),
    [
        (  # a class of ms-swift gets its settings and the token ids
            "Overlong",
            {"args": {"soft_max_length": 2}},
            [row("four", token_ids=(1, 2, 3)), row("no", token_ids=(1, 2))],
            [0.0, 1.0],
        ),
        ("Tools", {}, grouped("four", "no"), [1.0, 0.0]),  # an older one gets the completions
        # a function of OpenRLHF may return one number for one response
        ("one_at_a_time", {}, grouped("four", "no"), [0.5, 0.5]),
        ("scalar", {}, grouped("four", "no"), [0.25, 0.25]),
        # a reward function of verifiers is called once per response
        ("correct", {}, [row("four", level=1), row("no", level=2)], [1.1, 0.2]),
        ("rubric", {}, grouped("four", "no", "five"), [1.0, 0.0, 1.0]),
        ("Rubric", {"bonus": 0.5}, grouped("four", "no"), [1.5, 0.5]),
    ],
)
async def test_rules_of_other_libraries(
    rules: Rules, name: str, arguments: dict[str, Any], rows: list[ResponseRow], values: list[float]
) -> None:
    results = await rules.results(name, *rows, **({"arguments": arguments} if arguments else {}))
    assert [result.detail for result in results] == [""] * len(rows)
    assert [result.value for result in results] == values


async def test_metrics_of_a_rubric_of_verifiers_are_columns(rules: Rules) -> None:
    results = await rules.results("rubric", *grouped("four", "no", "five"))
    assert results[1].extra == {"longest": 0.0, "answer": len("four")}


async def test_what_a_rubric_logs_as_an_error_is_no_reward_of_zero(rules: Rules) -> None:
    """verifiers counts a reward function that raises as 0."""
    results = await rules.results("rubric", *grouped("four", "bad"))
    assert [result.status for result in results] == ["ok", "user_error"]
    assert "longest: division by zero" in results[1].detail
