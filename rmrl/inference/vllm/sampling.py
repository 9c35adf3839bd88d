"""`rmrl.types.Sampling` as settings for vLLM, and for transformers' `generate` (whose outputs are
cut here)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rmrl.types import Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams


def sampling_params(sampling: Sampling, **overrides: Any) -> SamplingParams:
    """Return SamplingParams for finished outputs only; `overrides` replace or join the fields built
    here."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    structured = None
    if sampling.choice:
        structured = StructuredOutputsParams(choice=list(sampling.choice))
    elif sampling.regex:
        structured = StructuredOutputsParams(regex=sampling.regex)
    elif sampling.json_schema:
        structured = StructuredOutputsParams(json=sampling.json_schema)
    fields: dict[str, Any] = {
        # vLLM refuses several greedy samples: they would be equal
        "n": 1 if sampling.temperature == 0 else sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": max(0, sampling.top_k),  # both 0 and -1 switch it off
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "structured_outputs": structured,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    return SamplingParams(**(fields | overrides))


def generation_options(sampling: Sampling, tokenizer: Any, room: int) -> dict[str, Any]:
    """Return keyword arguments for transformers' `generate` for one sample per row and at most
    `room` new tokens."""
    end = tokenizer.eos_token_id
    options: dict[str, Any] = {
        "max_new_tokens": min(sampling.max_tokens, room),
        "do_sample": sampling.temperature > 0,
        "eos_token_id": end_tokens(tokenizer, sampling) or None,
        "pad_token_id": end if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    }
    if sampling.temperature > 0:
        options |= {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": max(0, sampling.top_k),
        }
    return options


def decoded(
    tokens: list[int], tokenizer: Any, sampling: Sampling
) -> tuple[str, list[int], Literal["stop", "length"]]:
    """Return (text, tokens, finish reason) for a row that `generate` wrote: the tokens end with the
    first end token, the text before the first stop in `sampling.stop`."""
    tokens, ended = cut_at_end(tokens, end_tokens(tokenizer, sampling))
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    text, stopped = cut_at_stops(text, sampling.stop)
    return text, tokens, "stop" if ended or stopped else "length"


def end_tokens(tokenizer: Any, sampling: Sampling) -> list[int]:
    """Return the tokens that end a sample."""
    own = [] if sampling.ignore_eos or tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return [*own, *sampling.stop_token_ids]


def cut_at_end(tokens: list[int], ends: Sequence[int]) -> tuple[list[int], bool]:
    """Return the tokens up to and with the first end token, and whether there was one. A batch's
    rows are padded after it."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tokens[: place + 1], True
    return tokens, False


def cut_at_stops(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Return the text before the first stop in `stops`, and whether there was one."""
    positions = [text.find(stop) for stop in stops if stop in text]
    if not positions:
        return text, False
    return text[: min(positions)], True
