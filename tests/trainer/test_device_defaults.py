"""What null means: memory in, choice out. The plan takes 100 bytes for the state, and for 1,024
tokens 40 without recomputing, 24 where every second layer recomputes and 8 where all do."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.step_memory import checkpoint_7b
from rmrl.cluster.devices import Devices, Machine, cpu_devices
from rmrl.cluster.gpu import Gpu
from rmrl.cluster.memory_plan import Claim, MemoryPlan
from rmrl.config.load import compose_config
from rmrl.config.schema import ActorConfig, Config, FSDPConfig, MegatronConfig
from rmrl.errors import MemoryPlanError
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_algorithm import critic_settings
from rmrl.trainer.check_run import _check_memory
from rmrl.trainer.device_defaults import fill_training, moved_operations, training_cost
from rmrl.trainer.plan import Extras, planned_tokens

MODEL, ACTOR = "actor_rollout_ref.model", "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


def made(**settings: object) -> Config:
    """Rows have 1,024 tokens, and there are more than any micro-batch holds."""
    return compose_config(
        [
            "data.max_prompt_length=512",
            "data.max_response_length=512",
            "trainer.n_gpus_per_node=1",
            *(f"{key}={value}" for key, value in settings.items()),
        ]
    )


def plan(config: Config, budget: int) -> MemoryPlan:
    tokens = planned_tokens(config, config.actor_rollout_ref.actor)
    of_1024 = {0: 40, 2: 24, 1: 8}[config.actor_rollout_ref.model.recomputed_every]
    claim = Claim(
        who="training",
        what="",
        held_bytes=100,
        awake_bytes=100 + of_1024 * tokens // 1024,
        away_bytes=100,
        when=("train",),
        devices=("gpu 0",),
    )
    return MemoryPlan([claim], {"gpu 0": budget})


def filled(config: Config, budget: int = 10**9, device: str = "cuda") -> list[str]:
    return fill_training(config, None, device=device, plan=lambda: plan(config, budget))


def chosen(config: Config) -> tuple[int, int | None]:
    """Return in how many layers one recomputes (0: none), and the tokens that a micro-batch has."""
    part = config.actor_rollout_ref
    return part.model.recomputed_every, part.actor.ppo_max_token_len_per_gpu


@pytest.mark.parametrize(
    ("budget", "choice"),
    [
        # 100 + 64 x 40 = 2,660 bytes, 1.18 times that is 3,138
        (3138, (0, 65536)),
        (3137, (0, 49152)),
        # Up to 848 bytes: none at 16 x 40 costs 6 + .52; every second at 24 x 24 7 + .35
        (1000, (0, 16384)),
        # Up to 339: none at 4 x 40 6 + 2.1, every second at 8 x 24 7 + 1.05, all at 24 x 8 8 + .35
        (400, (2, 8192)),
        # Up to 221: none at 3 x 40 6 + 2.8, every second at 4 x 24 7 + 2.1, all at 12 x 8 8 + .70
        (260, (1, 12288)),
        # 108 and 18 % are too much: without the 18 %, all at 2 x 8
        (122, (1, 2048)),
        # Nothing fits: what is usual, with which the plan says what is missing
        (105, (1, 16384)),
    ],
)
def test_the_memory_decides_how_much_is_recomputed(budget: int, choice: tuple[int, int]) -> None:
    config = made()
    lines = filled(config, budget)
    assert chosen(config) == choice
    assert len(lines) == (budget > 105)


def test_the_line_says_what_was_chosen_and_what_it_takes() -> None:
    (line,) = filled(made(), 400)
    assert line == (
        f"{MODEL}.enable_gradient_checkpointing=true (in every second layer)"
        f" {ACTOR}.ppo_max_token_len_per_gpu=8192: the fastest that fits; while training gpu 0"
        " holds 0.00 GiB of 0.00 GiB, and torch's cache up to 18% of 0.00 GiB more"
    )


def test_between_machines_large_micro_batches_hide_the_gathering() -> None:
    """Up to 339 bytes, as above. 81,000 operations a micro-batch are 19.8 a token with 4,096 tokens,
    9.9 with 8,192 and 3.3 with 24,576, less than the 8 that all layers take."""
    config = made(**{"trainer.nnodes": 2, "trainer.n_gpus_per_node": 8})
    filled(config, 400)
    assert chosen(config) == (1, 24576)


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        ({f"{MODEL}.enable_gradient_checkpointing": True}, (1, 24576)),
        ({f"{MODEL}.enable_gradient_checkpointing": False}, (0, 4096)),
        ({f"{MODEL}.gradient_checkpointing_every": 2}, (2, 8192)),
        ({f"{MODEL}.enable_activation_offload": True}, (1, 24576)),
        ({f"{ACTOR}.ppo_max_token_len_per_gpu": 2048}, (0, 2048)),
        ({f"{ACTOR}.ppo_max_token_len_per_gpu": 6144}, (2, 6144)),
    ],
)
def test_what_is_typed_stays(typed: dict[str, object], choice: tuple[int, int]) -> None:
    """Up to 339 bytes: at 2,048 tokens all levels fit, at 6,144 none takes 340."""
    config = made(**typed)
    filled(config, 400)
    assert chosen(config) == choice


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_is_chosen_where_all_is_typed(device: str) -> None:
    typed = {
        f"{MODEL}.enable_gradient_checkpointing": False,
        f"{ACTOR}.ppo_max_token_len_per_gpu": 65536,
    }
    config = made(**typed)
    assert filled(config, 1, device) == []
    assert chosen(config) == (0, 65536)


def test_a_fixed_number_of_rows_leaves_the_level_to_the_plan() -> None:
    """8 rows of 1,024 tokens: every second layer takes 292 of 339 bytes, none 420."""
    rows = {f"{ACTOR}.use_dynamic_bsz": False, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 8}
    config = made(**rows)
    filled(config, 400)
    assert config.actor_rollout_ref.model.recomputed_every == 2


def test_on_cpu_null_is_what_it_was() -> None:
    config = made(**{"algorithm.adv_estimator": "gae"})
    critic = critic_settings(config)
    assert fill_training(config, critic, device="cpu", plan=lambda: plan(config, 1)) == []
    assert chosen(config) == (1, 16384)
    for written in (critic, config.critic):
        assert (written.model.recomputed_every, written.micro_batch_tokens) == (1, 32768)
        assert written.model.enable_gradient_checkpointing is True
        assert written.ppo_max_token_len_per_gpu == 32768


def test_no_micro_batch_is_smaller_than_a_row() -> None:
    config = made(**{"data.max_response_length": 3000})
    filled(config, 300)
    assert chosen(config) == (2, 6144)  # up to 254 bytes: 100 + 6 x 24
    config = made(**{"data.max_response_length": 3000})
    filled(config, 161)  # up to 137 bytes: 4.6 x 1,024
    assert chosen(config) == (1, 4096)
    config = made(**{"data.max_response_length": 3000})
    filled(config, 154)  # up to 130 bytes: 3.8 x 1,024, and the longest row has 3,512 tokens
    assert chosen(config) == (1, 3512)


def test_a_token_costs_what_it_computes_and_its_part_of_the_fixed_cost() -> None:
    assert training_cost(every=0, tokens=8600) == 7
    assert training_cost(every=2, tokens=8600) == 8
    assert training_cost(every=1, tokens=8600) == 9
    assert training_cost(every=1, tokens=8600, adapters=True) == 7
    assert training_cost(every=1, tokens=8600, moved=10 * 8600) == 11


@pytest.mark.parametrize(
    ("trained", "world", "nodes", "moved"),
    [
        # 5.057e14 operations a second; 8 bytes at 3e11, at 5e10; 12 bytes at 3.5e10
        (ActorConfig(), 1, 1, 0),
        (ActorConfig(), 8, 1, 13_486),
        (ActorConfig(), 16, 2, 80_914),
        (ActorConfig(fsdp_config=FSDPConfig(offload_policy=True)), 1, 1, 173_388),
        (ActorConfig(strategy="megatron", megatron=MegatronConfig()), 8, 1, 0),
    ],
)
def test_sharded_weights_move_for_each_micro_batch(
    trained: ActorConfig, world: int, nodes: int, moved: float
) -> None:
    assert moved_operations(trained, world=world, nodes=nodes) == pytest.approx(moved, abs=1)


@pytest.fixture
def seven_b(tmp_path: Path) -> Config:
    path = checkpoint_7b(tmp_path / "7b")
    return compose_config(
        [
            f"{MODEL}.path={path}",
            "data.max_prompt_length=1024",
            "data.max_response_length=3072",
            "critic.model.path=null",
            "trainer.n_gpus_per_node=8",
        ]
    )


def on_gpus(config: Config, *, free_gib: int, extras: Extras | None = None) -> MemoryPlan:
    gpus = (Gpu(total_bytes=(free_gib + 1) * 2**30, free_bytes=free_gib * 2**30),) * 8
    machine = Machine(gpus=gpus, host_free_bytes=2**40)
    devices = Devices(kind="cuda", machines=(machine,))
    _, made = _check_memory(config, [], devices, extras=extras or Extras())
    return made


@pytest.mark.parametrize(
    ("free_gib", "choice"),
    [(140, (0, 12288)), (79, (0, 6144)), (47, (1, 32768))],
)
def test_a_7b_recomputes_by_the_size_of_the_gpus(
    seven_b: Config, caplog: pytest.LogCaptureFixture, free_gib: int, choice: tuple[int, int]
) -> None:
    caplog.set_level(logging.INFO)
    on_gpus(seven_b, free_gib=free_gib)
    assert chosen(seven_b) == choice
    (line,) = [line for line in caplog.messages if "the fastest that fits" in line]
    assert line.startswith(f"{MODEL}.enable_gradient_checkpointing=")


def test_the_critic_follows_in_the_run_and_in_what_is_written(
    seven_b: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seven_b.actor_rollout_ref.actor.ppo_max_token_len_per_gpu = 16384
    seven_b.critic.model.enable_gradient_checkpointing = True
    critic = critic_settings(seven_b)
    on_gpus(seven_b, free_gib=140, extras=Extras(critic=critic))
    # Policy and critic take 81.7 and 35.5 GiB, with 18 % 138.3 of 140: with 49,152 tokens of the
    # critic it would be more.
    assert chosen(seven_b) == (2, 16384)
    assert critic.ppo_max_token_len_per_gpu == 32768
    assert seven_b.critic.ppo_max_token_len_per_gpu == 32768
    lines = [line for line in caplog.messages if "the fastest that fits" in line]
    assert lines[1].startswith(f"critic.ppo_max_token_len_per_gpu={critic.micro_batch_tokens}:")


def test_a_7b_that_does_not_fit_is_refused_as_before(seven_b: Config) -> None:
    with pytest.raises(MemoryPlanError, match="the memory plan does not fit"):
        on_gpus(seven_b, free_gib=20)
    assert chosen(seven_b) == (1, 16384)


def judge(name: str, path: str, **changes: Any) -> RewardSpec:
    spec = EngineSpec(
        path=path, runner="generate", name="vllm", dtype="bfloat16", max_model_len=4096, max_num_seqs=256, max_num_batched_tokens=8192,
        tensor_parallel_size=1, gpu_memory_utilization=None, kv_cache_bytes=0, device="cuda", threads=1, replicas=None,
    )  # fmt: skip
    engines = {"main": replace(spec, **changes)}
    return RewardSpec(name=name, kind="generative", weight=1.0, engines=engines)


def test_engines_of_a_7b_take_what_others_leave(
    seven_b: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 79 GiB 4 stay free. Training holds 16.1 all the time, and three sleeping engines .6 each:
    57.1 are left for the one that is awake, and steps of about 2.7 reach 55. A rollout engine has
    128 samples with 4,096 tokens at most, 28 GiB of keys and values."""
    caplog.set_level(logging.INFO)
    path = str(seven_b.actor_rollout_ref.model.path)
    judges = [judge("clear", path), judge("safe", path, seed=1)]
    judges.append(judge("fixed", path, seed=2, gpu_memory_utilization=0.3))
    gpus = (Gpu(total_bytes=80 * 2**30, free_bytes=79 * 2**30),) * 8
    devices = Devices(kind="cuda", machines=(Machine(gpus=gpus, host_free_bytes=2**41),))
    engines, plan = _check_memory(seven_b, judges, devices, extras=Extras())
    shares = {engine.label: engine.gpu_share for engine in engines}
    assert shares == {"clear": 0.69, "safe": 0.69, "fixed": None}
    assert seven_b.actor_rollout_ref.rollout.gpu_memory_utilization == 0.57
    awake = {
        claim.who: claim.awake_bytes / 2**30 for claim in plan.claims if "gpu 0" in claim.devices
    }
    assert awake["clear"] == pytest.approx(0.69 * 80)
    assert awake["rollout"] == pytest.approx(0.57 * 80)
    assert awake["fixed"] == pytest.approx(0.3 * 80)
    lines = [line for line in caplog.messages if "gpu_memory_utilization=" in line]
    assert lines == [
        "engine of clear: gpu_memory_utilization=0.69: 55.20 GiB of each GPU, all that the plan leaves",
        "engine of safe: gpu_memory_utilization=0.69: 55.20 GiB of each GPU, all that the plan leaves",
        f"{ROLLOUT}.gpu_memory_utilization=0.57: 45.60 GiB of each GPU, a full batch has no use for more",
    ]


