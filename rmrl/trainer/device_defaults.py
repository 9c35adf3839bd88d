"""What null means where the memory plan decides: each engine's share, which layers
recompute activations, and how many tokens a micro-batch has. A typed value stays.

Of the pairs of layers and tokens that fit, the one with the least operations for a token and
parameter is chosen:

    max(compute, moved / tokens) + 8600 / tokens

    compute   6 (4 with LoRA), and 2 more where all layers recompute, 1 where every second does
    8600      a micro-batch's fixed cost: 0.0345 s with 2.02e9 parameters, of which 1.475e9 multiply
              at 1.75e-5 s for a token (H100, benchmarks/results/gpu/h100.json)
    moved     operations that fit into the time in which a parameter is gathered twice and its
              gradient summed up; computing hides them in large micro-batches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

from rmrl.assemble.gpu_shares import Open, chosen_shares, open_engines, with_shares
from rmrl.cluster.memory_plan import MEMORY, MemoryPlan, gib
from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config, CriticConfig, ModelConfig, TrainedConfig
from rmrl.errors import MemoryPlanError
from rmrl.inference.engine_facts import rollout_facts
from rmrl.inference.settings import REWARD_SEQUENCES, ROLLOUT_SEQUENCES
from rmrl.rewards.residency import EnginePlan
from rmrl.trainer.plan import ROLLOUT, planned_tokens, rollout_reserve
from rmrl.trainer.train_memory import gathered, lives_in_host_memory

LEVELS = {
    0: "enable_gradient_checkpointing=false",
    2: "enable_gradient_checkpointing=true (in every second layer)",
    1: "enable_gradient_checkpointing=true (in all layers)",
}
"""One of so many layers recomputes -> the setting. The least recomputing comes first."""
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
    """A model that trains, and the sections in which its settings are filled in."""

    section: str
    model_key: str
    who: str
    """Its name in the plan."""
    pool: str | None
    sections: tuple[tuple[ModelConfig, TrainedConfig], ...]
    chooses_level: bool = False
    chooses_tokens: bool = False

    @classmethod
    def of(
        cls, section: str, model_key: str, who: str, pool: str | None, *sections: tuple[Any, Any]
    ) -> Self:
        model, trained = sections[0]
        typed = (model.enable_gradient_checkpointing, model.gradient_checkpointing_every)
        return cls(
            section,
            model_key,
            who,
            pool,
            sections,
            chooses_level=typed == (None, None) and not model.enable_activation_offload,
            chooses_tokens=trained.use_dynamic_bsz and trained.ppo_max_token_len_per_gpu is None,
        )

    @property
    def sharing(self) -> int:
        """Processes that hold a part of each row."""
        return self.sections[0][1].fsdp_config.ulysses_sequence_parallel_size

    def choose(self, every: int, tokens: int | None) -> None:
        """Fill in what is not typed."""
        for model, trained in self.sections:
            if self.chooses_level:
                model.enable_gradient_checkpointing = every > 0
                model.gradient_checkpointing_every = None
                if every > 1:
                    model.gradient_checkpointing_every = every
            if self.chooses_tokens:
                trained.ppo_max_token_len_per_gpu = tokens

    def fill_usual(self) -> None:
        """Fill in the values of a CPU."""
        self.choose(1, None)
        for model, trained in self.sections:
            if model.enable_gradient_checkpointing is None:
                model.enable_gradient_checkpointing = True
            trained.ppo_max_token_len_per_gpu = trained.micro_batch_tokens

    def cost(self, config: Config) -> float:
        """Return the operations for a token and parameter under the settings of this moment."""
        model, trained = self.sections[0]
        world = device_count(config.trainer, self.pool)
        return training_cost(
            every=model.recomputed_every,
            tokens=max(1, planned_tokens(config, trained) // self.sharing),
            moved=moved_operations(trained, world=world, nodes=config.trainer.nnodes),
            adapters=model.lora_rank > 0,
        )

    def line(self, plan: MemoryPlan) -> str:
        """Say what was chosen, and why. "" where all was typed."""
        model, trained = self.sections[0]
        chosen: list[str] = []
        if self.chooses_level:
            chosen.append(f"{self.model_key}.{LEVELS[model.recomputed_every]}")
        if self.chooses_tokens:
            count = trained.ppo_max_token_len_per_gpu
            chosen.append(f"{self.section}.ppo_max_token_len_per_gpu={count}")
        if not chosen:
            return ""
        (claim,) = (claim for claim in plan.claims if claim.who == self.who and claim.held_bytes)
        device = claim.devices[0]
        return (
            f"{' '.join(chosen)}: the fastest that fits; while training {device} holds"
            f" {gib(plan.peak('train', device))} of {gib(plan.budgets[device])}, and torch's cache"
            f" up to {CACHED - 1:.0%} of {gib(claim.awake_bytes)} more"
        )


def fill_training(
    config: Config, critic: CriticConfig | None, *, device: str, plan: Callable[[], MemoryPlan]
) -> list[str]:
    """Replace null in `config` and `critic` (the settings with which the critic trains, None: none
    does), in place. Return a line for each model on CUDA.

    `plan`: the memory plan of `config` and `critic` as they are when it is called. Where no pair
    fits, the values of a CPU remain, with which the plan says what is missing.
    """
    part = config.actor_rollout_ref
    policy = (part.model, part.actor)
    roles = [
        _Role.of("actor_rollout_ref.actor", "actor_rollout_ref.model", "training", None, policy)
    ]
    if critic is not None:
        both = ((critic.model, critic), (config.critic.model, config.critic))
        roles.append(_Role.of("critic", "critic.model", "critic", critic.pool, *both))
    if device != "cpu" and any(role.chooses_level or role.chooses_tokens for role in roles):
        longest = config.data.max_prompt_length + config.data.max_response_length
        least = -(-longest // min(role.sharing for role in roles))
        counts = [*(count for count in TOKENS if count > least), least]

        def cost(pair: tuple[int, int]) -> float:
            for role in roles:
                role.choose(*pair)
            return sum(role.cost(config) for role in roles)

        pairs = sorted(product(LEVELS, counts), key=cost)
        usual = [(1, count) for count in counts if count <= max(USUAL_TOKENS, least)]
        for headroom, candidates in ((CACHED, pairs), (1.0, usual)):
            for pair in candidates:
                for role in roles:
                    role.choose(*pair)
                made = plan()
                if _fits(made, headroom):
                    return [line for role in roles if (line := role.line(made))]
    for role in roles:
        role.fill_usual()
    return []


def standing_choices(config: Config, engines: Sequence[EnginePlan]) -> list[str]:
    """Return a line for each null on CUDA that needs no plan, with the reason."""
    part = config.actor_rollout_ref
    lines: list[str] = []
    if part.rollout.max_num_seqs is None:
        lines.append(
            f"actor_rollout_ref.rollout.max_num_seqs={ROLLOUT_SEQUENCES['cuda']}: samples that are"
            " decoded together share the reading of the weights"
        )
    if engines and config.reward.engine.max_num_seqs is None:
        lines.append(f"reward.engine.max_num_seqs={REWARD_SEQUENCES['cuda']}: likewise")
    if part.model.use_remove_padding is None:
        lines.append(
            "actor_rollout_ref.model.use_remove_padding: rows are packed if a kernel made for it"
            " (torch's varlen attention, flash-attention) takes the model: no time goes to padding"
        )
    return lines


def choose_shares(
    config: Config, engines: Sequence[EnginePlan], plan: MemoryPlan, *, gpu_bytes: int
) -> tuple[list[EnginePlan], list[str]]:
    """Choose each gpu_memory_utilization that is null: in `config`, in place, and in the plans
    returned. Return a line for each as well. In `plan` every engine has what it starts with."""
    rollout = config.actor_rollout_ref.rollout
    shares = open_engines(engines, gpu_bytes)
    judges = [engine.label for engine in engines if engine.spec.by_policy]
    on_gpus = any(claim.who == ROLLOUT and MEMORY not in claim.devices for claim in plan.claims)
    reserves = rollout_facts(rollout.name).reserves_gpu_share
    if on_gpus and reserves and rollout.gpu_memory_utilization is None:
        what = "actor_rollout_ref.rollout.gpu_memory_utilization"
        size = rollout_reserve(config, gpu_bytes=gpu_bytes)
        shares[ROLLOUT] = Open(what, (ROLLOUT, *judges), size)
    chosen = chosen_shares(plan, shares, gpu_bytes)
    lines = [share.line for share in chosen.values()]
    sampling = chosen.pop(ROLLOUT, None)
    if sampling is not None:
        rollout.gpu_memory_utilization = sampling.of_gpu
        # A policy that judges holds what it holds while it samples.
        chosen |= dict.fromkeys(judges, replace(sampling, of_gpu=None))
    return with_shares(engines, chosen), lines


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


def _fits(plan: MemoryPlan, headroom: float) -> bool:
    claims = list(plan.claims)
    for index, claim in enumerate(claims):
        if claim.held_bytes:
            claims[index] = replace(claim, awake_bytes=int(claim.awake_bytes * headroom))
    try:
        replace(plan, claims=claims).check()
    except MemoryPlanError:
        return False
    return True
