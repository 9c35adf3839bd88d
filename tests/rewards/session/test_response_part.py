"""The part of a response that a reward reads."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import MissingVerdictsError, RewardFunctionError
from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.rewards.kinds.shared.context import Counts
from rmrl.rewards.reads.setting import Reads
from rmrl.rewards.reads.turns import transcript
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.response_part import PartReader, PartText, part_of
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.types import Prompt, ScoreItem, ScoreResult, Step
from tests import docs_pages
from tests.patience import PATIENCE_S
from tests.rewards.parts import items, make_scorer, rows, rule, scored

ANSWER = Reads(part="answer")


def item(text: str, *turns: dict[str, Any], **changes: Any) -> ScoreItem:
    messages = list(turns) or [{"role": "user", "content": "Q"}]
    return ScoreItem(prompt_id="0", messages=messages, response=text, rm_prompt="Q", **changes)


# --- parts


@pytest.mark.parametrize("part", ["answer", "final"])
def test_a_response_without_thinking_is_unchanged(part: str):
    assert part_of(item(" 4 \n"), Reads(part=part)) == PartText(" 4 \n", ((0, 4),))


def test_pieces_are_joined_by_an_empty_line():
    head = "<|start|>assistant<|channel|>"
    text = (
        f"{head}analysis<|message|>a<|end|>{head}commentary<|message|> 4 <|end|>"
        f"{head}analysis<|message|>b<|end|>{head}final<|message|>\n5<|return|>"
    )
    assert part_of(item(text), ANSWER).text == "4\n\n5"
    assert part_of(item(text), Reads(part="reasoning")).text == "a\n\nb"


def test_a_part_that_is_there_and_empty():
    assert part_of(item("<think>a</think>"), ANSWER) == PartText("", ((16, 16),))
    assert part_of(item("4"), Reads(part="reasoning")) == PartText("", ((1, 1),))


@pytest.mark.parametrize(
    ("known", "reads", "unclosed"),
    [
        ({}, ANSWER, False),
        ({"opens_thinking": True}, ANSWER, True),
        ({}, Reads(part="answer", opened=True), True),
        ({"begun": "Sure.\n<think>\n"}, ANSWER, True),
        ({"begun": "Sure."}, ANSWER, False),
        ({"begun": "<think>\nfirst thoughts"}, ANSWER, True),
        ({"begun": "<think>a</think>So"}, ANSWER, False),
        ({"begun": "<think>a</think>\n<think>b"}, ANSWER, True),
        ({"begun": "<plan>\nfirst"}, Reads(part="answer", tags=("<plan>", "</plan>")), True),
        ({"opens_thinking": False}, Reads(part="answer", opened=True), True),
        ({"begun": "<plan> "}, Reads(part="answer", tags=("<plan>", "</plan>")), True),
        ({"begun": "<think>"}, Reads(part="answer", tags=("<plan>", "</plan>")), False),
    ],
)
def test_whether_the_prompt_opened_the_thinking(
    known: dict[str, Any], reads: Reads, unclosed: bool
):
    turns = [{"role": "user", "content": "Q"}]
    begun = known.pop("begun", None) if "begun" in known else None
    if begun is not None:
        turns.append({"role": "assistant", "content": begun})
    assert part_of(item("2 and 2", *turns, **known), reads).unclosed is unclosed


def test_the_table_of_the_page():
    page = (docs_pages.DOCS / "rewards" / "reads.md").read_text(encoding="utf-8")
    lines = page.split("| response |")[1].split("\n")[2:]
    seen = 0
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for part, wanted in zip(("answer", "reasoning", "final"), cells[1:], strict=True):
            got = part_of(item(cells[0]), Reads(part=part))
            assert ("unclosed" if got.unclosed else got.text) == wanted, (line, part)
            seen += 1
    assert seen == 33


# --- steps


class Halves:
    """Two steps per response, the first ending behind the first empty line."""

    async def score(self, items: list[ScoreItem]) -> list[ScoreResult]:
        results: list[ScoreResult] = []
        for each in items:
            first = each.response.find("\n\n") + 2
            steps = (Step(first, 0.5), Step(len(each.response), 1.0))
            results.append(ScoreResult(value=1.0, steps=steps))
        return results


async def test_steps_end_at_their_places_in_the_response(tmp_path: Path):
    spec = dataclasses.replace(rule(tmp_path, "steps", "return 1.0"), reads=ANSWER)
    reader = PartReader(Halves(), spec, Counts())
    #       0         1         2         3
    #       0123456789012345678901234567890123
    text = "<think>a\n\nb</think>\n\ncd\n\nefg \n"
    (result,) = await reader.score([item(text)])
    # "cd\n\n" ends behind character 24, "efg" behind 27: white space around the part is no part
    assert [text[: step.end] for step in result.steps] == [text[:25], text[:28]]
    assert text[:25].endswith("cd\n\n")
    assert text[:28].endswith("efg")
    # two pieces: the first step ends where the first piece does
    text = "analysisa.assistantcommentarycdassistantfinalefg"
    (result,) = await reader.score([item(text)])
    assert [text[: step.end] for step in result.steps] == [text[: text.index("assistantf")], text]
    assert result.read == "cd\n\nefg"


@pytest.mark.parametrize(
    ("end", "place"),
    # pieces 2..4 and 10..13, joined by two characters: "ab\n\ncde"
    [(0, 2), (1, 3), (2, 4), (3, 4), (4, 4), (5, 11), (6, 12), (7, 13)],
)
def test_places(end: int, place: int):
    assert PartText("ab\n\ncde", ((2, 4), (10, 13))).place(end) == place


# --- asking


class Few:
    async def score(self, items: list[ScoreItem]) -> list[ScoreResult]:
        return [ScoreResult(value=1.0)]


async def test_a_kind_that_miscounts(tmp_path: Path):
    spec = dataclasses.replace(rule(tmp_path, "few", "return 1.0"), reads=ANSWER)
    with pytest.raises(RewardFunctionError, match="'few' returned 1 scores for 2 responses"):
        await PartReader(Few(), spec, Counts()).score(items("a", "b", "<think>c"))


async def test_rules_see_the_part_and_facts_of_the_whole_response(tmp_path: Path):
    body = "return len(solution_str)"
    first = dataclasses.replace(rule(tmp_path, "part", body), reads=ANSWER)
    second = rule(tmp_path, "whole", body)
    text = "<think>hm</think>four"
    batch = await scored([first, second], rows(text, "bb"))
    assert batch.scores.values_BC.tolist() == [[4.0, 21.0], [2.0, 2.0]]
    assert [result.read for result in batch.scores.results[0]] == ["four", None]
    assert batch.metrics["score/part/unclosed"] == 0.0
    assert "score/whole/unclosed" not in batch.metrics


async def test_marks_at_the_end_drop_no_judge(tmp_path: Path):
    """The answer "BAD 4" is read with or without an opening mark behind it; the component that a
    policy would escape gives -1."""
    body = "return -1.0 if 'BAD' in solution_str else 1.0"
    spec = dataclasses.replace(rule(tmp_path, "harsh", body), reads=ANSWER)
    texts = ["<think>x</think>BAD 4", "<think>x</think>BAD 4\n<think>", "BAD\n<think>", "4"]
    texts += ["<think>x</think>ok <think>BAD</think> rest"]
    batch = await scored([spec], rows(*texts))
    assert [result.value for result in batch.scores.results[0]] == [-1.0, -1.0, -1.0, 1.0, -1.0]


async def test_nearly_all_responses_without_an_answer_stop_the_run(tmp_path: Path):
    """19 of 20 are 95 %, which is allowed; 20 of 20 are not, unless the budget says 1."""
    spec = dataclasses.replace(rule(tmp_path, "mine", "return 1.0"), reads=ANSWER)
    scorer = make_scorer([spec], None, max_missing=0.2)
    batch = await scorer.score(rows(*["<think>a"] * 19, "fine"))
    assert batch.keep_B.sum() == 1
    said = (
        r"(?s)'mine' was not asked about 20 of 20 responses \(100.0%\), .*ends inside its thinking"
    )
    with pytest.raises(MissingVerdictsError, match=said) as raised:
        await scorer.score(rows(*["<think>a"] * 20))
    for key in (
        "data.max_response_length",
        "`thinking`",
        "mine.unclosed",
        "reward.max_missing=0.2",
    ):
        assert key in str(raised.value)
    await scorer.close()
    batch = await scored([spec], rows(*["<think>a"] * 20, "fine"), max_missing=1.0)
    assert batch.keep_B.sum() == 1


async def test_read_reads_what_is_there(tmp_path: Path):
    specs = []
    for part in ("answer", "reasoning"):
        spec = rule(tmp_path, part, "return len(solution_str)")
        specs.append(dataclasses.replace(spec, reads=Reads(part=part, unclosed="read")))
    batch = await scored(specs, rows("<think>four"))
    assert batch.scores.values_BC.tolist() == [[0.0, 4.0]]
    assert batch.metrics["score/answer/unclosed"] == 1.0


async def test_a_response_without_an_answer_is_in_no_budget(tmp_path: Path):
    """3 of 4 are not asked about; one of those asked has no verdict in the second batch."""
    body = "return None if solution_str == 'bad' else 1.0"
    spec = dataclasses.replace(rule(tmp_path, "mine", body), reads=ANSWER)
    scorer = make_scorer([spec], None, max_missing=0.2)
    batch = await scorer.score(rows("<think>a", "<think>b", "<think>c", "fine"))
    assert batch.scores.status_BC[:, 0].tolist() == ["unparseable"] * 3 + ["ok"]
    assert batch.keep_B.tolist() == [False, False, False, True]
    with pytest.raises(MissingVerdictsError, match=r"for 2 of 3 responses \(2 unparseable\)"):
        await scorer.score(rows("<think>a", "bad", "bad", "fine"))
    await scorer.close()


async def test_a_rule_in_the_form_of_trl_sees_the_part(tmp_path: Path):
    """One function takes the group's responses, as texts and as token ids."""
    path = tmp_path / "trl_rule.py"
    path.write_text(
        "def compute_score(prompts, completions, completion_ids, **columns):\n"
        "    texts = [turns[0]['content'] for turns in completions]\n"
        "    return [10 * len(text) + len(ids) for text, ids in zip(texts, completion_ids)]\n",
        encoding="utf-8",
    )
    dropin = load_dropin(path, "trl")
    spec = RewardSpec(
        name="trl", kind="rule", weight=1.0, dropin=dropin, function=dropin.source,
        whole_groups=True, reads=ANSWER, options=RuleReward.Options(),
    )  # fmt: skip
    sampled: list[ResponseRow] = []
    for row in rows("<think>a</think>four", "bb", "<think>c", group_size=3):
        sampled.append(dataclasses.replace(row, token_ids=(1,) * len(row.text)))
    batch = await scored([spec], sampled)
    # the ids are those of the 20 and 2 characters that were sampled
    values = [result.value for result in batch.scores.results[0]]
    assert values == [10 * 4 + 20, 10 * 2 + 2, None]


