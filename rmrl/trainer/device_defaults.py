"""What null means where the memory plan decides: recomputing of activations, and the tokens of a
micro-batch. A typed value stays.

Of the pairs that fit, the one with the least operations for a token and parameter is chosen:

    max(compute, moved / tokens) + 8600 / tokens

    compute   6 (4 with LoRA), and 2 more where all layers recompute, 1 where every second does
    8600      a micro-batch's fixed cost: 0.0345 s with 2.02e9 parameters, of which 1.475e9 multiply
              at 1.75e-5 s for a token (H100, benchmarks/results/gpu/h100.json)
    moved     operations that fit into the time in which a parameter is gathered twice and its
              gradient summed up; computing hides them in large micro-batches
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from rmrl.cluster.memory_plan import MemoryPlan, gib
from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config, CriticConfig, ModelConfig, TrainedConfig
from rmrl.errors import MemoryPlanError
from rmrl.trainer.plan import planned_tokens
from rmrl.trainer.train_memory import gathered, lives_in_host_memory

EVERY = {0: "in no layer", 2: "in every second layer", 1: "in all layers"}
"""Of so many layers one recomputes -> the words for it. The least recomputing comes first."""
TOKENS = (65536, 49152, 32768, 24576, 16384, 12288, 8192, 6144, 4096, 3072, 2048, 1536, 1024)
USUAL_TOKENS = 16384
CACHED = 1.18
"""Memory that torch holds while a model trains, at most, as a multiple of the plan (same file)."""
FIXED = 8600
OPERATIONS_PER_S = 6 * 1.475e9 / 1.75e-5
"""Of those training steps."""
NVLINK, NETWORK, HOST_LINK = 300e9, 50e9, 35e9
"""Bytes a second and GPU, within a machine, between machines (400 Gbit/s) and from host memory
(measured, same file)."""


@dataclass(frozen=True, slots=True)
class _Role:
    """A model that trains, and the sections in which its settings are to be filled in."""

    section: str
    model_key: str
    pool: str | None
    sections: tuple[tuple[ModelConfig, TrainedConfig], ...]

    @property
    def model(self) -> ModelConfig:
        return self.sections[0][0]

    @property
    def trained(self) -> TrainedConfig:
        return self.sections[0][1]


def fill_training(
    config: Config, critic: CriticConfig | None, *, device: str, plan: Callable[[], MemoryPlan]
) -> list[str]:
    """Replace null in `config` and `critic` (the settings with which the critic trains, None: none
    does), in place. Return a line for each model on CUDA.

    `plan`: the memory plan of `config` and `critic` as they are when it is called. Where no pair
    fits, the values of a CPU remain, with which the plan says what is missing.
    """
    roles = _roles(config, critic)
    levels = [role for role in roles if _chooses_level(role)]
    tokens = [role for role in roles if _chooses_tokens(role)]
    if device == "cpu" or not (levels or tokens):
        _fill_usual(roles)
        return []

    def fits(every: int, count: int, headroom: float) -> bool:
        for role in levels:
            _set_level(role, every)
        for role in tokens:
            _set_tokens(role, count)
        return _fits(plan(), headroom)

    def cost(pair: tuple[int, int]) -> float:
        for role in levels:
            _set_level(role, pair[0])
        for role in tokens:
            _set_tokens(role, pair[1])
        return sum(_cost(config, role) for role in roles)

    counts = _counts(config, roles)
    pairs = sorted(product(EVERY, counts), key=cost)
    usual = [(1, count) for count in counts if count <= max(USUAL_TOKENS, counts[-1])]
    for headroom, candidates in ((CACHED, pairs), (1.0, usual)):
        for every, count in candidates:
            if fits(every, count, headroom):
                return _lines(roles, levels, tokens, plan())
    for role in levels:
        _set_level(role, 1)
    for role in tokens:
        _set_tokens(role, None)
    _fill_usual(roles)
    return []


def training_cost(*, every: int, tokens: int, moved: float = 0.0, adapters: bool = False) -> float:
    """Return the operations for a token and parameter, as on top of this file."""
    compute = (4 if adapters else 6) + (2 / every if every else 0)
    return max(compute, moved / tokens) + FIXED / tokens


def moved_operations(trained: TrainedConfig, *, world: int, nodes: int) -> float:
    """Return the operations in whose time one parameter moves, for each micro-batch: gathered for
    both passes, its gradient in float32 for the sum. 0 where a process holds the whole model."""
    if lives_in_host_memory(trained):
        return (2 * 4 + 4) / HOST_LINK * OPERATIONS_PER_S
    size = gathered(trained)
    if world == 1 or not size:
        return 0.0
    return (2 * size + 4) / (NETWORK if nodes > 1 else NVLINK) * OPERATIONS_PER_S


# --- settings


def _roles(config: Config, critic: CriticConfig | None) -> list[_Role]:
    part = config.actor_rollout_ref
    sections = ((part.model, part.actor),)
    roles = [_Role("actor_rollout_ref.actor", "actor_rollout_ref.model", None, sections)]
    if critic is not None:
        written = config.critic
        sections = ((critic.model, critic), (written.model, written))
        roles.append(_Role("critic", "critic.model", critic.pool, sections))
    return roles


def _chooses_level(role: _Role) -> bool:
    model = role.model
    typed = (model.enable_gradient_checkpointing, model.gradient_checkpointing_every)
    return typed == (None, None) and not model.enable_activation_offload


def _chooses_tokens(role: _Role) -> bool:
    return role.trained.use_dynamic_bsz and role.trained.ppo_max_token_len_per_gpu is None


def _set_level(role: _Role, every: int) -> None:
    for model, _ in role.sections:
        model.enable_gradient_checkpointing = every > 0
        model.gradient_checkpointing_every = every if every > 1 else None


def _set_tokens(role: _Role, count: int | None) -> None:
    for _, trained in role.sections:
        trained.ppo_max_token_len_per_gpu = count


def _fill_usual(roles: list[_Role]) -> None:
    for role in roles:
        for model, trained in role.sections:
            if model.enable_gradient_checkpointing is None:
                model.enable_gradient_checkpointing = True
            trained.ppo_max_token_len_per_gpu = trained.micro_batch_tokens


# --- choice


def _counts(config: Config, roles: list[_Role]) -> list[int]:
    """Return tokens to try, the most first: none below a process's part of the longest row."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    sharing = [role.trained.fsdp_config.ulysses_sequence_parallel_size for role in roles]
    least = -(-longest // min(sharing))
    return sorted({least, *(count for count in TOKENS if count > least)}, reverse=True)


def _cost(config: Config, role: _Role) -> float:
    trained = role.trained
    sharing = trained.fsdp_config.ulysses_sequence_parallel_size
    world = device_count(config.trainer, role.pool)
    return training_cost(
        every=role.model.recomputed_every,
        tokens=max(1, planned_tokens(config, trained) // sharing),
        moved=moved_operations(trained, world=world, nodes=config.trainer.nnodes),
        adapters=role.model.lora_rank > 0,
    )


def _fits(plan: MemoryPlan, headroom: float) -> bool:
    claims = [
        replace(claim, awake_bytes=int(claim.awake_bytes * headroom)) if claim.held_bytes else claim
        for claim in plan.claims
    ]
    try:
        replace(plan, claims=claims).check()
    except MemoryPlanError:
        return False
    return True


def _lines(
    roles: list[_Role], levels: list[_Role], tokens: list[_Role], plan: MemoryPlan
) -> list[str]:
    """Return what was chosen, and why."""
    lines: list[str] = []
    for role in roles:
        chosen: list[str] = []
        if role in levels:
            every = role.model.recomputed_every
            chosen.append(
                f"{role.model_key}.enable_gradient_checkpointing={str(every > 0).lower()}"
                + (f" ({EVERY[every]})" if every else "")
            )
        if role in tokens:
            count = role.trained.ppo_max_token_len_per_gpu
            chosen.append(f"{role.section}.ppo_max_token_len_per_gpu={count}")
        if not chosen:
            continue
        who = "critic" if role.section == "critic" else "training"
        (claim,) = (claim for claim in plan.claims if claim.who == who and claim.held_bytes)
        device = claim.devices[0]
        lines.append(
            f"{' '.join(chosen)}: the fastest that fits; while training {device} holds"
            f" {gib(plan.peak('train', device))} of {gib(plan.budgets[device])}, and torch's cache"
            f" up to {CACHED - 1:.0%} of {gib(claim.awake_bytes)} more"
        )
    return lines
