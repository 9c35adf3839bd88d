"""Thinking, answer and last message of what models write."""

from __future__ import annotations

import time

import pytest

from rmrl.rewards.reads.response_parts import response_parts

HARMONY = "<|channel|>analysis<|message|>3<|end|><|start|>assistant"
FINAL = "<|start|>assistant<|channel|>final<|message|>7<|return|>"
TOOLS = "<tool_call>\n{}\n</tool_call>"
RESULT = "\nuser\n<tool_response>\n4\n</tool_response>\nassistant\n"


def texts(text: str, part: str, **known: object) -> list[str]:
    """The pieces of a part, without those that are empty."""
    spans = response_parts(text, **known).part(part)  # type: ignore[arg-type]
    return [text[start:end].strip() for start, end in spans if text[start:end].strip()]


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("4", [], ["4"]),
        ("", [], []),
        # DeepSeek-R1, Qwen3: with the opening mark, and where the template wrote it
        ("<think>\na\n</think>\n\n4", ["a"], ["4"]),
        ("a\n</think>\n\n4", ["a"], ["4"]),
        ("<think>\n\n</think>\n\n4", [], ["4"]),
        ("<Think>a</THINK>4", ["a"], ["4"]),
        ("[THINK]a[/THINK]4", ["a"], ["4"]),
        ("◁think▷a◁/think▷4", ["a"], ["4"]),
        ("<seed:think>a</seed:think>4", ["a"], ["4"]),
        ("<thought>\na\n</thought>\n4", ["a"], ["4"]),
        ("<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>4", ["a"], ["<|START_RESPONSE|>4"]),
        ("<|begin_of_thought|>a<|end_of_thought|>4", ["a"], ["4"]),
        ("<|channel>thought\na<channel|>4", ["a"], ["4"]),
        ("Here is my thought process: a Here is my response: 4", ["a"], ["4"]),
        ("Here's my thought process:\na\nHere's my response:\n4", ["a"], ["4"]),
        # only a closing sentence is prose
        ("Here is my response: 4", [], ["Here is my response: 4"]),
        (HARMONY + "<|channel|>final<|message|>7<|return|>", ["3"], ["7"]),
        (HARMONY + " to=f<|channel|>commentary json<|message|>{}<|call|>", ["3"], ["{}"]),
        ("analysisWe add.assistantfinal4", ["We add."], ["4"]),
        ("analysisA.assistantcommentary to=f json{}", ["A."], ["{}"]),
        ("analysis\n\nThe user asks.assistantfinalOK", ["The user asks."], ["OK"]),
        ("analysis We add.assistantfinal\n4", ["We add."], ["4"]),
        ("analysisthe user asksassistantfinal4", ["the user asks"], ["4"]),
        # the channel final reaches to the end, and text behind the analysis is answer
        ("analysisA.assistantfinalSay assistantfinal5", ["A."], ["Say assistantfinal5"]),
        ("<|channel|>final<|message|>4<|end|>BAD", [], ["4<|end|>BAD"]),
        ("<|channel|>final<|message|>The <|end|> token<|return|>", [], ["The <|end|> token"]),
        ("<|channel|>analysis<|message|>3<|end|>BAD" + FINAL, ["3"], ["BAD", "7"]),
        (HARMONY + "<|channel|>final<|message|>7<|end|>" + HARMONY, ["3"], ["7<|end|>" + HARMONY]),
        # words of an answer
        ("analysis_results = 4\n", [], ["analysis_results = 4"]),
        ("analysis() returns 4", [], ["analysis() returns 4"]),
        ("analysis2024 was good", [], ["analysis2024 was good"]),
        ("analysisWe add", [], ["analysisWe add"]),
        ("analysis", [], ["analysis"]),
        ("analysis of the question: 4", [], ["analysis of the question: 4"]),
        ("The <|channel|>final<|message|> mark", [], ["The <|channel|>final<|message|> mark"]),
        # marks of another name; marks behind the first block are text
        ("<think>a</think>4<think>b</think>5", ["a"], ["4<think>b</think>5"]),
        ("<think>a</think><think>b", ["a"], ["<think>b"]),
        ("<think>a</think>BAD 4\n<think>", ["a"], ["BAD 4\n<think>"]),
        ("ok <think>BAD</think> 4", [], ["ok <think>BAD</think> 4"]),
        ("Well.\n <think>a", [], ["Well.\n <think>a"]),
        ("Type:\n```\n<think>\n```\nDone", [], ["Type:\n```\n<think>\n```\nDone"]),
        ('<think time="3">a</think>4', ["a"], ["4"]),
        ("<think>a</thinking>b</think>5", ["a</thinking>b"], ["5"]),
        ("<think>a</think>4</think>5", ["a"], ["4</think>5"]),
        ("<think>a<think>b</think>5", ["a<think>b"], ["5"]),
        ("<think>a</think>Write <think> first", ["a"], ["Write <think> first"]),
    ],
)
def test_thinking_and_answer(text: str, thinking: list[str], answer: list[str]):
    assert texts(text, "reasoning") == thinking
    assert texts(text, "answer") == answer
    assert not response_parts(text).unclosed


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>a", ["a"], []),
        ("[THINK]", [], []),
        ("<think>a</thought>", ["a</thought>"], []),
        ("<|channel|>analysis<|message|>3", ["3"], []),
        ("<|channel|>analysis<|message|>3<|end|><|start|>assistant<|channel|>analysis<|message|>4",
         ["3", "4"], []),
        ("Here is my thought process: a", ["a"], []),
    ],
)  # fmt: skip
def test_a_response_that_ends_inside_its_thinking(
    text: str, thinking: list[str], answer: list[str]
):
    assert response_parts(text).unclosed
    assert texts(text, "reasoning") == thinking
    assert texts(text, "answer") == answer


