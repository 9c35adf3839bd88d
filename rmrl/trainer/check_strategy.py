"""Problems of settings that belong to another strategy than the model's. Reads no file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from rmrl.backends import TRAIN_ENGINES, backend_of
from rmrl.backends.descriptor import Sharding
from rmrl.config.schema import Config, ModelConfig, TrainedConfig
from rmrl.config.schema.actor import BACKEND_SECTIONS
from rmrl.inference.processor import computes_bfloat16
from rmrl.trainer.check_algorithm import critic_settings, estimator_of, needs_critic

_ACTOR = "actor_rollout_ref.actor"


def strategy_problems(config: Config, *, device: str) -> Iterator[str]:
    """Yield settings that the strategy of the policy or the critic does not read, and what the
    policy's backend refuses whatever the model is.

    Raises as the registry does for a strategy that is not known.
    """
    actor = config.actor_rollout_ref.actor
    policy = config.actor_rollout_ref.model
    yield from _unread_problems(actor, actor.strategy, section=_ACTOR)
    strategy = config.critic.strategy or actor.strategy
    yield from _unread_problems(config.critic, strategy, section="critic")
    backend = backend_of(actor.strategy)
    world_size = config.trainer.world_size
    sharding = Sharding(
        model=policy, trained=actor, world_size=world_size, section=_ACTOR, device=device
    )
    if estimator_of(config).energies and not backend.energies and not config.trainer.val_only:
        yield (
            f"algorithm.adv_estimator={config.algorithm.adv_estimator} reads the energies of"
            f" tokens, which {_ACTOR}.strategy={actor.strategy} does not state that it computes;"
            " use strategy=fsdp2, or adv_estimator=opo; a backend of your own states energies=True"
            " and has a method logprobs_and_energies"
        )
    if world_size > 0:  # else no device was found, which another check reports
        yield from backend.settings_problems(sharding)
    yield from backend.model_problems(policy, _ACTOR, "actor_rollout_ref.model")


def packing_advice(config: Config, *, device: str) -> Iterator[str]:
    """Advise those whose packed rows will be computed by the slow attention."""
    if device != "cuda":
        return
    from rmrl.models.loading import torch_dtype

    # torch and transformers: not needed by a check of a run on CPU
    from rmrl.models.packing import slow_packing

    actor = config.actor_rollout_ref.actor
    if "fsdp_config" not in (backend_of(actor.strategy).reads or ()):
        return
    key = "param_dtype" if actor.fsdp_config.param_dtype else "model_dtype"
    name = getattr(actor.fsdp_config, key)
    dtype = torch_dtype(name, key=f"{_ACTOR}.fsdp_config.{key}")
    sentence = slow_packing(config.actor_rollout_ref.model, device=device, dtype=dtype)
    if sentence:
        yield sentence


_USUAL_WEIGHT = 0.02
"""Standard deviation with which transformers' models initialise their weights."""


def processor_advice(config: Config, *, device: str) -> Iterator[str]:
    """Advise those whose processor has no instructions for bfloat16, which most defaults name."""
    if device != "cpu" or computes_bfloat16():
        return
    part = config.actor_rollout_ref
    slow: list[str] = []
    if part.rollout.dtype == "bfloat16":
        slow.append("actor_rollout_ref.rollout.dtype=float32")
    sharded = "fsdp_config" in (backend_of(part.actor.strategy).reads or ())
    if sharded and part.actor.fsdp_config.param_dtype == "bfloat16":
        slow.append(f"{_ACTOR}.fsdp_config.param_dtype=null")
    if slow:
        yield (
            "this processor has no instructions for bfloat16 (x86: avx512_bf16 or amx_bf16), and"
            f" computes it more slowly than float32; add {' '.join(slow)}"
        )


def rounding_advice(config: Config) -> Iterator[str]:
    """Advise those whose AdamW steps would mostly be rounded away: weights in bfloat16 without a
    copy in float32. A step changes a number by about `lr`, and bfloat16 has 8 bits of precision."""
    models: dict[str, tuple[TrainedConfig, ModelConfig]] = {
        _ACTOR: (config.actor_rollout_ref.actor, config.actor_rollout_ref.model)
    }
    if needs_critic(config):
        critic = critic_settings(config)
        models["critic"] = (critic, critic.model)
    for section, (trained, model) in models.items():
        fsdp = trained.fsdp_config
        sharded = "fsdp_config" in (backend_of(trained.strategy).reads or ())
        if not sharded or fsdp.model_dtype not in ("bfloat16", "bf16") or model.lora_rank:
            continue
        # Numbers in [2**e, 2**(e+1)) have a distance of 2**(e-7): less than half of it is lost.
        kept = 2.0 ** (math.floor(math.log2(trained.optim.lr or 1.0)) + 9)
        if kept < _USUAL_WEIGHT:
            yield (
                f"{section}.fsdp_config.model_dtype=bfloat16 with optim.lr={trained.optim.lr:g}:"
                f" weights of {kept:.1g} and more stay as they are, since AdamW's steps are smaller"
                " than half the distance between two numbers in bfloat16; set model_dtype=float32"
                " (computing stays in param_dtype), or train adapters (model.lora_rank)"
            )


def _unread_problems(trained: TrainedConfig, strategy: str, *, section: str) -> Iterator[str]:
    """Settings of other backends that were changed: refused, never ignored silently."""
    backend = backend_of(strategy)
    if backend.reads is None:
        return
    for part in BACKEND_SECTIONS:
        if part in backend.reads:
            continue
        settings = getattr(trained, part)
        default = type(settings)()
        for entry in fields(default):
            value = getattr(settings, entry.name)
            if value == getattr(default, entry.name):
                continue
            replacement = backend.replacements.get(f"{part}.{entry.name}")
            remedy = "leave it out"
            if replacement:
                remedy = f"use {section}.{replacement}"
            else:
                readers = [name for name in TRAIN_ENGINES if part in (backend_of(name).reads or ())]
                if len(readers) == 1:
                    remedy = f"set strategy={readers[0]}, or leave it out"
            yield (
                f"{section}.{part}.{entry.name}={'null' if value is None else value} has no effect"
                f" with {section}.strategy={strategy}; {remedy}"
            )
