"""A user's own part works from a file outside the package, with no other edit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmrl.backends import TRAIN_ENGINES, backend_of
from rmrl.backends.row_assignment import row_assignment
from rmrl.config.schema import ActorConfig, Config, FSDPConfig, ModelConfig, RewardConfig
from rmrl.inference.engine_facts import engine_facts, rollout_facts
from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES
from rmrl.inference.reward_engines import ENGINES
from rmrl.inference.rollout import ROLLOUT_ENGINES, build_engine
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.models.checkpoint_inspect import weight_bytes
from rmrl.rewards.combine.problems import combine_problems
from rmrl.rewards.entries.resolve import Surroundings, resolve_rewards
from rmrl.rewards.residency import plan_engines
from rmrl.rewards.residency.sizes import BATCH_BYTES, sized
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms.chain import reads_length
from rmrl.telemetry.sinks import SINKS
from rmrl.trainer.check_algorithm import algorithm_problems, needs_critic
from rmrl.trainer.check_layout import layout_problems
from rmrl.trainer.plan import Extras, policy_claims, rollout_sleeps
from rmrl.trainer.train_memory import offloads_state, state
from tests.rewards.parts import JUDGE, chat_tokenizer, checkpoint, make_scorer, rows
from tests.support.fake_processes import FakeProcess
from tests.trainer.fake_run import FakeParts, fake_run, records, train_and_close

PARTS = "tests.contracts.toy_parts"


def trained(folder: Path, **changed: Any) -> list[dict[str, Any]]:
    """Metrics of two steps of a whole run of fakes."""
    run = fake_run(folder, total_steps=2, **changed)
    asyncio.run(train_and_close(run))
    return records(run.out_dir / "metrics.jsonl")


def test_an_estimator_and_a_loss_train(tmp_path: Path):
    lines = trained(
        tmp_path,
        algorithm__adv_estimator=f"{PARTS}:above_the_worst",
        actor_rollout_ref__actor__policy_loss__loss_mode=f"{PARTS}:likelihood",
    )
    assert [line["policy/toy_tokens"] for line in lines] == [1.0, 1.0]  # a mean over tokens
    assert all(line["policy/grad_norm"] > 0 for line in lines)


def test_an_estimator_that_states_values_gets_a_critic(tmp_path: Path):
    lines = trained(tmp_path, algorithm__adv_estimator=f"{PARTS}:reward_minus_value")
    assert all("critic/value_loss" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "changed", "part_of_the_problem"),
    [
        ("above_the_worst", {"n": 1}, "rollout.n=1"),
        ("above_the_worst", {"kl": True}, "cannot take algorithm.use_kl_in_reward=True"),
        ("above_the_worst", {"critic": True}, "reads no values"),
        ("reward_minus_value", {"critic": False}, "needs a critic"),
    ],
)
def test_what_an_estimator_states_is_checked_before_the_run(
    name: str, changed: dict[str, Any], part_of_the_problem: str
):
    config = Config()
    config.algorithm.adv_estimator = f"{PARTS}:{name}"
    config.actor_rollout_ref.rollout.n = changed.get("n", 4)
    config.algorithm.use_kl_in_reward = changed.get("kl", False)
    config.critic.enable = changed.get("critic")
    specs: list[RewardSpec] = []
    problems = list(algorithm_problems(config, specs))
    assert len(problems) == 1
    assert part_of_the_problem in problems[0]


@pytest.mark.parametrize("enable", [True, False, None])
def test_a_plain_function_has_the_defaults_and_a_critic_on_request(enable: bool | None):
    config = Config()
    config.algorithm.adv_estimator = f"{PARTS}:plain_reward"
    config.actor_rollout_ref.rollout.n = 1
    config.critic.enable = enable
    assert list(algorithm_problems(config, [])) == []
    assert needs_critic(config) is bool(enable)


def resolved(folder: Path) -> tuple[RewardConfig, list[RewardSpec]]:
    """A judge on a toy engine and a toy kind, as a configuration names them."""
    (folder / "judge.py").write_text(JUDGE, encoding="utf-8")
    model = str(checkpoint(folder / "model"))
    config = RewardConfig(
        models=["judge", "vowels"],
        specs={
            "judge": {"path": model, "engine": {"name": f"{PARTS}:Echo"}},
            "vowels": {"kind": f"{PARTS}:Vowels", "upper": True},
        },
        weights=[0.0, 1.0],
        combine=f"{PARTS}:largest",
        transforms={"vowels": {"kind": f"{PARTS}:PerToken", "scale": 8.0}},
    )
    around = Surroundings(device="cpu", threads=1, functions_dirs=[folder])
    rewards = resolve_rewards(config, around)
    assert rewards.problems == []
    assert combine_problems(config, ["judge", "vowels"]) == []
    return config, rewards.specs


async def test_a_kind_a_reward_engine_a_transform_and_a_combiner_score(tmp_path: Path):
    config, specs = resolved(tmp_path)
    tokenizer = chat_tokenizer(tmp_path / "tokenizer")
    scorer = make_scorer(specs, tokenizer, combine=config.combine)
    try:
        batch = await scorer.score(rows("Aibb", "bbbb", group_size=2))
    finally:
        await scorer.close()
    scores_BC = batch.scores.values_BC
    assert (scores_BC[:, 0] > 4).all()  # the judge's engine writes the tokens it read
    assert scores_BC[:, 1].tolist() == [0.5, 0.0]  # 2 of 4 characters, and none
    # 8 * 0.5 / 4 tokens - the group's lowest, which is 0; the judge has weight 0
    assert batch.rewards_B.tolist() == [1.0, 0.0]


async def test_a_kind_that_states_that_it_combines_gets_its_members(tmp_path: Path):
    config = RewardConfig(
        models=["both"],
        specs={
            "both": {"kind": f"{PARTS}:Pooled", "of": ["lower", "all"], "how": "mean"},
            "lower": {"kind": f"{PARTS}:Vowels"},
            "all": {"kind": f"{PARTS}:Vowels", "upper": True},
        },
    )
    rewards = resolve_rewards(config, Surroundings(device="cpu", threads=1, functions_dirs=[]))
    assert rewards.problems == []
    assert {spec.name: spec.part_of for spec in rewards.specs} == {
        "both": "", "lower": "both", "all": "both",
    }  # fmt: skip
    scorer = make_scorer(rewards.specs, chat_tokenizer(tmp_path / "tokenizer"))
    try:
        batch = await scorer.score(rows("Aibb"))
    finally:
        await scorer.close()
    assert batch.rewards_B.tolist() == [0.375]  # mean of 1/4 (i) and 2/4 (A, i)


def test_what_a_reward_engine_states_is_planned_with(tmp_path: Path):
    _, specs = resolved(tmp_path)
    (plan,) = sized(plan_engines(specs))
    assert plan.put_away == "unload"  # sleeps nowhere
    assert (plan.awake_bytes, plan.away_bytes) == (7, 0)


def test_what_a_transform_states_is_checked_before_the_run(tmp_path: Path):
    _, specs = resolved(tmp_path)
    config = Config()
    config.algorithm.adv_estimator = "reinforce_plus_plus"
    config.actor_rollout_ref.rollout.n = 1
    problems = list(algorithm_problems(config, specs))
    assert len(problems) == 1
    assert problems[0].startswith("reward 'vowels' compares the responses to one prompt")
    assert reads_length(specs[1].transforms)
    assert not reads_length(specs[0].transforms)


def test_a_rollout_engine_and_a_tracker_run(tmp_path: Path):
    settings = RolloutEngineSettings.of(
        Config().actor_rollout_ref.rollout,
        path="toy",
        tokenizer=None,
        device="cpu",
        threads=1,
        max_model_len=72,
        trust_remote_code=False,
    )
    engine = FakeProcess(build_engine(f"{PARTS}:Counting", settings), "rollout-0")
    parts = FakeParts(engines=[engine])
    lines = trained(tmp_path, parts=parts, trainer__logger=["jsonl", f"{PARTS}:Steps"])
    assert all(line["policy/grad_norm"] > 0 for line in lines)
    assert (tmp_path / "run" / "steps.txt").read_text(encoding="utf-8") == "1\n2\n"


@pytest.mark.parametrize(("device", "engines", "sleeps"), [("cpu", 2, True), ("cuda", 1, False)])
def test_what_a_rollout_engine_states_is_planned_with(
    tiny_llama: Path, device: str, engines: int, sleeps: bool
):
    """Weights and a batch without a share of the GPU or a KV cache; what does not sleep keeps
    both. On CPU the engines are counted together, on CUDA each device for itself."""
    config = Config()
    config.actor_rollout_ref.model.path = str(tiny_llama)
    rollout = config.actor_rollout_ref.rollout
    rollout.name = f"{PARTS}:Counting"
    rollout.data_parallel_size = 2
    asleep = weight_bytes(str(tiny_llama), rollout.dtype) + ENGINE_PROCESS_BYTES[device]
    _, claim, *hosted = policy_claims(config, device=device, extras=Extras())
    assert claim.awake_bytes == engines * (asleep + BATCH_BYTES)
    assert claim.away_bytes == (engines * asleep if sleeps else claim.awake_bytes)
    published = ["published weights in shared memory"]
    assert [each.what for each in hosted] == (published if device == "cuda" else [])
    assert rollout_sleeps(config, device=device) is sleeps


@pytest.mark.parametrize("name", ["Ranked", "DESCRIBED"])
def test_a_backend_trains(tmp_path: Path, name: str):
    lines = trained(tmp_path, actor_rollout_ref__actor__strategy=f"{PARTS}:{name}")
    assert all(line["policy/grad_norm"] > 0 for line in lines)


def test_a_plain_backend_is_not_taken_for_a_sharded_one(tiny_llama: Path):
    """Nothing is known of how it shards: each process is taken to hold all, in float32."""
    model = ModelConfig(path=str(tiny_llama))
    sharded = ActorConfig(fsdp_config=FSDPConfig(model_dtype="bfloat16", param_offload=True))
    own = replace(sharded, strategy=f"{PARTS}:Ranked")
    # two processes with 4 bytes each, against one copy of 2 bytes
    assert state(model, own, 2).weights == 4 * state(model, sharded, 2).weights
    assert offloads_state(sharded)
    assert not offloads_state(own)


def test_what_a_backend_states_is_read(tiny_llama: Path):
    strategy = f"{PARTS}:DESCRIBED"
    actor = ActorConfig(strategy=strategy)
    made = row_assignment(actor, 3, section="actor_rollout_ref.actor")
    assert made.share_of == (0, 0, 0)
    assert made.output_ranks == (2,)
    config = Config()
    config.trainer.n_gpus_per_node = 3
    config.actor_rollout_ref.model.path = str(tiny_llama)
    config.actor_rollout_ref.actor.strategy = strategy
    assert list(layout_problems(config, None, device="cpu")) == [
        f"actor_rollout_ref.actor.strategy={strategy} needs toy-core, which is not installed",
        "actor_rollout_ref.actor: 3 processes",
    ]


@pytest.mark.parametrize("strategy", TRAIN_ENGINES)
def test_every_backend_states_its_facts(strategy: str, tiny_llama: Path):
    trained = ActorConfig(strategy=strategy)
    backend = backend_of(strategy)
    assert backend.row_assignment(trained, 1, "actor_rollout_ref.actor").output_ranks == (0,)
    assert backend.saved_dtype(trained) in ("float32", "bfloat16", "float16")
    assert backend.memory.state(ModelConfig(path=str(tiny_llama)), trained, 1).total > 0
    assert strategy in backend.memory.layout(trained, 1)


@pytest.mark.parametrize("name", ENGINES)
def test_every_reward_engine_states_known_devices(name: str):
    facts = engine_facts(name)
    assert {*facts.sleeps_on, *facts.batch_invariant_on} <= {"cpu", "cuda"}


@pytest.mark.parametrize("name", ROLLOUT_ENGINES)
def test_every_rollout_engine_states_known_devices(name: str):
    facts = rollout_facts(name)
    assert {*facts.sleeps_on, *facts.batch_invariant_on} <= {"cpu", "cuda"}


@pytest.mark.parametrize("name", SINKS)
def test_every_tracker_can_be_looked_up(name: str):
    assert callable(SINKS[name])
