"""What the plan expects of a checkpoint whose size is known to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.step_memory import checkpoint_7b
from rmrl.assemble.memory import budget_of, gpu, plan_of, scoring_plan
from rmrl.cluster.devices import Devices, Machine
from rmrl.cluster.gpu import Gpu
from rmrl.cluster.memory_plan import PHASES, Claim, MemoryPlan
from rmrl.config.schema import Config
from rmrl.errors import MemoryPlanError
from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES
from rmrl.rewards.residency import plan_engines, sized
from rmrl.rewards.residency.sizes import BATCH_BYTES
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_algorithm import critic_settings
from rmrl.trainer.check_run import _check_memory
from rmrl.trainer.plan import (
    NCCL_BYTES,
    TRAIN_PROCESS_BYTES,
    Extras,
    _policy_host,
    _training,
    memory_plan,
    policy_claims,
    rollout_sleeps,
)
from tests.assemble.test_memory import engine_spec

# embeddings 1024 x 128, tied; two layers of q, o 128 x 128, k, v 64 x 128, three 128 x 256, two
# norms; the last norm
PARAMETERS = 1024 * 128 + 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256 + 2 * 128) + 128
MIB = 2**20
GPU_PROCESS_BYTES = TRAIN_PROCESS_BYTES["cuda"] + NCCL_BYTES
"""of a process of two"""


def config(path: Path) -> Config:
    made = Config()
    made.actor_rollout_ref.model.path = str(path)
    made.actor_rollout_ref.rollout.kv_cache_bytes = 100 * MIB
    made.actor_rollout_ref.rollout.dtype = "float32"
    made.trainer.n_gpus_per_node = 2
    return made


def plan(made: Config, *, extras: Extras | None = None, budget_bytes: int = 2**40) -> MemoryPlan:
    return memory_plan(made, [], device="cpu", budget_bytes=budget_bytes, extras=extras or Extras())


def test_training_holds_weights_gradients_and_two_moments(tiny_llama: Path) -> None:
    training = plan(config(tiny_llama)).claims[0]
    assert training.away_bytes == PARAMETERS * 4 * 4 + 2 * TRAIN_PROCESS_BYTES["cpu"]
    assert training.awake_bytes > training.away_bytes  # activations
    assert training.when == ("train",)


def test_a_reference_adds_its_weights_in_its_own_dtype(tiny_llama: Path) -> None:
    with_reference = plan(config(tiny_llama), extras=Extras(reference=True)).claims[0].away_bytes
    assert (
        with_reference - plan(config(tiny_llama)).claims[0].away_bytes == PARAMETERS * 2
    )  # bfloat16


def test_a_critic_beside_the_policy_adds_its_state_and_no_process(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.critic.model.path = str(tiny_llama)
    training, critic, _ = plan(made, extras=Extras(critic=critic_settings(made))).claims
    assert (critic.who, critic.when) == ("critic", ("train",))
    assert critic.away_bytes == PARAMETERS * 4 * 4
    assert training.away_bytes == plan(made).claims[0].away_bytes


def test_a_critic_in_a_pool_has_processes_of_its_own(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.trainer.resource_pools, made.critic.pool = {"values": {"n_gpus_per_node": 3}}, "values"
    critic = plan(made, extras=Extras(critic=critic_settings(made))).claims[1]
    assert critic.away_bytes == PARAMETERS * 4 * 4 + 3 * TRAIN_PROCESS_BYTES["cpu"]
    made.actor_rollout_ref.rollout.name = "hf"
    claims = policy_claims(made, device="cuda", extras=Extras(critic=critic_settings(made)))
    assert claims[1].devices == tuple(gpu("values", number) for number in range(3))
    assert claims[0].devices == tuple(gpu("", number) for number in range(2))


def test_megatron_processes_hold_copies_and_a_reference_beside_them(tiny_llama: Path) -> None:
    """Two data-parallel copies: bfloat16 weights and float32 gradients twice, master weights and
    moments once; a reference is weights."""
    made = config(tiny_llama)
    made.actor_rollout_ref.actor.strategy = "megatron"
    training = plan(made).claims[0]
    assert training.what.endswith(" megatron x2")
    assert training.away_bytes == PARAMETERS * (2 * 2 + 2 * 4 + 12) + 2 * TRAIN_PROCESS_BYTES["cpu"]
    with_reference = plan(made, extras=Extras(reference=True)).claims[0]
    assert with_reference.away_bytes - training.away_bytes == PARAMETERS * 2 * 2


def test_what_megatron_does_not_offload_stays_on_the_devices(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.actor_rollout_ref.actor.strategy = "megatron"
    made.actor_rollout_ref.actor.megatron.tensor_model_parallel_size = 2
    made.actor_rollout_ref.actor.megatron.param_offload = (
        made.actor_rollout_ref.actor.megatron.optimizer_offload
    ) = True
    assert (
        _training(made, "cuda", False).away_bytes == PARAMETERS * 4 // 2 + GPU_PROCESS_BYTES
    )  # gradients
    offloaded, *_ = _policy_host(made, Extras())
    assert offloaded.what.endswith("megatron, offloaded")
    assert offloaded.awake_bytes == PARAMETERS * (2 + 12)


def test_what_fsdp_does_not_offload_stays_on_the_devices(tiny_llama: Path) -> None:
    """Two moments of float32, in two processes; there are no gradients between phases."""
    made = config(tiny_llama)
    made.actor_rollout_ref.actor.fsdp_config.param_offload = True
    assert _training(made, "cuda", False).away_bytes == PARAMETERS * 8 // 2 + GPU_PROCESS_BYTES
    offloaded, *_ = _policy_host(made, Extras())
    assert offloaded.awake_bytes == PARAMETERS * 4
    made.actor_rollout_ref.actor.fsdp_config.optimizer_offload = True
    assert _training(made, "cuda", False).away_bytes == GPU_PROCESS_BYTES


def test_state_that_lives_in_host_memory_takes_no_device(tiny_llama: Path) -> None:
    """Weights, gradients and two moments of float32 in host memory, on each of two nodes a half;
    the devices hold what a micro-batch needs."""
    run = config(tiny_llama)
    resident = _training(run, "cuda", False)
    run.actor_rollout_ref.actor.fsdp_config.offload_policy = True
    offloaded = _training(run, "cuda", False)
    assert offloaded.away_bytes == GPU_PROCESS_BYTES
    assert resident.awake_bytes - offloaded.awake_bytes == PARAMETERS * 16 // 2
    in_host, *_ = _policy_host(run, Extras())
    assert in_host.awake_bytes == PARAMETERS * 16
    run.trainer.nnodes = 2
    assert _policy_host(run, Extras())[0].awake_bytes == PARAMETERS * 16 // 2


def test_a_process_of_several_holds_the_buffers_of_nccl(tiny_llama: Path) -> None:
    run = config(tiny_llama)
    run.actor_rollout_ref.actor.fsdp_config.offload_policy = True
    two = _training(run, "cuda", False).away_bytes
    run.trainer.n_gpus_per_node = 1
    assert two - _training(run, "cuda", False).away_bytes == NCCL_BYTES


def test_a_whole_7b_trains_on_one_card_of_80_gb_with_offload_policy(tmp_path: Path) -> None:
    """16 bytes a parameter are 113.5 GiB, in host memory; on the card two layers and the root."""
    run = config(checkpoint_7b(tmp_path))
    run.trainer.n_gpus_per_node = 1
    run.actor_rollout_ref.rollout.kv_cache_bytes = None
    run.actor_rollout_ref.rollout.gpu_memory_utilization = 0.5
    gib = 2**30

    def planned() -> MemoryPlan:
        return memory_plan(
            run,
            [],
            device="cuda",
            budget_bytes=74 * gib,
            extras=Extras(),
            host_bytes=240 * gib,
            gpu_bytes=80 * gib,
        )

    with pytest.raises(MemoryPlanError, match="the memory plan does not fit"):
        planned().check()
    run.actor_rollout_ref.actor.fsdp_config.offload_policy = True
    planned().check()
    (host,) = [claim for claim in planned().claims if claim.what.endswith("fsdp2, offloaded")]
    assert host.awake_bytes / gib == pytest.approx(113.5, abs=0.1)


def long_rows(tmp_path: Path, tokens: int) -> tuple[Config, Devices]:
    """A 7B on eight cards with 80 GB each."""
    run = config(checkpoint_7b(tmp_path))
    run.trainer.n_gpus_per_node = 8
    run.actor_rollout_ref.rollout.free_cache_engine = True
    run.data.max_prompt_length = 1024
    run.data.max_response_length = tokens - 1024
    gpus = (Gpu(total_bytes=80 * 2**30, free_bytes=79 * 2**30),) * 8
    return run, Devices(kind="cuda", machines=(Machine(gpus=gpus, host_free_bytes=2**40),))


@pytest.mark.parametrize(
    ("tokens", "limit", "advice"),
    [
        (2**14, 2**18, r"Or set actor_rollout_ref\.actor\.ppo_max_token_len_per_gpu=16384, with"),
        (2**18, 2**14, r"Or set actor_rollout_ref\.actor\.fsdp_config\.ulysses_sequence_parallel_size=4, with"),
        (2**18, 2**18, r"ulysses_sequence_parallel_size=4 actor_rollout_ref\.actor\.ppo_max_token_len_per_gpu=65536, with"),
    ],
)  # fmt: skip
def test_activations_that_do_not_fit_are_cut_smaller_or_shared(
    tmp_path: Path, tokens: int, limit: int, advice: str
) -> None:
    run, devices = long_rows(tmp_path, tokens)
    run.actor_rollout_ref.actor.ppo_max_token_len_per_gpu = limit
    with pytest.raises(MemoryPlanError, match=advice):
        _check_memory(run, [], devices, extras=Extras())
    fsdp = run.actor_rollout_ref.actor.fsdp_config
    assert fsdp.ulysses_sequence_parallel_size == 1  # a proposal changes nothing


def test_no_size_is_proposed_where_none_fits(tmp_path: Path) -> None:
    """28 attention heads on 8 processes: 4 is the largest size there is."""
    run, devices = long_rows(tmp_path, 2**22)
    with pytest.raises(MemoryPlanError) as error:
        _check_memory(run, [], devices, extras=Extras())
    assert "Or set" not in str(error.value)


@pytest.mark.parametrize("strategy", ["fsdp2", "megatron"])
def test_a_reference_that_is_not_offloaded_stays_beside_what_is(
    tiny_llama: Path, strategy: str
) -> None:
    """Two processes: FSDP shards the reference (bfloat16), megatron's data-parallel ones have a
    copy each."""
    made = config(tiny_llama)
    actor, ref = made.actor_rollout_ref.actor, made.actor_rollout_ref.ref
    actor.strategy = strategy
    (actor.megatron if strategy == "megatron" else actor.fsdp_config).param_offload = True
    alone, beside = (
        _training(made, "cuda", with_reference).away_bytes for with_reference in (False, True)
    )
    assert beside - alone == PARAMETERS * 2 // (1 if strategy == "megatron" else 2)
    ref.param_offload = True
    assert _training(made, "cuda", True).away_bytes == alone


def test_rollout_in_a_pool_never_sleeps(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.trainer.resource_pools, made.actor_rollout_ref.rollout.pool = (
        {"sampling": {"n_gpus_per_node": 1}},
        "sampling",
    )
    rollout = plan(made).claims[1]
    assert rollout.away_bytes == rollout.awake_bytes
    assert rollout.when == PHASES


def test_adapters_spare_gradients_and_moments(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.actor_rollout_ref.model.lora_rank = 8
    assert plan(made).claims[0].away_bytes == PARAMETERS * 2 + 2 * TRAIN_PROCESS_BYTES["cpu"]
    # frozen weights are held in the dtype of compute; under fsdp all parameters have one dtype
    made.actor_rollout_ref.actor.strategy = "fsdp"
    assert plan(made).claims[0].away_bytes == PARAMETERS * 4 + 2 * TRAIN_PROCESS_BYTES["cpu"]
    made.actor_rollout_ref.actor.strategy = "fsdp2"
    made.actor_rollout_ref.actor.fsdp_config.param_dtype = None
    assert plan(made).claims[0].away_bytes == PARAMETERS * 4 + 2 * TRAIN_PROCESS_BYTES["cpu"]


def test_a_rollout_engine_gives_back_its_cache(tiny_llama: Path) -> None:
    rollout = plan(config(tiny_llama)).claims[1]
    assert rollout.awake_bytes - rollout.away_bytes == 100 * MIB
    assert rollout.away_bytes == pytest.approx(
        2 * PARAMETERS * 4 + ENGINE_PROCESS_BYTES["cpu"], rel=0.001
    )


def test_a_transformers_rollout_engine_is_no_vllm(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.actor_rollout_ref.rollout.name = "hf"
    rollout = plan(made).claims[1]
    # weights once and a batch; no reserved cache, no second form of the weights
    assert rollout.awake_bytes == pytest.approx(
        PARAMETERS * 4 + ENGINE_PROCESS_BYTES["cpu"] + BATCH_BYTES, rel=0.001
    )
    assert rollout.away_bytes == rollout.awake_bytes  # weights in host memory stay there


def test_a_transformers_rollout_engine_on_a_gpu_moves_its_weights_away(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.actor_rollout_ref.rollout.name = "hf"
    made.actor_rollout_ref.rollout.tensor_parallel_size = 2  # it runs on one device all the same
    claims = policy_claims(made, device="cuda", extras=Extras())
    rollout = claims[1]
    assert rollout.awake_bytes == pytest.approx(
        PARAMETERS * 4 + ENGINE_PROCESS_BYTES["cuda"] + BATCH_BYTES, rel=0.001
    )
    assert rollout.away_bytes == ENGINE_PROCESS_BYTES["cuda"]
    (asleep,) = [claim for claim in claims if claim.what == "weights, asleep"]
    one = asleep.awake_bytes
    # Four devices on two machines: one engine of two devices on each.
    made.trainer.nnodes = 2
    assert _policy_host(made, Extras())[-1].awake_bytes == one
    made.actor_rollout_ref.rollout.tensor_parallel_size = 1
    assert _policy_host(made, Extras())[-1].awake_bytes == 2 * one


def test_sglang_on_cpu_frees_nothing_in_its_sleep(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.actor_rollout_ref.rollout.name = "sglang"
    rollout = plan(made).claims[1]
    assert rollout.away_bytes == rollout.awake_bytes
    assert not rollout_sleeps(made, device="cpu")
    assert rollout_sleeps(made, device="cuda")


def test_without_free_cache_engine_it_keeps_everything(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.actor_rollout_ref.rollout.free_cache_engine = False
    rollout = plan(made).claims[1]
    assert rollout.away_bytes == rollout.awake_bytes


def test_two_engines_are_twice_as_large(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    one = plan(made).claims[1].awake_bytes
    made.actor_rollout_ref.rollout.data_parallel_size = 2
    assert plan(made).claims[1].awake_bytes == 2 * one


def test_longer_responses_need_more_while_training(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    made.data.max_response_length = 16
    made.data.max_prompt_length = 16
    made.actor_rollout_ref.actor.ppo_max_token_len_per_gpu = 1
    short = plan(made).claims[0].awake_bytes
    made.data.max_response_length = 48
    assert plan(made).claims[0].awake_bytes > short


def test_a_budget_too_small_is_refused(tiny_llama: Path) -> None:
    with pytest.raises(MemoryPlanError, match="the memory plan does not fit"):
        plan(config(tiny_llama), budget_bytes=10 * MIB).check()


def test_engines_may_hold_what_the_policy_leaves(tiny_llama: Path) -> None:
    made = config(tiny_llama)
    engine = Claim(
        who="a",
        what="m",
        awake_bytes=400 * MIB,
        away_bytes=100 * MIB,
        when=("score",),
        place="",
        alternates=True,
    )
    policy = policy_claims(made, device="cpu", extras=Extras())
    room = budget_of(plan_of([*policy, engine], 10_000 * MIB, None)).places[""]
    training, rollout = policy
    assert room.scoring_bytes == 10_000 * MIB - training.away_bytes - rollout.away_bytes
    assert room.idle_bytes == 10_000 * MIB - max(
        training.awake_bytes + rollout.away_bytes, training.away_bytes + rollout.awake_bytes
    )


def test_the_engine_part_is_that_of_offline_scoring(tiny_llama: Path) -> None:
    spec = RewardSpec(
        name="judge", kind="generative", weight=1.0, engines={"main": engine_spec(tiny_llama)}
    )
    engines = sized(plan_engines([spec]))
    training = memory_plan(
        config(tiny_llama), engines, device="cpu", budget_bytes=2**40, extras=Extras()
    )
    assert training.claims[2:] == scoring_plan(engines, budget_bytes=2**40).claims


def seven_billion(tiny_llama: Path) -> Config:
    """Offloads everything, and its rollout engines sleep: each row of host memory appears."""
    made = config(tiny_llama)
    made.actor_rollout_ref.rollout.dtype = "bfloat16"
    fsdp = made.actor_rollout_ref.actor.fsdp_config
    fsdp.param_offload = fsdp.optimizer_offload = True
    return made


def test_host_memory_is_the_sum_of_what_waits_what_sleeps_and_what_is_published(
    tiny_llama: Path,
) -> None:
    made = seven_billion(tiny_llama)
    rows = {claim.what: claim for claim in _policy_host(made, Extras())}
    name = tiny_llama.name
    # weights and two moments of float32; two engines of bfloat16, one on each GPU; one file
    assert {what: claim.awake_bytes for what, claim in rows.items()} == {
        f"{name} fsdp2, offloaded": PARAMETERS * 12,
        "published weights in shared memory": PARAMETERS * 2,
        "weights, asleep": PARAMETERS * 2 * 2,
    }
    assert [what for what, claim in rows.items() if claim.pinned] == ["weights, asleep"]
    made.actor_rollout_ref.rollout.weight_transport = "ipc"
    assert "published weights in shared memory" not in [
        claim.what for claim in _policy_host(made, Extras())
    ]


def on_gpus(made: Config, host_bytes: int) -> MemoryPlan:
    return memory_plan(
        made,
        [],
        device="cuda",
        budget_bytes=2**40,
        extras=Extras(),
        host_bytes=host_bytes,
        gpu_bytes=2**36,
    )


def test_too_little_host_memory_is_refused_with_the_rows_of_the_sum(tiny_llama: Path) -> None:
    made = seven_billion(tiny_llama)
    total = PARAMETERS * (12 + 2 + 4)
    on_gpus(made, total).check()
    with pytest.raises(MemoryPlanError) as error:
        on_gpus(made, total - 1).check()
    text = str(error.value)
    for row in ("fsdp2, offloaded", "published weights in shared memory", "weights, asleep"):
        assert row in text
    assert "put_away=sleep2 or unload" in text
    assert "optimizer_offload=false" in text


def test_judges_get_the_replicas_that_fit_beside_the_policy_in_host_memory(
    tiny_llama: Path,
) -> None:
    made = seven_billion(tiny_llama)
    judge = RewardSpec(
        name="judge",
        kind="generative",
        weight=1.0,
        engines={"main": engine_spec(tiny_llama, device="cuda", replicas=None)},
    )
    gpus = (Gpu(total_bytes=2**36, free_bytes=2**36),) * 2
    policy_bytes = PARAMETERS * (12 + 2 + 4)
    for room, replicas in ((2, 2), (1, 1)):
        host_bytes = policy_bytes + room * PARAMETERS * 2
        devices = Devices(kind="cuda", machines=(Machine(gpus=gpus, host_free_bytes=host_bytes),))
        engines, _ = _check_memory(made, [judge], devices, extras=Extras())
        assert [plan.replicas for plan in engines] == [replicas]


def test_pinned_memory_is_exact_only_where_rounding_up_does_not_fit(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = seven_billion(tiny_llama)
    exact = PARAMETERS * (12 + 2 + 4)
    rounded = exact + PARAMETERS * 4  # blocks of engines asleep may take twice their size
    assert not budget_of(on_gpus(made, rounded)).exact_pinned
    assert budget_of(on_gpus(made, rounded - 1)).exact_pinned
    monkeypatch.setattr("rmrl.assemble.memory.exact_pinned_possible", lambda: False)
    on_gpus(made, rounded).check()
    with pytest.raises(MemoryPlanError, match=r"weights, asleep \(rounded up\)"):
        on_gpus(made, rounded - 1).check()