def test_a_block_that_the_prompt_opened():
    assert response_parts("perhaps 4", opened=True).unclosed
    assert texts("perhaps 4", "reasoning", opened=True) == ["perhaps 4"]
    assert texts("perhaps 4", "answer", opened=True) == []
    assert texts("a</think>4", "answer", opened=True) == ["4"]
    # R1 writes the mark once more now and then
    assert texts("<think>\na</think>4", "reasoning", opened=True) == ["a"]
    assert response_parts("<think>a", opened=True).unclosed


def test_a_prompt_that_is_known_to_open_no_block():
    assert texts("BAD </think> 4", "answer", opened=False) == ["BAD </think> 4"]
    assert texts("BAD </think> 4", "answer", opened=None) == ["4"]
    assert texts("<think>a</think>4", "answer", opened=False) == ["4"]


@pytest.mark.parametrize(
    "marks",
    [
        ("<scratch>", "</scratchpad>"),
        ("[begin]", "[/end]"),
        ("Thoughts:", "</done>"),
        ("// think", "// end"),
        ("<a/>", "<b/>"),
    ],
)
def test_own_marks_belong_together_whatever_they_are(marks: tuple[str, str]):
    text = f"{marks[0]} a {marks[1]} 4"
    assert texts(text, "reasoning", tags=marks) == ["a"]
    assert texts(text, "answer", tags=marks) == ["4"]
    assert texts(f"a {marks[1]} 4", "answer", tags=marks) == ["4"]


def test_own_marks_take_the_place_of_the_known_ones():
    marks = ("<plan>", "(end)")
    assert texts("<plan>a(end)4", "answer", tags=marks) == ["4"]
    assert texts("a(end)4", "reasoning", tags=marks) == ["a"]
    assert texts("<think>a</think>4", "answer", tags=marks) == ["<think>a</think>4"]
    assert response_parts("<plan>a", tags=marks).unclosed


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("4", ["4"]),
        ("<think>a</think>4", ["4"]),
        ("<think>a</think>4<think>b</think>5", ["4<think>b</think>5"]),
        # a closing mark that nothing opened
        ("BAD </tool_call> 4", ["BAD </tool_call> 4"]),
        ("BAD </tool_response> 4", ["BAD </tool_response> 4"]),
        ("BAD <|im_start|>assistant\n4", ["BAD <|im_start|>assistant\n4"]),
        ("<|channel|>analysis<|message|>3<|end|>BAD" + FINAL, ["BAD", "7"]),
        ("<think>a", []),
        (f"<think>a</think>I look.{TOOLS}", []),
        (f"I look.{TOOLS}{RESULT}It is 4.", ["It is 4."]),
        (f"I look.{TOOLS}{RESULT}<think>b</think>It is 4.", ["It is 4."]),
        (f"{TOOLS}<|im_end|>\n<|im_start|>assistant\nIt is 4.", ["It is 4."]),
        (HARMONY + "<|channel|>final<|message|>7<|return|>", ["7"]),
        (HARMONY + " to=f<|channel|>commentary json<|message|>{}<|call|>", []),
        ("analysisA.assistantfinal4", ["4"]),
    ],
)
def test_final_is_the_last_message(text: str, final: list[str]):
    assert texts(text, "final") == final


@pytest.mark.parametrize(
    "text",
    [
        "x" + "<think>" * 100_000,
        "</think>" * 100_000,
        "x <think>\n" * 50_000 + "</thought>",
        "<think>a</think>" * 50_000,
        "analysisA" + "assistantfinal" * 50_000,
        "analysisA" + "assistant to=" * 50_000,
        "<|channel|>analysis" * 25_000,
        "<|start|>assistant" * 25_000,
        "<|channel|>analysis<|message|>" * 32_000,
        "<|start|>assistant<|channel|>analysis<|message|>" * 20_000,
        "<tool_call></tool_call><think></think>" * 25_000,
        "<think " * 140_000,
        "</tool_call>" + " " * 500_000,
        " " * 500_000,
    ],
)
def test_long_texts_take_linear_time(text: str):
    started = time.process_time()
    response_parts(text)
    # quadratic time would be minutes
    assert time.process_time() - started < 60
