"""The type a reward engine computes in, and whether its scores depend on the batch. Imports nothing
heavy."""

from __future__ import annotations

import contextlib

from rmrl.errors import ConfigError
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.processor import computes_bfloat16
from rmrl.models.checkpoint_inspect import checkpoint_dtype, parameter_count
from rmrl.registry import did_you_mean

AUTO = "auto"
REDUCED = ("bfloat16", "float16")
"""Types with 8 and 11 significant bits. float32 has 24."""
SMALL_PARAMETERS = 1_000_000_000
"""A small model has at most this many parameters (4 GB in float32)."""
_NAMES = {
    "auto": AUTO,
    "float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "float64": "float64",
    "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16",
}  # fmt: skip


def resolve_dtype(setting: str, *, path: str, runner: str, device: str, where: str) -> str:
    """Return the type to compute in. `setting` is `engine.dtype`, `where` its key for errors.

    auto is the checkpoint's own type, with exceptions on CPU, all float32: float16 checkpoints
    (most CPUs have no float16 arithmetic, and float32 holds every float16 number), scoring and
    embedding models with at most SMALL_PARAMETERS, and any model as large where the processor has
    no instructions for bfloat16. Raises ConfigError for an unknown name.
    """
    name = _NAMES.get(setting, "")
    if not name:
        raise ConfigError(
            f"{where}={setting}: not a type to compute in{did_you_mean(setting, list(_NAMES))}"
        )
    if name != AUTO:
        return name
    checkpoint_type = checkpoint_dtype(path)
    if device != "cpu":
        return checkpoint_type
    if checkpoint_type == "float16":
        return "float32"
    if runner != "generate" or not computes_bfloat16():
        # Raised where there are no safetensors headers to count from.
        with contextlib.suppress(ConfigError):
            if parameter_count(path) <= SMALL_PARAMETERS:
                return "float32"
    return checkpoint_type


def check_batch_invariant(name: str, *, device: str, where: str) -> None:
    """Raise ConfigError where engine `name` cannot compute every row as if it were alone in its
    batch.

    Engines state where they can (`batch_invariant_on`). The engine's process checks that the GPU
    has what it needs.
    """
    facts = engine_facts(name)
    if device in facts.batch_invariant_on:
        return
    if facts.batch_invariant_on:
        needs = facts.batch_invariance or f"engine {name} computes so on CUDA alone"
        raise ConfigError(
            f"{where}=True: {needs}, and this engine runs on CPU; leave it out and use"
            " engine.dtype=float32, in which scores on CPU do not depend on the batch"
        )
    raise ConfigError(
        f"{where}=True: engine {name} is not known to compute so; use engine.name=vllm on CUDA, or"
        " leave it out"
    )
