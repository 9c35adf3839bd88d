"""What the plan expects of a checkpoint whose size is known to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.cluster.ledger import Claim, MemoryPlan
from rmrl.config.schema import Config
from rmrl.errors import MemoryPlanError
from rmrl.rewards.residency import plan_engines, sized
from rmrl.rewards.residency.sizes import ENGINE_PROCESS_BYTES
from rmrl.rewards.spec import RewardSpec
from rmrl.scoring.memory import budget_of, plan_of, scoring_plan
from rmrl.trainer.plan import TRAIN_PROCESS_BYTES, memory_plan, policy_claims
from tests.scoring.test_memory import engine_spec

# embeddings 1024 x 128, tied; two layers of q, o 128 x 128, k, v 64 x 128, three 128 x 256, two norms; the last norm
PARAMETERS = 1024 * 128 + 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256 + 2 * 128) + 128
MIB = 2**20


def config(path: Path) -> Config:
    made = Config()
    made.actor_rollout_ref.model.path = str(path)
    made.actor_rollout_ref.rollout.kv_cache_bytes = 100 * MIB
    made.actor_rollout_ref.rollout.dtype = "float32"
    made.trainer.n_gpus_per_node = 2
    return made


def plan(made: Config, *, with_reference: bool = False, budget_bytes: int = 2**40) -> MemoryPlan:
    return memory_plan(made, [], device="cpu", budget_bytes=budget_bytes, with_reference=with_reference)


def test_training_holds_weights_gradients_and_two_moments(tiny_llama: Path) -> None:
    training = plan(config(tiny_llama)).claims[0]
    assert training.away_bytes == PARAMETERS * 4 * 4 + 2 * TRAIN_PROCESS_BYTES["cpu"]
    assert training.awake_bytes > training.away_bytes  # activations
    assert training.when == ("train",)


def test_a_reference_adds_its_weights_in_its_own_dtype(tiny_llama: Path) -> None:
    with_reference = plan(config(tiny_llama), with_reference=True).claims[0].away_bytes
    assert with_reference - plan(config(tiny_llama)).claims[0].away_bytes == PARAMETERS * 2  # bfloat16


def test_a_rollout_engine_gives_back_its_cache(tiny_llama: Path) -> None:
    rollout = plan(config(tiny_llama)).claims[1]
    assert rollout.awake_bytes - rollout.away_bytes == 100 * MIB
    assert rollout.away_bytes == pytest.approx(2 * PARAMETERS * 4 + ENGINE_PROCESS_BYTES["cpu"], rel=0.001)


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
    engine = Claim(who="a", what="m", awake_bytes=400 * MIB, away_bytes=100 * MIB, when=("score",), place="", alternates=True)
    policy = policy_claims(made, device="cpu", with_reference=False)
    room = budget_of(plan_of([*policy, engine], 10_000 * MIB, None)).places[""]
    training, rollout = policy
    assert room.scoring_bytes == 10_000 * MIB - training.away_bytes - rollout.away_bytes
    assert room.idle_bytes == 10_000 * MIB - max(training.awake_bytes + rollout.away_bytes, training.away_bytes + rollout.awake_bytes)


def test_the_engine_part_is_that_of_offline_scoring(tiny_llama: Path) -> None:
    spec = RewardSpec(name="judge", kind="generative", weight=1.0, engines={"main": engine_spec(tiny_llama)})
    engines = sized(plan_engines([spec]))
    training = memory_plan(config(tiny_llama), engines, device="cpu", budget_bytes=2**40, with_reference=False)
    assert training.claims[2:] == scoring_plan(engines, budget_bytes=2**40).claims
