"""`rmrl.types.Sampling` for vLLM, and for transformers' `generate` (whose outputs must be cut by
hand)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmrl.types import Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams


def sampling_params(sampling: Sampling, **more: Any) -> SamplingParams:
    """SamplingParams that return finished outputs only; `more` replaces or joins the fields made
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
        "n": (
            1 if sampling.temperature == 0 else sampling.n
        ),  # vLLM refuses several greedy samples: they would be equal
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": max(0, sampling.top_k),  # both 0 and -1 switch it off
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "ignore_eos": sampling.ignore_eos,
        "structured_outputs": structured,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    return SamplingParams(**(fields | more))


def generation_options(sampling: Sampling, tokenizer: Any, room: int) -> dict[str, Any]:
    """Keyword arguments of transformers' `generate` for one sample per row and at most `room` new
    tokens."""
    end = tokenizer.eos_token_id
    options: dict[str, Any] = {
        "max_new_tokens": min(sampling.max_tokens, room),
        "do_sample": sampling.temperature > 0,
        "eos_token_id": None if sampling.ignore_eos else end,
        "pad_token_id": end if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    }
    if sampling.temperature > 0:
        options |= {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": max(0, sampling.top_k),
        }
    return options


def cut_at_end(tokens: list[int], end: int | None) -> tuple[list[int], bool]:
    """Tokens up to and with the first end token, and whether there was one; rows of a batch are
    padded behind it."""
    if end is None or end not in tokens:
        return tokens, False
    return tokens[: tokens.index(end) + 1], True


def cut_at_stops(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Text before the first of `stops`, and whether there was one."""
    found = [text.find(stop) for stop in stops if stop in text]
    if found:
        return (text[: min(found)], True)
    return (text, False)
