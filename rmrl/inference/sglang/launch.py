"""SGLang's native server as both sides of rmrl use it: its command line, its environment, its
sampling settings, its refusals."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import httpx

from rmrl.types import Sampling

OWN_ENTRIES = ("base_url", "load_timeout_s", "request_timeout_s")
"""Entries of an engine's `kwargs` that are ours, no options of the server."""
LOAD_TIMEOUT_S, ATTACH_TIMEOUT_S = 900.0, 30.0
"""Until a server that we start, or one that is there, must be healthy."""
REASON_CHARACTERS = 500
_META = re.compile(r"([.^$*+?{}\[\]\\|()])")


def launch_command(options: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The command line of a server on 127.0.0.1. `options`: ours, by the server's names; `kwargs`:
    the user's, which win.

    True is a flag, False and None leave an option out: {"attention_backend": "triton"} ->
      --attention-backend triton.
    """
    given = {
        "host": "127.0.0.1",
        **options,
        **{name: value for name, value in kwargs.items() if name not in OWN_ENTRIES},
    }
    words = [sys.executable, "-m", "sglang.launch_server"]
    for name, value in given.items():
        if value is not False and value is not None:
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


def server_environment(*, device: str, threads: int) -> dict[str, str]:
    """All variables of a server's process.

    SGLANG_RETURN_ORIGINAL_LOGPROB is taken away: with it, log-probabilities would be those before
    the temperature.
    """
    own = {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": str(threads)} if device == "cpu" else {}
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "SGLANG_RETURN_ORIGINAL_LOGPROB"
    }
    return {**inherited, **own}


def sampling_parameters(
    sampling: Sampling, *, n: int, max_new_tokens: int, seed: int | None
) -> dict[str, Any]:
    """`sampling_params` of a post to /generate. Every setting is given: SGLang's own defaults come
    from the checkpoint.

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
    params |= {"stop": list(sampling.stop)} if sampling.stop else {}
    params |= {"sampling_seed": seed} if seed is not None else {}
    if sampling.choice:
        params["regex"] = (
            "(" + "|".join(_META.sub(r"\\\1", choice) for choice in sampling.choice) + ")"
        )
    elif sampling.regex:
        params["regex"] = sampling.regex
    elif sampling.json_schema:
        params["json_schema"] = sampling.json_schema
    return params


def refusal(answer: httpx.Response) -> str:
    """Why a server refused: its errors are {"error": {"message": ...}}."""
    try:
        told: Any = answer.json()
    except ValueError:
        return answer.text[:REASON_CHARACTERS]
    inner = told.get("error", told) if isinstance(told, Mapping) else told
    message = inner.get("message", inner) if isinstance(inner, Mapping) else inner
    return str(message)[:REASON_CHARACTERS]
