"""Marks between which models write their thinking, and prompts that end inside such a block.

    <think> </think>                            DeepSeek-R1, Qwen3, GLM-4.5, MiniMax-M2, Olmo 3, ...
    <thought>, <thinking>, <reasoning>          EXAONE Deep, and models trained on such data
    <seed:think> </seed:think>                  Seed-OSS
    [THINK] [/THINK]                            Magistral
    ◁think▷ ◁/think▷                            Kimi-VL thinking
    <|START_THINKING|> <|END_THINKING|>         Command A Reasoning
    <|begin_of_thought|> <|end_of_thought|>     Sky-T1, OpenThinker
    <|channel>thought <channel|>                Gemma 4

The marks are those of the models' chat templates and of vLLM's reasoning parsers
(docs.vllm.ai/en/latest/api/vllm/reasoning). gpt-oss writes channels and Granite 3.2 sentences
instead: `rmrl.rewards.reads.response_parts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
NAMES = f"(?:{'|'.join(_NAMES)})"

PAIRS: tuple[tuple[str, str], ...] = (
    # <think> and </thought> do not belong together; <think time="3"> has an attribute.
    *((rf"<{name}(?:\s[^<>]{{0,100}})?>", rf"</{name}>") for name in _NAMES),
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|channel>thought\b", r"<channel\|>"),
)
"""Regular expressions of an opening and a closing mark; upper and lower case are the same."""

_OPENED = re.compile(rf"(?:{'|'.join(opening for opening, _ in PAIRS)})\s*$", re.IGNORECASE)
_TOKENS = re.compile(
    "|".join([*(mark for pair in PAIRS for mark in pair), r"<\|channel>"]), re.IGNORECASE
)


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt leaves a thinking block open for the model to continue, as some
    chat templates do."""
    return _OPENED.search(prompt) is not None


def marks_among(tokens: Iterable[str]) -> list[str]:
    """Return those of `tokens` that are an opening or a closing mark of a thinking block."""
    return [token for token in tokens if _TOKENS.fullmatch(token)]
