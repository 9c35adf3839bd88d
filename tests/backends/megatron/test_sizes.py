"""Sizes: what fits how many processes, in whose order of ranks, and which models can be cut that
way."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.backends.megatron.sizes import Coordinates, Sizes
from rmrl.config.schema import MegatronConfig
from rmrl.errors import ConfigError

HERE = "actor_rollout_ref.actor"
LLAMA = {
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 6,
    "intermediate_size": 96,
}
EXPERTS = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "moe_intermediate_size": 24,
    "intermediate_size": 97,
}


def sizes(world: int, *, tp: int = 1, pp: int = 1, cp: int = 1, **entries: object) -> Sizes:
    lengths = {
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "context_parallel_size": cp,
    }
    return Sizes.of(MegatronConfig(**lengths, **entries), world, section=HERE)


def test_what_is_left_of_the_processes_is_data_parallel():
    made = sizes(
        24, tp=2, pp=3, cp=2, virtual_pipeline_model_parallel_size=2, expert_model_parallel_size=2
    )
    assert made == Sizes(
        tensor=2, pipeline=3, virtual=2, context=2, expert=2, sequence_parallel=True, data=2
    )
    assert (made.model, made.world) == (12, 24)


def test_settings_that_ask_for_nothing_are_the_same_as_none():
    assert sizes(2, virtual_pipeline_model_parallel_size=1) == sizes(2, sequence_parallel=False)
    assert sizes(2).sequence_parallel is False
    assert sizes(2, tp=2).sequence_parallel is True


@pytest.mark.parametrize(
    ("world", "entries", "sentence"),
    [
        (
            6,
            {"tp": 2, "pp": 2},
            "=2 x pipeline_model_parallel_size=2 x context_parallel_size=1 = 4 does not divide",
        ),
        (
            6,
            {"tp": 4},
            (
                "the 6 training processes; lower them until it does, or train in a multiple of 4"
                " processes"
            ),
        ),
        (
            8,
            {"tp": 2, "expert_model_parallel_size": 6},
            "4 data-parallel processes (8 processes / 2 that share a model); use",
        ),
        (8, {"tp": 2, "expert_model_parallel_size": 6}, "expert_model_parallel_size=2"),
        (
            2,
            {"virtual_pipeline_model_parallel_size": 2},
            "virtual_pipeline_model_parallel_size=2 with pipeline_model_parallel_size=1",
        ),
        (2, {"tp": 0}, f"{HERE}.megatron.tensor_model_parallel_size=0: give at least 1"),
        (
            2,
            {"virtual_pipeline_model_parallel_size": -1},
            "virtual_pipeline_model_parallel_size=-1: give at least 1",
        ),
    ],
)
def test_sizes_that_do_not_fit_the_processes_are_refused_with_the_numbers(
    world: int, entries: dict[str, int], sentence: str
):
    with pytest.raises(ConfigError) as caught:
        sizes(world, **entries)
    assert sentence in str(caught.value)
    assert HERE in str(caught.value)


def test_neighbours_share_tensors_and_far_ranks_are_stages():
    made = sizes(16, tp=2, cp=2, pp=2)
    places = [made.coordinates(rank) for rank in (0, 1, 2, 4, 8, 15)]
    assert [(p.tensor, p.context, p.data, p.pipeline) for p in places] == [
        (0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (1, 1, 1, 1)
    ]  # fmt: skip
    assert [made.rank(made.coordinates(rank)) for rank in range(16)] == list(range(16))
    assert made.rank(Coordinates(tensor=1, context=0, data=0, pipeline=1)) == 9


@pytest.mark.parametrize(
    ("changes", "entries", "sentence"),
    [
        ({}, {"tp": 4, "pp": 2, "cp": 2}, None),
        ({"num_key_value_heads": None}, {"tp": 8}, None),
        (
            {"model_type": "gemma2"},
            {},
            "trains llama, qwen2, qwen3, qwen3_moe, and this model is 'gemma2'",
        ),
        (
            {},
            {"tp": 3, "pp": 2},
            (
                "megatron.tensor_model_parallel_size=3 does not divide the model's"
                " num_attention_heads=8; use"
            ),
        ),
        (
            {},
            {"tp": 8},
            (
                "megatron.tensor_model_parallel_size=8 does not divide the model's"
                " num_key_value_heads=4; use"
            ),
        ),
        ({}, {"tp": 8}, "use tensor_model_parallel_size=4"),
        (
            {"intermediate_size": 98},
            {"tp": 4},
            "does not divide the model's intermediate_size=98; use tensor_model_parallel_size=2",
        ),
        (
            {},
            {"pp": 4},
            (
                "megatron: pipeline_model_parallel_size=4 does not divide the model's"
                " num_hidden_layers=6; use sizes"
            ),
        ),
        (
            {},
            {"pp": 2, "virtual_pipeline_model_parallel_size": 2},
            "x virtual_pipeline_model_parallel_size=2 = 4 stages does not divide",
        ),
        ({}, {"pp": 3, "virtual_pipeline_model_parallel_size": 2}, None),
        (
            {},
            {"expert_model_parallel_size": 2},
            "expert_model_parallel_size=2: the model has no experts",
        ),
        (
            EXPERTS,
            {"tp": 4, "expert_model_parallel_size": 3},
            None,
        ),  # intermediate_size=97 is not what the experts have
        (
            EXPERTS,
            {"expert_model_parallel_size": 4},
            "expert_model_parallel_size=4 does not divide the model's num_experts=6",
        ),
        (
            {**EXPERTS, "num_experts": None, "num_local_experts": 6},
            {"expert_model_parallel_size": 3},
            None,
        ),
        (
            {**EXPERTS, "moe_intermediate_size": 25},
            {"tp": 2},
            "does not divide the model's moe_intermediate_size=25",
        ),
        (
            EXPERTS,
            {"tp": 2, "sequence_parallel": False},
            "experts under tensor parallelism with sequence parallelism only",
        ),
    ],
)
def test_what_of_a_model_cannot_be_cut(
    changes: dict[str, Any], entries: dict[str, int], sentence: str | None
):
    model = {**LLAMA, **changes}
    problems = sizes(48, **entries).problems(model, section=HERE)
    assert all(problem.startswith(HERE) for problem in problems)
    assert (
        (problems == []) if sentence is None else any(sentence in problem for problem in problems)
    )


def test_a_critic_is_told_of_its_own_keys():
    problems = Sizes.of(
        MegatronConfig(tensor_model_parallel_size=16), 16, section="critic"
    ).problems(LLAMA, section="critic")
    assert [problem.split("=")[0] for problem in problems] == [
        "critic.megatron.tensor_model_parallel_size"
    ] * 2  # heads, kv heads
