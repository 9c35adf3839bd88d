"""Samples of a judge: the text that may hold a verdict, and why a sample has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.judging.thinking import opens_thinking, strip_thinking
from rmrl.rewards.kinds.judge.refusal import is_refusal
from rmrl.rewards.kinds.shared.untrusted import Fence
from rmrl.types import Status


@dataclass(frozen=True, slots=True)
class JudgeSample:
    """One sample of a judge."""

    output: TextOutput
    text: str
    """The judge's own words, without thinking and quotations of the fenced responses."""
    cut: bool
    """The token limit ended the sample inside its thinking."""

    @classmethod
    def of(cls, output: TextOutput, *, prompt: str, fences: Sequence[Fence]) -> JudgeSample:
        """The sample in `output`; `prompt` is the rendered input of the judge, `fences` are those
        in it."""
        text = output.text
        for fence in fences:
            text = fence.clean(text)
        text, left_open = strip_thinking(text, opened=opens_thinking(prompt))
        return cls(output, text, left_open and output.finish_reason == "length")

    @property
    def readable(self) -> bool:
        """Whether there is a text to read."""
        return not self.output.failure and not self.cut

    @property
    def ended(self) -> bool:
        """Whether the judge ended its text by itself, outside its thinking."""
        return self.readable and bool(self.text) and self.output.finish_reason != "length"

    def failure(self, *, problem: str = "", reason: str = "") -> tuple[Status, str]:
        """(status, sentence) of a sample without a verdict.

        `problem`: that of the value which rm_postprocess returned. `reason`: why the text holds no
        verdict. It precedes "in <the text>".
        """
        if self.output.failure:
            return self.output.failure, self.output.detail
        if self.cut:
            return (
                "judge_truncated",
                "the judge ran out of tokens inside its thinking block; raise sampling.max_tokens",
            )
        if problem:
            return "user_error", f"rm_postprocess {problem}"
        if is_refusal(self.text):
            return "judge_refused", f"the judge refused: {self.text[:120]!r}"
        if self.output.finish_reason == "length":
            return (
                "judge_truncated",
                "the judge ran out of tokens before a verdict; raise sampling.max_tokens",
            )
        return "unparseable", f"{reason or 'no verdict'} in {self.output.text[:120]!r}"
