"""`rmrl.types.Sampling` as vLLM's SamplingParams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmrl.types import Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams


def sampling_params(sampling: Sampling, **more: Any) -> SamplingParams:
    """SamplingParams that return finished outputs only; `more` replaces or joins the fields made here."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    structured = None
    if sampling.choice:
        structured = StructuredOutputsParams(choice=list(sampling.choice))
    elif sampling.regex:
        structured = StructuredOutputsParams(regex=sampling.regex)
    fields: dict[str, Any] = {
        "n": 1 if sampling.temperature == 0 else sampling.n,  # vLLM refuses several greedy samples: they would be equal
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
