"""LoRA adapters on a vLLM engine: what it can run, the arguments it needs for that, and each
request's adapter. Imports nothing heavy.

vLLM's prefix cache keeps adapters apart by itself: their names are in a block's hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.inference.vllm import compat
from rmrl.models.adapter_inspect import Adapter, read_adapter

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's max_lora_rank (that below 8 aside). An adapter takes the next larger one."""
_HEADS = ("score", "classifier")
_FEATURES = {
    "use_dora": "DoRA",
    "lora_bias": "a bias beside the adapter (lora_bias)",
    "alora_invocation_tokens": "an adapter that begins at a token (aLoRA)",
    "use_bdlora": "block-diagonal LoRA",
    "use_qalora": "QALoRA",
}
"""Entries of adapter_config.json that vLLM does not implement, and what they are."""


def adapter_problem(adapter: Adapter, runner: str) -> str:
    """Why vLLM cannot run the adapter on such a model. "": it can."""
    version = compat.installed_version()
    if version is not None and version < compat.ADAPTERS_SINCE:
        return (
            f"LoRA adapters need vLLM {compat.ADAPTERS_SINCE} or newer, the oldest that they were"
            f" tested with, and {version} is installed; install a newer one, or use engine.name=hf"
        )
    if runner == "embed":
        return "adapters of embedding models are not supported; merge it into its base"
    if adapter.rank > RANKS[-1]:
        return f"its rank is {adapter.rank}, and vLLM runs at most {RANKS[-1]}; merge it, or use hf"
    for entry, what in _FEATURES.items():
        if adapter.config.get(entry):
            return f"it has {what}, which vLLM does not run; use engine.name=hf, or merge it"
    allowed = _HEADS if runner == "pooling" else ()
    others = [module for module in adapter.full_modules if module not in allowed]
    if others:
        return (
            f"it replaces whole modules (modules_to_save: {', '.join(others)}), which vLLM runs for"
            " the head of a scalar model alone; use engine.name=hf, or merge it into its base"
        )
    return ""


def adapter_arguments(spec: EngineSpec) -> dict[str, Any]:
    """Return the engine arguments that `spec`'s adapters need, {} without any."""
    if not spec.adapters:
        return {}
    rank = max(read_adapter(folder).rank for folder in spec.adapters)
    # On CPU vLLM multiplies rows without an adapter by the last slot (index -1), which therefore
    # stays empty: its zeros add nothing.
    spare = 1 if spec.device == "cpu" else 0
    return {
        "enable_lora": True,
        "max_loras": len(spec.adapters) + spare,
        "max_lora_rank": min(size for size in RANKS if size >= rank),
    }


def lora_requests(spec: EngineSpec, requests: Sequence[Any]) -> list[Any] | None:
    """Return vLLM's LoRARequest for each request, None for one without an adapter; None where the
    engine has no adapters."""
    if not spec.adapters:
        return None
    from vllm.lora.request import LoRARequest

    known: dict[str, Any] = {"": None}
    for number, folder in enumerate(spec.adapters, start=1):
        known[folder] = LoRARequest(lora_name=folder, lora_int_id=number, lora_path=folder)
    return [known[request.adapter] for request in requests]
