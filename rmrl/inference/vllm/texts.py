"""Finished samples' texts, decoded once at their end and equal to what vLLM's incremental
detokenizer writes token by token.

The incremental detokenizer costs more than all else that a decode step does in Python (it runs for
every token in every sequence), and only stop strings need its text before the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.inference.vllm import compat
from rmrl.types import Sampling

REPLACEMENT = "\ufffd"
"""Character that decoders write for bytes that are none."""
_FIRST_CONTEXT = 6
"""Prompt tokens that are tried first as context; doubled until they decode to a text."""
_PROMPTS = 1024
"""Prompts whose context is remembered."""


def text_output(request: GenerateRequest, sample: Any) -> TextOutput:
    """The answer to a reward's request: vLLM's finished completion, whose text has been filled
    in."""
    # one mapping from token id to log-probability for each generated token
    first = sample.logprobs[0] if request.choice_tokens and sample.logprobs else {}
    logprobs: list[float] = [
        first[token].logprob if token in first else -math.inf for token in request.choice_tokens
    ]
    finish_reason = sample.finish_reason or "stop"
    tokens = (len(request.token_ids), len(sample.token_ids))
    return TextOutput(sample.text, finish_reason, *tokens, tuple(logprobs))


class SampleTexts:
    """Decodes samples with an engine's tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._library: Any = compat.library_tokenizer(tokenizer)
        # The samples of a prompt share it.
        self._context = lru_cache(_PROMPTS)(self.context_of)

    def needs_vllm(self, sampling: Sampling) -> bool:
        """Return whether vLLM must detokenize while it samples: to look for stop strings, or since
        the tokenizer is not from the tokenizers library."""
        return bool(sampling.stop) or self._library is None

    def fill(self, output: Any, params: Any) -> None:
        """Set the texts in a finished RequestOutput that was sampled under SamplingParams `params`,
        unless vLLM has."""
        if params.detokenize:
            return
        for sample in output.outputs:
            sample.text = self.text(
                output.prompt_token_ids,
                sample.token_ids,
                finish_reason=sample.finish_reason,
                params=params,
            )

    def text(
        self,
        prompt: Sequence[int],
        tokens: Sequence[int],
        *,
        finish_reason: str | None,
        params: Any,
    ) -> str:
        """Return the text that `tokens` add to `prompt`. With finish_reason "stop" the end token is
        not in it.

        `params`: the sample's SamplingParams, without stop strings.
        """
        ended = finish_reason == "stop"
        written = list(tokens[:-1] if ended else tokens)
        context = self._context(tuple(prompt))
        if context is not None:
            text = self._decode(context + written)[len(self._decode(context)) :]
            # Without invalid bytes it makes no difference where a text is cut into pieces.
            if REPLACEMENT not in text:
                return text
        return compat.detokenized(
            self._tokenizer, list(prompt), list(tokens), stop_terminated=ended, params=params
        )

    def context_of(self, prompt: tuple[int, ...]) -> list[int] | None:
        """Return the prompt's last tokens that decode to whole characters: a decoder may treat a
        text's first token differently. None: the prompt has bytes that are no character."""
        text = self._decode(list(prompt))
        if REPLACEMENT in text:
            return None
        length = _FIRST_CONTEXT
        while text and length < len(prompt):
            context = list(prompt[-length:])
            end = self._decode(context)
            if end and REPLACEMENT not in end:
                return context
            length *= 2
        return list(prompt)

    def _decode(self, tokens: list[int]) -> str:
        return self._library.decode(tokens, skip_special_tokens=True)