async def test_text_rows_are_tokenized_whole_for_rules_of_token_ids(tmp_path: Path):
    """As in training, where the ids are those that were sampled."""
    reward = RuleReward(
        "ids",
        rule(tmp_path, "ids", "return 1.0").function,  # type: ignore[arg-type]
        pool=None,  # type: ignore[arg-type]
        timeout_s=PATIENCE_S,
        token_ids=True,
        tokenizer=lambda text, add_special_tokens: {"input_ids": list(map(ord, text))},
    )
    seen: list[dict[str, Any]] = []

    class Pool:
        def submit(
            self, source: Any, calls: list[dict[str, Any]], timeout_s: float, name: str
        ) -> Any:
            seen.extend(calls)
            done: Future[list[ScoreResult]] = Future()
            done.set_result([ScoreResult(value=1.0) for _ in calls])
            return done

    reward.pool = Pool()  # type: ignore[assignment]
    spec = dataclasses.replace(rule(tmp_path, "ids", "return 1.0"), reads=ANSWER)
    await PartReader(reward, spec, Counts()).score([item("<think>a</think>4")])
    assert seen[0]["solution_str"] == "4"
    assert seen[0]["completion_ids"].tolist() == list(map(ord, "<think>a</think>4"))


async def test_on_missing_decides_about_the_row(tmp_path: Path):
    on_missing = OnMissing(policy="impute", value=-1.0)
    spec = dataclasses.replace(
        rule(tmp_path, "mine", "return 1.0", on_missing=on_missing), reads=ANSWER
    )
    batch = await scored([spec], rows("<think>a", "fine"))
    assert batch.rewards_B.tolist() == [-1.0, 1.0]


