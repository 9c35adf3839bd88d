"""The table of verl's keys: sound in itself, right in its conversions, and what real command lines
ask for."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rmrl.config.compat import SHARED, may_be_of_verl
from rmrl.config.compat.apply import apply
from rmrl.config.compat.conversions import CONVERSIONS
from rmrl.config.compat.given_values import hydra_text, leaves
from rmrl.config.compat.keys_of_verl import TABLE, KeyFate, fate_of
from rmrl.config.load import compose_config, normalise
from rmrl.config.overrides import parse
from rmrl.config.schema import Config, ScoreConfig
from rmrl.config.typed import unknown_key
from rmrl.errors import ConfigError
from scripts.write_verl_keys import PAGE, page
from tests.config.verl_lines import SCRIPTS, measure_overrides, scripts
from tests.patience import PATIENCE_S

OURS_IN_TABLE = {
    "trainer.device", "actor_rollout_ref.actor.megatron.expert_model_parallel_size", "critic.megatron.expert_model_parallel_size",
    "actor_rollout_ref.rollout.name", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", "data.gen_batch_size",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", "algorithm.filter_groups.metric",
    "algorithm.rollout_correction.rollout_rs", "algorithm.rollout_correction.rollout_rs_threshold",
    "algorithm.rollout_correction.rollout_is_threshold", "algorithm.rollout_correction.bypass_mode",
}  # fmt: skip
"""Keys of ours that take values of verl's as well: conversions pass them on."""


def problems_of(*overrides: str, root: type = Config) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        normalise(overrides, root)
    return caught.value.problems


def keys_of(section: Any, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from keys_of(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def examples(row: KeyFate) -> list[str]:
    """One key for each combination of the row's alternatives."""
    texts = [""]
    for part in row.pattern.replace(".*", ".anything").split("("):
        choice, bracket, rest = part.partition(")")
        texts = [
            text + one for text in texts for one in (choice.split("|") if bracket else [choice])
        ]
        texts = [text + rest for text in texts]
    return texts


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.pattern)
def test_a_row_is_sound(row: KeyFate):
    assert all(row.matches(key) for key in examples(row))
    assert (row.fate == "converted") == bool(row.by)
    assert (row.fate == "renamed") == bool(row.target)
    assert row.why or row.fate == "renamed"
    assert not row.why.endswith(".")
    for key in examples(row) if row.fate == "renamed" else []:
        ours = row.renamed(key)
        if (
            not ours.startswith(("reward_model", "custom_reward_function"))
            and "anything" not in ours
        ):
            assert unknown_key(Config, ours) is None, ours


def test_every_conversion_has_a_row_and_every_row_its_conversion():
    assert {row.by for row in TABLE if row.by} == set(CONVERSIONS)


def test_no_key_of_ours_is_taken_from_its_users():
    """Only conversions look at keys of ours."""
    taken = {key: fate_of(key, TABLE) for key in keys_of(Config())}
    assert {key for key, row in taken.items() if row is not None} == OURS_IN_TABLE
    assert all(row.fate == "converted" for row in taken.values() if row is not None)


@pytest.mark.parametrize("key", sorted(OURS_IN_TABLE - set(SHARED)))
def test_a_shared_key_alone_needs_no_translation(key: str):
    """Such keys mean something else only beside keys that rmrl lacks."""
    settings, _ = parse([f"{key}=8"])
    assert not any(map(may_be_of_verl, settings))
    assert apply(settings).converted == (f"{key}=8",)


@pytest.mark.parametrize("key", sorted(SHARED))
def test_values_that_mean_the_same_in_both_need_no_translation(key: str):
    for value in SHARED[key] or (["2.5"] if key.endswith("_threshold") else []):
        settings, _ = parse([f"{key}={value}"])
        assert not any(map(may_be_of_verl, settings))
        assert apply(settings).converted == (f"{key}={value}",)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.pattern)