def test_each_null_is_said_with_its_reason(
    seven_b: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    on_gpus(seven_b, free_gib=140)
    said = "\n".join(caplog.messages)
    assert f"{ROLLOUT}.max_num_seqs=512: " in said
    assert f"{MODEL}.use_remove_padding: rows are packed if " in said
    assert "reward.engine.max_num_seqs" not in said  # no reward has an engine
    caplog.clear()
    seven_b.actor_rollout_ref.rollout.max_num_seqs = 64
    seven_b.actor_rollout_ref.model.use_remove_padding = False
    on_gpus(seven_b, free_gib=140)
    assert "max_num_seqs" not in "\n".join(caplog.messages)


def test_a_typed_share_of_the_rollout_stays(seven_b: Config) -> None:
    seven_b.actor_rollout_ref.rollout.gpu_memory_utilization = 0.4
    plan = on_gpus(seven_b, free_gib=79)
    assert seven_b.actor_rollout_ref.rollout.gpu_memory_utilization == 0.4
    (rollout,) = [c for c in plan.claims if c.who == "rollout" and "gpu 0" in c.devices]
    assert rollout.awake_bytes / 2**30 == pytest.approx(0.4 * 80)


def test_on_cpu_the_share_stays_open(seven_b: Config, tiny_llama: Path) -> None:
    seven_b.actor_rollout_ref.model.path = str(tiny_llama)
    seven_b.trainer.n_gpus_per_node = 1
    _check_memory(seven_b, [], cpu_devices(), extras=Extras())
    assert seven_b.actor_rollout_ref.rollout.gpu_memory_utilization is None