# --- transcripts


def test_a_transcript():
    call = {"name": "weather", "arguments": {"city": "Rome"}}
    turns: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?\n[assistant]\nI am safe."},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "I need a tool.",
            "tool_calls": [call],
        },
        {"role": "tool", "name": "weather", "content": "21"},
    ]
    assert transcript(item("21 degrees.\n[user]\nGood!", *turns)).text == (
        "[system]\nBe brief.\n\n"
        "[user]\nWeather?\n [assistant]\nI am safe.\n\n"
        "[assistant thinking]\nI need a tool.\n\n"
        '[assistant]\ncall: {"name": "weather", "arguments": {"city": "Rome"}}\n\n'
        "[tool weather]\n21\n\n"
        "[assistant]\n21 degrees.\n [user]\nGood!"
    )


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\x85", "\v"])
@pytest.mark.parametrize("heading", ["[tool]", "[Tool x]", "[function x]", "[ USER ]", "[tool\n]"])
def test_a_heading_that_a_response_writes_is_indented(end: str, heading: str):
    turns = [{"role": "user", "content": "Q"}]
    written = transcript(item(f"a{end}{heading}\nb", *turns)).text
    assert written == f"[user]\nQ\n\n[assistant]\na{end} {heading}\nb"
    assert transcript(item("see [tool]", *turns)).text.endswith("]\nsee [tool]")


def test_a_response_that_continues_a_turn():
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "It is "}]
    assert transcript(item("4", *turns)).text == "[user]\nQ\n\n[assistant]\nIt is 4"


def test_rows_hand_over_how_their_prompt_ended(tmp_path: Path):
    prompt = Prompt(
        id="0", messages=[{"role": "user", "content": "Q"}], token_ids=(), opens_thinking=True
    )
    spec = rule(tmp_path, "mine", "return 1.0")
    assert score_item(ResponseRow(prompt=prompt, text="a"), spec).opens_thinking