def test_a_key_of_the_table_is_looked_up_in_it(row: KeyFate):
    """`may_be_of_verl` lets none pass, whatever its value is."""
    values = ("1", "null", "some_value", "{entry: 1}")
    for key in set(examples(row)) - OURS_IN_TABLE:
        settings, _ = parse([f"{key}={value}" for value in values])
        assert all(map(may_be_of_verl, settings)), key


def test_keys_of_rmrl_alone_import_no_translator():
    """In a process of its own, since the tests here import them all."""
    script = (
        "import sys\n"
        "from rmrl.config.compat import translate\n"
        "from rmrl.config.load import compose_config\n"
        "from rmrl.config.schema import Config, ScoreConfig\n"
        "for root, words in ((Config, sys.argv[1:]), (ScoreConfig, ['reward.models=[gsm8k]'])):\n"
        "    translate(compose_config(words, root))\n"
        "print(*(name for name in sys.modules if name.startswith('rmrl.config.compat')))\n"
    )
    words = [
        "actor_rollout_ref.rollout.name=hf",
        "algorithm.rollout_correction.rollout_is_threshold=2.0",
        "reward.models=[gsm8k]",
        "reward.specs.judge.engine.name=vllm",
        "trainer.device=cpu",
        "+recipe=[dapo,tis]",
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    gates = {"rmrl.config.compat", "rmrl.config.compat.use"}
    assert set(done.stdout.split()) == gates


def test_every_row_can_be_the_first():
    """No row stands behind one that takes all of its keys."""
    hidden = [
        row.pattern for row in TABLE if all(fate_of(key, TABLE) is not row for key in examples(row))
    ]
    assert hidden == []


def test_the_page_is_in_step():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/write_verl_keys.py"


@pytest.mark.parametrize(
    ("typed", "passed_on"),
    [
        (["model_engine=megatron"], ["actor_rollout_ref.actor.strategy=megatron"]),
        (["model_engine=dp"], []),
        (
            ["actor_rollout_ref.actor.ppo_micro_batch_size=64", "trainer.n_gpus_per_node=4", "trainer.nnodes=2"],
            # 64 / (2 x 4)
            ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8", "trainer.n_gpus_per_node=4", "trainer.nnodes=2"],
        ),
        (["critic.ppo_micro_batch_size=null"], []),
        (
            ["actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
             "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=4096"],
            ["actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=4096"],
        ),
        (
            ["actor_rollout_ref.ref.log_prob_use_dynamic_bsz=False", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4"],
            ["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4"],
        ),
        (
            ["actor_rollout_ref.rollout.log_prob_micro_batch_size=32"],  # over 1 x 8 processes
            ["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4"],
        ),
        # of 1e-6
        (["actor_rollout_ref.actor.optim.min_lr=1e-7"], ["actor_rollout_ref.actor.optim.min_lr_ratio=0.1"]),
        (
            ["+critic.optim.override_optimizer_config={adam_beta2:0.95,adam_eps:1e-6,optimizer_cpu_offload:True}"],
            ["critic.optim.betas=[0.9,0.95]", "critic.optim.eps=1e-06"],
        ),
        # A section's new name has rows of its own.
        (["critic.fsdp.seed=3", "critic.fsdp.fsdp_size=2"], ["critic.fsdp_config.fsdp_size=2"]),
        (["critic.fsdp={fsdp_size: 2, seed: 3}"], ["critic.fsdp_config.fsdp_size=2"]),
        (["critic.model.fsdp_config={}"], ["critic.fsdp_config={}"]),
        (["critic.model.lora.rank=8"], ["critic.model.lora_rank=8"]),
        (["trainer.v1.trainer_mode=sync", "trainer.v1.sampler.max_off_policy_threshold=8"], []),
        (["actor_rollout_ref.rollout.name=sglang_async"], ["actor_rollout_ref.rollout.name=sglang"]),
        (
            ["actor_rollout_ref.rollout.expert_parallel_size=8"],
            ["++actor_rollout_ref.rollout.engine_kwargs.vllm.enable_expert_parallel=True"],
        ),
        (["actor_rollout_ref.rollout.expert_parallel_size=1"], []),
        (["actor_rollout_ref.rollout.prompt_length=512"], []),
        (["algorithm.filter_groups.metric=acc"], ["algorithm.filter_groups.metric=acc"]),
        (["algorithm.filter_groups.metric=seq_reward"], ["algorithm.filter_groups.metric=reward"]),
        (["data.gen_batch_size=1024"], []),
        (
            ["data.gen_batch_size=96", "algorithm.filter_groups.enable=True"],
            ["data.gen_batch_size=96", "algorithm.filter_groups.enable=True"],
        ),
        (
            ["algorithm.rollout_correction.rollout_rs=seq_mean_k1", "algorithm.rollout_correction.rollout_rs_threshold=0.5_2.0"],
            ["algorithm.rollout_correction.rollout_rs=geometric", "algorithm.rollout_correction.rollout_rs_threshold=2.0",
             "algorithm.rollout_correction.rollout_rs_threshold_lower=0.5"],
        ),
        (
            ["algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=0.5_5.0"],
            ["algorithm.rollout_correction.rollout_is_threshold=5.0", "algorithm.rollout_correction.rollout_is_threshold_lower=0.5",
             "algorithm.rollout_correction.rollout_is_outside=zero", "algorithm.rollout_correction.rollout_is=token"],
        ),
        (
            ["algorithm.rollout_correction.rollout_rs=null", "algorithm.rollout_correction.rollout_rs_threshold=null"],
            ["algorithm.rollout_correction.rollout_rs=null"],
        ),
        (
            ["algorithm.rollout_correction.bypass_mode=True", "algorithm.rollout_correction.loss_type=ppo_clip"],
            ["algorithm.rollout_correction.bypass_mode=True"],
        ),
        (
            ["actor_rollout_ref.actor.tis_imp_ratio_cap=2"],
            ["algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=2"],
        ),
        (["trainer.max_critic_ckpt_to_keep=1", "trainer.max_actor_ckpt_to_keep=1"], ["trainer.max_actor_ckpt_to_keep=1"]),
        (
            ["+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32"],
            ["actor_rollout_ref.actor.fsdp_config.reduce_dtype=fp32"],
        ),
        (["actor_rollout_ref.actor.optim.clip_grad=0.5"], ["actor_rollout_ref.actor.grad_clip=0.5"]),
        (["reward.custom_reward_function.path=a.py"], ["++custom_reward_function.path=a.py"]),
        (["ray_init.num_cpus=8"], ["++ray_kwargs.ray_init.num_cpus=8"]),
        (
            ["+actor_rollout_ref.model.override_config.model_config.max_position_embeddings=32768"],
            ["++actor_rollout_ref.model.override_config.max_position_embeddings=32768"],
        ),
        (["actor_rollout_ref.rollout.name=trtllm"], ["actor_rollout_ref.rollout.name=vllm"]),
        (["+actor_rollout_ref.rollout.engine_kwargs.trtllm.batch_wait_timeout_iters=32"], []),
        (["trainer.device=cuda"], ["trainer.device=cuda"]),
        (  # 8 x 1 processes for a layer's experts; here the 4 of a copy, twice
            [
                "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
                "actor_rollout_ref.actor.megatron.expert_model_parallel_size=8",
                "+actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1",
            ],
            [
                "actor_rollout_ref.actor.megatron.expert_model_parallel_size=2",
                "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
            ],
        ),
        (
            ["critic.megatron.expert_model_parallel_size=8"],
            ["critic.megatron.expert_model_parallel_size=8"],
        ),
        (["model_engine=veomni", "actor_rollout_ref.ref.strategy=veomni"], []),
        (
            [
                "actor_rollout_ref.actor.veomni.param_offload=True", "actor_rollout_ref.ref.veomni.param_offload=True",
                "actor_rollout_ref.actor.veomni.expert_parallel_size=2", "actor_rollout_ref.actor.veomni.moe_implementation=fused",
            ],
            ["actor_rollout_ref.actor.fsdp_config.param_offload=True", "actor_rollout_ref.ref.param_offload=True"],
        ),
        (
            [
                "actor_rollout_ref.actor.megatron.use_dist_checkpointing=True",
                "actor_rollout_ref.actor.megatron.dist_checkpointing_path=/data/Qwen3-235B-A22B_dist_ckpt_mcore",
                "actor_rollout_ref.ref.megatron.use_dist_checkpointing=True",
            ],
            [],
        ),
    ],
)  # fmt: skip
def test_what_is_passed_on(typed: list[str], passed_on: list[str]):
    assert normalise(typed) == passed_on


def test_weights_that_are_read_from_elsewhere_are_named(caplog: pytest.LogCaptureFixture):
    normalise(["actor_rollout_ref.actor.megatron.use_dist_checkpointing=True"])
    (line,) = caplog.messages
    assert "the same weights are read from model.path itself" in line


@pytest.mark.parametrize(
    ("typed", "seen", "advice"),
    [
        (["model_engine=torchtitan"], "model_engine=torchtitan", "strategy=fsdp2 or megatron"),
        (["trainer.device=npu"], "trainer.device=npu", "GPUs (cuda) and on CPUs (cpu)"),
        (["actor_rollout_ref.actor.veomni.router_replay.mode=R2"], "veomni.router_replay", "strategy=fsdp2, fsdp or megatron"),
        (["data.gen_batch_size=1536"], "data.gen_batch_size=1536", "a step samples data.train_batch_size=1024 prompts"),
        (["actor_rollout_ref.rollout.prompt_length=99"], "prompt_length=99", "data.max_prompt_length is 512"),
        (["actor_rollout_ref.rollout.multi_turn.enable=True"], "multi_turn.enable=True", "single turns without tools"),
        (["data.image_key=images"], "data.image_key=images", "are text"),
        (["trainer.max_critic_ckpt_to_keep=2"], "max_critic_ckpt_to_keep=2", "use trainer.max_actor_ckpt_to_keep"),
        (["algorithm.rollout_correction.rollout_is_threshold=0.5_x"], "0.5_x", "lower_upper such as 0.5_5.0"),
        (["algorithm.rollout_correction.rollout_rs='token_k1,seq_max_k2'"], "token_k1,seq_max_k2", "use token (token_k1)"),
        (
            ["algorithm.rollout_correction.bypass_mode=True", "algorithm.rollout_correction.loss_type=reinforce"],
            "loss_type=reinforce",
            "the clipped one (ppo_clip)",
        ),
        (
            ["algorithm.filter_groups.metric=seq_final_reward", "algorithm.use_kl_in_reward=True"],
            "metric=seq_final_reward",
            "use algorithm.filter_groups.metric=reward",
        ),
        (["actor@actor_rollout_ref.actor=mine"], "actor@actor_rollout_ref.actor=mine", "give the keys that the group sets"),
        (["actor_rollout_ref.actor.use_torch_compile=True,False"], "use_torch_compile=True,False", "need a key of rmrl"),
        (
            [
                "actor_rollout_ref.actor.megatron.use_dist_checkpointing=True",
                "actor_rollout_ref.actor.megatron.dist_checkpointing_path=runs/global_step_90/actor/dist_ckpt",
            ],
            "use_dist_checkpointing=True: runs/global_step_90/actor/dist_ckpt was saved by a run",
            "give that as model.path",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_what_to_use(typed: list[str], seen: str, advice: str):
    (problem,) = problems_of(*typed)
    assert seen in problem
    assert advice in problem


def test_a_value_that_is_no_number_is_a_sentence() -> None:
    (problem,) = problems_of("actor_rollout_ref.actor.optim.min_lr=low")
    assert problem.startswith("actor_rollout_ref.actor.optim.min_lr=low: it cannot be converted (")
    assert problem.endswith("); give a number, as verl has it")


def test_the_advice_is_never_a_key_that_means_something_else():
    """gen_batch_size is not a misspelt train_batch_size."""
    (problem,) = problems_of("data.gen_batch_size=64")
    assert "did you mean" not in problem


SIZES = [
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2",
    "actor_rollout_ref.actor.strategy=megatron",
]


def test_the_references_layout_is_the_actors_or_refused():
    layout = "actor_rollout_ref.ref.megatron"
    equal = [f"{layout}.tensor_model_parallel_size=2", f"{layout}.pipeline_model_parallel_size=1"]
    assert normalise([*equal, *SIZES]) == SIZES
    (problem,) = problems_of("actor_rollout_ref.ref.megatron.tensor_model_parallel_size=4", *SIZES)
    assert problem.startswith(
        "actor_rollout_ref.ref.megatron.tensor_model_parallel_size=4: the reference has the actor's"
        " layout"
    )
    assert "tensor_model_parallel_size is 2" in problem
    assert (
        normalise(["actor_rollout_ref.ref.strategy=fsdp"]) == []
    )  # fsdp and fsdp2 give the same numbers
    assert normalise(["actor_rollout_ref.ref.fsdp_config.model_dtype=fp32"]) == []
    assert problems_of("actor_rollout_ref.ref.fsdp_config.model_dtype=bf16")


def test_keys_without_effect_are_one_line_per_reason(caplog: pytest.LogCaptureFixture):
    typed = ["actor_rollout_ref.actor.use_torch_compile=False", "actor_rollout_ref.model.use_fused_kernels=True",
             "global_profiler.tool=nsys", "actor_rollout_ref.rollout.mode=async"]  # fmt: skip
    assert normalise(typed) == []
    lines = caplog.messages
    assert len(lines) == 2
    assert lines[0].startswith(
        "no effect here: actor_rollout_ref.actor.use_torch_compile,"
        " actor_rollout_ref.model.use_fused_kernels ("
    )
    assert lines[1].startswith("no effect here: global_profiler.tool (")


def test_scoring_keeps_its_own_keys():
    assert normalise(["data.response_key=answers", "data.batch_size=8"], ScoreConfig) == [
        "data.response_key=answers",
        "data.batch_size=8",
    ]
    (problem,) = problems_of("data.response_key=answers")
    assert "use rmrl score" in problem


@pytest.mark.parametrize(
    "value",
    [
        "plain/path-1.5",
        "it's",
        "a b",
        "null",
        "3",
        "tail\\",
        "quote\\'",
        "${data.seed}",
        ["x", None, 1.5, True],
        {"a": {"b": 1}},
        "",
    ],
)
def test_a_value_written_as_an_override_is_read_back(value: Any):
    given, problems = parse([f"a.b={hydra_text(value)}"])
    assert problems == []
    assert given[0].value == value


def test_entries_of_a_mapping_are_leaves():
    assert list(leaves("a", {"b": {"c": 1}, "d": {}})) == [("a.b.c", 1), ("a.d", {})]


def test_the_last_value_counts_and_what_conversions_make_comes_first():
    typed = ["actor_rollout_ref.actor.strategy=fsdp2", "model_engine=megatron"]
    assert normalise(typed) == [
        "actor_rollout_ref.actor.strategy=megatron",
        "actor_rollout_ref.actor.strategy=fsdp2",
    ]
    applied = apply(parse(["data.gen_batch_size=5", "data.gen_batch_size=1024"])[0])
    assert applied.problems == []


def test_a_stock_line_composes_with_its_meaning():
    config = compose_config(
        [
            "actor_rollout_ref.actor.use_dynamic_bsz=True", "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True",
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True", "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=24000",
            "actor_rollout_ref.rollout.load_format=safetensors", "actor_rollout_ref.rollout.layered_summon=True",
            "+actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16",
        ]
    )  # fmt: skip
    assert config.actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu == 24000
    assert config.actor_rollout_ref.actor.fsdp_config.model_dtype == "bfloat16"


@pytest.mark.skipif(not SCRIPTS.is_file(), reason="the overrides of real scripts are not at hand")
def test_of_the_overrides_of_real_scripts_97_in_100_are_accepted():
    measured = measure_overrides(scripts())
    assert measured.fates.total() > 12_000
    assert measured.share >= 0.97, measured.refused
    assert all(
        len(sentence) > len(key) + 10
        for key, sentences in measured.refused.items()
        for sentence in sentences
    )
