"""Messages to and from SGLang's native server: its command line, its posts' bodies, its answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, LabelOutput, TextOutput
from rmrl.inference.sglang import launch as sglang
from rmrl.types import Sampling


def launch_command(spec: EngineSpec, port: int) -> list[str]:
    """Return the command line that serves `spec` on 127.0.0.1."""
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
    """Return a post's body for /generate."""
    sampling = request.sampling
    params = sglang.sampling_parameters(
        sampling, n=sample_count(sampling), max_new_tokens=sampling.max_tokens, seed=sampling.seed
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
    """Read one sample in /generate's answer."""
    meta = sample.get("meta_info", {})
    tokens = (len(request.token_ids), int(meta.get("completion_tokens", 0)))
    finish = meta.get("finish_reason") or {}
    kind = finish
    reason = "no reason given"
    if isinstance(finish, Mapping):
        kind = finish.get("type")
        reason = finish.get("message", reason)
    if kind == "abort":
        detail = f"SGLang broke the answer off: {reason}"
        return TextOutput("", "", *tokens, failure="provider_error", detail=detail)
    return TextOutput(
        str(sample["text"]),
        "length" if kind == "length" else "stop",
        *tokens,
        choice_logprobs=_choice_logprobs(meta, request),
    )


def _choice_logprobs(meta: Mapping[str, Any], request: GenerateRequest) -> tuple[float, ...]:
    """Read `output_token_ids_logprobs`: per written token, one [logprob, token id, text or null]
    for each requested id."""
    if not request.choice_tokens:
        return ()
    positions = meta.get("output_token_ids_logprobs") or [[]]
    logprobs: dict[int, float] = {
        int(entry[1]): float(entry[0]) for entry in positions[0] or [] if entry[0] is not None
    }
    return tuple(logprobs.get(token, -math.inf) for token in request.choice_tokens)


def label_output(row: Mapping[str, Any], tokens: int) -> LabelOutput:
    """Read one row in /classify's answer: `embedding` has one entry for each label."""
    embedding = row.get("embedding")
    values: list[Any] = embedding if isinstance(embedding, list) else [embedding]
    if values and all(isinstance(value, int | float) for value in values):
        return LabelOutput(tuple(map(float, values)), tokens)
    detail = f"SGLang gave {json.dumps(values)[:80]} for a sequence; numbers are needed"
    return LabelOutput((), tokens, failure="provider_error", detail=detail)


def sample_count(sampling: Sampling) -> int:
    """How many samples to request: greedy ones are equal, so one is drawn and repeated."""
    if sampling.temperature == 0:
        return 1
    return sampling.n
