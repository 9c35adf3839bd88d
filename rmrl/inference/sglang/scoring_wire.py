"""What SGLang's native server is told and what it says: its command line, the bodies of its posts,
its answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rmrl.inference.scoring_base import EngineSpec, GenerateRequest, TextOutput, ValueOutput
from rmrl.inference.sglang import launch as sglang
from rmrl.types import Sampling


def launch_command(spec: EngineSpec, port: int) -> list[str]:
    """The command line that serves `spec` on 127.0.0.1."""
    options: dict[str, Any] = {
        "model_path": spec.path,
        "port": port,
        "device": spec.device,
        "dtype": spec.dtype,
        "context_length": spec.context_length(),
        "max_running_requests": spec.max_num_seqs,
        "chunked_prefill_size": spec.max_num_batched_tokens,
        "tp_size": spec.tensor_parallel_size,
        "random_seed": spec.seed,
        "trust_remote_code": spec.trust_remote_code,
        "is_embedding": spec.runner != "generate",
    }
    if spec.device == "cuda":
        options |= {
            "mem_fraction_static": spec.gpu_memory_utilization,
            "enable_memory_saver": True,
            "enable_weights_cpu_backup": True,
        }
    return sglang.launch_command(options, spec.kwargs)


def generate_body(request: GenerateRequest) -> dict[str, Any]:
    """The body of a post to /generate."""
    sampling = request.sampling
    params = sglang.sampling_parameters(
        sampling, n=asked(sampling), max_new_tokens=sampling.max_tokens, seed=sampling.seed
    )
    body: dict[str, Any] = {"input_ids": list(request.token_ids), "sampling_params": params}
    if request.choice_tokens:
        body |= {
            "return_logprob": True,
            "logprob_start_len": -1,
            "token_ids_logprob": list(request.choice_tokens),
        }
    return body


def text_output(sample: Mapping[str, Any], request: GenerateRequest) -> TextOutput:
    """One sample of an answer of /generate."""
    told = sample.get("meta_info", {})
    tokens = (len(request.token_ids), int(told.get("completion_tokens", 0)))
    finish = told.get("finish_reason") or {}
    kind = finish.get("type") if isinstance(finish, Mapping) else finish
    if kind == "abort":
        if isinstance(finish, Mapping):
            why = finish.get("message", "no reason given")
        else:
            why = "no reason given"
        return TextOutput(
            "", "", *tokens, failure="provider_error", detail=f"SGLang broke the answer off: {why}"
        )
    return TextOutput(
        str(sample["text"]),
        "length" if kind == "length" else "stop",
        *tokens,
        choice_logprobs=_choice_logprobs(told, request),
    )


def _choice_logprobs(told: Mapping[str, Any], request: GenerateRequest) -> tuple[float, ...]:
    """`output_token_ids_logprobs` holds, per written token, one [logprob, token id, text or null]
    for each asked id."""
    if not request.choice_tokens:
        return ()
    positions = told.get("output_token_ids_logprobs") or [[]]
    found = {int(entry[1]): float(entry[0]) for entry in positions[0] or [] if entry[0] is not None}
    return tuple(found.get(token, -math.inf) for token in request.choice_tokens)


def value_output(row: Mapping[str, Any], tokens: int) -> ValueOutput:
    """One row of an answer of /classify: a scalar head's `embedding` has one entry."""
    found = row.get("embedding")
    values = found if isinstance(found, list) else [found]
    if len(values) == 1 and isinstance(values[0], int | float) and math.isfinite(values[0]):
        return ValueOutput(float(values[0]), tokens)
    shown = json.dumps(values)[:80]
    detail = (
        f"SGLang gave {shown} for a sequence ({len(values)} values); one finite number is needed:"
        " is this a head with one label?"
    )
    return ValueOutput(math.nan, tokens, failure="provider_error", detail=detail)


def asked(sampling: Sampling) -> int:
    """Samples to ask for: greedy ones are equal, so one is drawn and repeated."""
    if sampling.temperature == 0:
        return 1
    return sampling.n
