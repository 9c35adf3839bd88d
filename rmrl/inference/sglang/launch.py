"""SGLang's native server for rollout and rewards: its command line, its environment, its sampling
settings, its error messages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import httpx

from rmrl.types import Sampling

OWN_ENTRIES = ("base_url", "load_timeout_s", "request_timeout_s")
"""Entries of an engine's `kwargs` that are settings of rmrl, not options of the server."""
LOAD_TIMEOUT_S = 900.0
"""Seconds until a server that is started here must be healthy."""
ATTACH_TIMEOUT_S = 30.0
"""Seconds until a running server must be healthy."""
REASON_CHARACTERS = 500
_META = re.compile(r"([.^$*+?{}\[\]\\|()])")


def launch_command(options: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return a command line for a server on 127.0.0.1. `options`: rmrl's, by the server's names;
    `kwargs`: the user's, which take precedence.

    True is a flag, False and None leave an option out: {"attention_backend": "triton"} ->
      --attention-backend triton.
    """
    merged = {"host": "127.0.0.1", **options}
    for name, value in kwargs.items():
        if name not in OWN_ENTRIES:
            merged[name] = value
    words = [sys.executable, "-m", "sglang.launch_server"]
    for name, value in merged.items():
        if value is False or value is None:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return words


def server_environment(*, device: str, threads: int) -> dict[str, str]:
    """Return all variables for a server's process.

    SGLANG_RETURN_ORIGINAL_LOGPROB is removed: with it, log-probabilities would be those before the
    temperature.
    """
    variables = dict(os.environ)
    variables.pop("SGLANG_RETURN_ORIGINAL_LOGPROB", None)
    if device == "cpu":
        variables |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": str(threads)}
    return variables


def sampling_parameters(
    sampling: Sampling, *, n: int, max_new_tokens: int, seed: int | None
) -> dict[str, Any]:
    """Return `sampling_params` for a post to /generate. Every setting is present: SGLang's own
    defaults come from the checkpoint.

    A server heeds `seed` only under --enable-deterministic-inference.
    """
    params: dict[str, Any] = {
        "n": n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k if sampling.top_k > 0 else -1,
        "min_p": 0.0,
        "max_new_tokens": max_new_tokens,
        "ignore_eos": sampling.ignore_eos,
    }
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    if sampling.stop_token_ids:
        params["stop_token_ids"] = list(sampling.stop_token_ids)
    if seed is not None:
        params["sampling_seed"] = seed
    if sampling.choice:
        choices = [_META.sub(r"\\\1", choice) for choice in sampling.choice]
        params["regex"] = f"({'|'.join(choices)})"
    elif sampling.regex:
        params["regex"] = sampling.regex
    elif sampling.json_schema:
        params["json_schema"] = sampling.json_schema
    return params


def refusal(answer: httpx.Response) -> str:
    """Return a server's reason to refuse: its errors are {"error": {"message": ...}}."""
    try:
        message: Any = answer.json()
    except ValueError:
        return answer.text[:REASON_CHARACTERS]
    for key in ("error", "message"):
        if isinstance(message, Mapping):
            message = message.get(key, message)
    return str(message)[:REASON_CHARACTERS]
