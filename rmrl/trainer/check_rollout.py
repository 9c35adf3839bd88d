"""Whether the rollout engine does what its section requests. Reads no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmrl.config.schema import Config
from rmrl.inference.engine_facts import RolloutFacts, rollout_facts
from rmrl.inference.rollout import ROLLOUT_ENGINES

_NEEDS_POOL = {"ipc": False, "nccl": True, "nccl_m2n": True}
"""Weight transport on CUDA -> whether the engines have devices of their own (rollout.pool)."""


def rollout_problems(config: Config, *, device: str) -> Iterator[str]:
    """Yield what the rollout engine cannot do. Raises as the registry does for an engine that is
    not known."""
    rollout = config.actor_rollout_ref.rollout
    facts = rollout_facts(rollout.name)
    if config.actor_rollout_ref.model.override_config and facts.ignores_overrides:
        yield (
            "actor_rollout_ref.model.override_config reaches training, but not"
            f" rollout.name={rollout.name}, which would sample from another model: write the"
            " entries into the checkpoint's config.json, or use rollout.name=vllm"
        )
    transport = rollout.weight_transport
    needs_pool = _NEEDS_POOL.get(transport)
    if needs_pool is not None:
        misplaced = needs_pool != (rollout.pool is not None)
        if device == "cpu" or transport not in facts.weight_transports or misplaced:
            names = _engines(lambda stated: transport in stated.weight_transports)
            where = "with rollout.pool" if needs_pool else "without rollout.pool"
            yield (
                f"actor_rollout_ref.rollout.weight_transport={transport} works on CUDA with"
                f" rollout.name={names} {where}; use weight_transport=file"
            )
        elif lack := facts.transport_problem(transport):
            yield (
                f"actor_rollout_ref.rollout.weight_transport={transport} needs {lack}; or use"
                " weight_transport=file"
            )
        strategy = config.actor_rollout_ref.actor.strategy
        if transport == "nccl_m2n" and strategy not in ("fsdp", "fsdp2"):
            yield (
                "actor_rollout_ref.rollout.weight_transport=nccl_m2n sends the shards of"
                f" actor.strategy=fsdp2 or fsdp, and this run has strategy={strategy}; use"
                " weight_transport=nccl"
            )
    if config.actor_rollout_ref.model.float32_head:
        if not facts.widens_head():
            yield (
                f"actor_rollout_ref.model.float32_head=True: rollout.name={rollout.name} rounds its"
                " logits, and would differ more from training than without it: use vllm (0.26 or"
                " newer) or hf, or leave it out"
            )
        if rollout.batch_invariant or "quantization" in rollout.engine_kwargs:
            yield (
                "actor_rollout_ref.model.float32_head=True: the kernels of rollout.batch_invariant"
                " and engine_kwargs.quantization give no float32 logits: leave one of them out"
            )
    if rollout.batch_invariant and device not in facts.batch_invariant_on:
        names = _engines(lambda stated: "cuda" in stated.batch_invariant_on)
        yield (
            f"actor_rollout_ref.rollout.batch_invariant=True: only {names} on NVIDIA GPUs samples"
            f" so, and this run samples with {rollout.name} on {device}; leave it out"
        )


def _engines(able: Callable[[RolloutFacts], bool]) -> str:
    """Names of the engines that are able, joined by "or"."""
    return " or ".join(name for name in ROLLOUT_ENGINES if able(rollout_facts(name)))
