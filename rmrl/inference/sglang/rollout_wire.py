"""Messages to and from an SGLang rollout server: its command line, its posts' bodies, its
samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.errors import InfrastructureError
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.sglang import launch as sglang
from rmrl.types import Generation, Sampling


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample to be requested."""

    prompt_index: int
    sample_index: int
    rid: str
    """Request id at the server, which aborts requests by it."""
    seed: int | None


def launch_command(settings: RolloutEngineSettings, port: int) -> list[str]:
    """Return the command line that serves the policy on 127.0.0.1."""
    options: dict[str, Any] = {
        "model_path": settings.path,
        "tokenizer_path": settings.tokenizer or settings.path,
        "port": port,
        "device": settings.device,
        "dtype": settings.dtype,
        "context_length": settings.max_model_len,
        "max_running_requests": settings.max_num_seqs,
        "chunked_prefill_size": (
            settings.max_num_batched_tokens if settings.enable_chunked_prefill else -1
        ),
        "disable_radix_cache": not settings.enable_prefix_caching,
        "tp_size": settings.tensor_parallel_size,
        "random_seed": settings.seed,
        "trust_remote_code": settings.trust_remote_code,
    }
    if settings.device == "cuda":
        options |= {
            "mem_fraction_static": settings.gpu_memory_utilization,
            "disable_cuda_graph": settings.enforce_eager,
            "enable_memory_saver": True,
            "enable_weights_cpu_backup": True,
        }
    return sglang.launch_command(options, settings.kwargs)


def generate_body(
    sample: Sample, prompt: Sequence[int], sampling: Sampling, *, room: int
) -> dict[str, Any]:
    """Return a post's body for /generate, for one sample with at most `room` tokens.

    Each sample is its own request: it has its own seed and is returned when it is finished. The
    server's prefix cache reads a prompt once for its whole group.
    """
    tokens = min(sampling.max_tokens, room)
    params = sglang.sampling_parameters(sampling, n=1, max_new_tokens=tokens, seed=sample.seed)
    return {
        "rid": sample.rid,
        "input_ids": list(prompt),
        "sampling_params": params,
        "return_logprob": True,
        "logprob_start_len": -1,
    }


def generation(sample: Sample, answer: Mapping[str, Any], version: int) -> Generation:
    """Return a finished sample. `output_token_logprobs` holds one [logprob, token id, text or null]
    per sampled token, the end token included.

    Raises InfrastructureError where the server broke the sample off.
    """
    meta = answer.get("meta_info", {})
    finish = meta.get("finish_reason") or {}
    if finish.get("type") == "abort":
        raise InfrastructureError(
            f"SGLang broke a sample off: {finish.get('message', 'no reason given')}"
        )
    tokens = meta.get("output_token_logprobs") or []
    return Generation(
        prompt_index=sample.prompt_index,
        sample_index=sample.sample_index,
        text=str(answer["text"]),
        token_ids=np.asarray([entry[1] for entry in tokens], dtype=np.int32),
        logprobs=np.asarray([entry[0] for entry in tokens], dtype=np.float32),
        finish_reason="length" if finish.get("type") == "length" else "stop",
        policy_version=version,
    )
