"""The table of weights by itself: which names, how they lie in a parameter, how shares are cut and
put together again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rmrl.backends.megatron.mapping import (
    Entry,
    entries,
    fill,
    joined,
    named,
    share_shape,
    slice_of,
    split,
)
from rmrl.backends.megatron.shape import Experts, Shape

DENSE = Shape(
    family="", layers=2, hidden=12, ffn=18, heads=12, kv_heads=6, head_dim=2, vocab=7, padded_vocab=12, tied=False, qkv_bias=True,
    qk_norm=True, eps=1e-6, positions=32, rope=(1.0,),
)  # fmt: skip
EXPERTS = Experts(count=3, chosen=2, ffn=6, normalised=True)


def column(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def checkpoint(shape: Shape, role: str = "actor") -> dict[str, torch.Tensor]:
    """Every tensor of the table with numbers of its own."""
    torch.manual_seed(0)
    return {
        name: torch.randn(size)
        for entry in entries(shape, role)
        for name, size in zip(entry.hf, entry.shapes, strict=True)
    }


def share(entry: Entry, tensors: dict[str, torch.Tensor], rank: int, ranks: int) -> torch.Tensor:
    parameter = torch.full(share_shape(entry, ranks), float("nan"))
    fill(
        entry,
        [
            tensors[name][slice_of(entry, number, rank, ranks)]
            for number, name in enumerate(entry.hf)
        ],
        parameter,
    )
    return parameter


def test_each_key_value_head_stands_behind_its_queries() -> None:
    # 4 query heads of 2 rows, 2 key-value heads: queries 0 and 1 read key 0, queries 2 and 3 read
    # key 1.
    entry = Entry("x", "qkv", ("q", "k", "v"), ((8, 1), (4, 1), (4, 1)), head_dim=2)
    tensors = {
        "q": column(0, 1, 2, 3, 4, 5, 6, 7),
        "k": column(10, 11, 12, 13),
        "v": column(20, 21, 22, 23),
    }
    assert share(entry, tensors, 0, 1)[:, 0].tolist() == [
        0,
        1,
        2,
        3,
        10,
        11,
        20,
        21,
        4,
        5,
        6,
        7,
        12,
        13,
        22,
        23,
    ]
    assert share(entry, tensors, 1, 2)[:, 0].tolist() == [4, 5, 6, 7, 12, 13, 22, 23]


def test_biases_lie_as_their_weights() -> None:
    entry = Entry("x", "qkv", ("q", "k", "v"), ((4,), (2,), (2,)), head_dim=1)
    tensors = {
        "q": torch.tensor([0.0, 1, 2, 3]),
        "k": torch.tensor([10.0, 11]),
        "v": torch.tensor([20.0, 21]),
    }
    assert share(entry, tensors, 0, 1).tolist() == [0, 1, 10, 20, 2, 3, 11, 21]
    assert share(entry, tensors, 0, 2).tolist() == [0, 1, 10, 20]


def test_a_share_of_the_mlp_is_a_gate_and_an_up_projection() -> None:
    entry = Entry("x", "gate_up", ("gate", "up"), ((4, 1), (4, 1)))
    tensors = {"gate": column(0, 1, 2, 3), "up": column(10, 11, 12, 13)}
    assert share(entry, tensors, 0, 1)[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert share(entry, tensors, 1, 2)[:, 0].tolist() == [2, 3, 12, 13]


def test_the_vocabulary_is_padded_with_zeros() -> None:
    entry = Entry("x", "vocab", ("embed",), ((5, 1),), padded=9)
    tensors = {"embed": column(1, 2, 3, 4, 5)}
    assert [share(entry, tensors, rank, 3)[:, 0].tolist() for rank in range(3)] == [
        [1, 2, 3],
        [4, 5, 0],
        [0, 0, 0],
    ]
    assert slice_of(entry, 0, 2, 3) == (slice(5, 5), slice(0, 1))


def test_row_parallel_matrices_are_cut_by_columns() -> None:
    entry = Entry("x", "row", ("down",), ((2, 4),))
    tensors = {"down": torch.arange(8.0).reshape(2, 4)}
    assert share(entry, tensors, 1, 2).tolist() == [[2, 3], [6, 7]]


def test_a_tensor_that_does_not_fill_its_parameter_is_refused() -> None:
    entry = Entry("x", "row", ("down",), ((2, 4),))
    with pytest.raises(AssertionError, match="x: "):
        fill(entry, [torch.zeros(1, 4)], torch.zeros(2, 4))


@pytest.mark.parametrize("role", ["actor", "critic"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "shape",
    [
        DENSE,
        replace(DENSE, heads=6, tied=True, qkv_bias=False, qk_norm=False),
        replace(DENSE, experts=EXPERTS),
    ],
    ids=["shared keys", "a key for each head", "experts"],
)
def test_shares_put_together_are_the_checkpoint(shape: Shape, ranks: int, role: str) -> None:
    tensors = checkpoint(shape, role)
    for entry in entries(shape, role):
        shares = [share(entry, tensors, rank, ranks) for rank in range(ranks)]
        assert all(part.isfinite().all() for part in shares)
        for name, whole in zip(entry.hf, joined(entry, shares), strict=True):
            assert whole.is_contiguous()
            assert torch.equal(whole, tensors[name]), name
        if entry.stacked:
            assert torch.equal(
                torch.cat(shares),
                share(replace(entry, padded=ranks * len(shares[0])), tensors, 0, 1),
            )


def test_views_write_through() -> None:
    entry = Entry("x", "qkv", ("q", "k", "v"), ((4, 1), (2, 1), (2, 1)), head_dim=1)
    parameter = torch.zeros(8, 1)
    split(entry, parameter)[1].fill_(1)
    assert parameter[:, 0].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]


def test_names_of_a_dense_model() -> None:
    table = list(entries(replace(DENSE, layers=1), "actor"))
    assert [name for entry in table for name in entry.hf] == [
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        *(
            f"model.layers.0.self_attn.{x}_proj.{what}"
            for what in ("weight", "bias")
            for x in "qkv"
        ),
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        *(f"model.layers.0.mlp.{x}_proj.weight" for x in ("gate", "up", "down")),
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert len({entry.name for entry in table}) == len(table)


def test_a_tied_head_is_a_second_holder_of_the_embedding() -> None:
    *_, last = entries(replace(DENSE, tied=True), "actor")
    assert (last.name, last.hf, last.tied) == (
        "output_layer.weight",
        ("model.embed_tokens.weight",),
        True,
    )
    assert not any(
        replace(last, tied=False) == entry for entry in entries(replace(DENSE, tied=False), "actor")
    )


def test_a_critic_ends_in_one_number() -> None:
    *_, last = entries(replace(DENSE, tied=True), "critic")
    assert (last.hf, last.shapes, last.kind, last.tied) == (
        ("score.weight",),
        ((1, 12),),
        "whole",
        False,
    )


def test_every_expert_has_an_entry() -> None:
    table = {entry.name: entry for entry in entries(replace(DENSE, experts=EXPERTS), "actor")}
    assert table["decoder.layers.1.mlp.router.weight"].hf == ("model.layers.1.mlp.gate.weight",)
    second = table["decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight"]
    assert second.hf == (
        "model.layers.1.mlp.experts.2.gate_proj.weight",
        "model.layers.1.mlp.experts.2.up_proj.weight",
    )
    assert (second.expert, second.shapes) == (2, ((6, 12), (6, 12)))
    assert "decoder.layers.1.mlp.linear_fc1.weight" not in table


def test_grouped_matrices_have_the_names_of_single_experts() -> None:
    experts = torch.nn.Module()
    for name in ("linear_fc1", "linear_fc2"):
        matrices = torch.nn.Module()
        for number in range(2):
            matrices.register_parameter(f"weight{number}", torch.nn.Parameter(torch.ones(1)))
        setattr(experts, name, matrices)
    layer = torch.nn.Module()
    layer.layer_number = 1
    layer.mlp = torch.nn.Module()
    layer.mlp.experts = experts
    chunk = torch.nn.Module()
    chunk.decoder = torch.nn.Module()
    chunk.decoder.layers = torch.nn.ModuleList([layer])
    prefix = "decoder.layers.0.mlp.experts.local_experts."
    assert [name.removeprefix(prefix) for name, _ in named([chunk], first_expert=6)] == [
        "6.linear_fc1.weight", "7.linear_fc1.weight", "6.linear_fc2.weight", "7.linear_fc2.weight",
    ]  # fmt: skip


def test_parameters_are_named_over_all_stages_and_ranks() -> None:
    def layer(number: int) -> torch.nn.Module:
        module = torch.nn.Module()
        module.layer_number = number
        module.mlp = torch.nn.Module()
        module.mlp.local_experts = torch.nn.ModuleList(
            [torch.nn.Linear(1, 1, bias=False) for _ in range(2)]
        )
        return module

    chunk = torch.nn.Module()
    chunk.decoder = torch.nn.Module()
    chunk.decoder.layers = torch.nn.ModuleList([layer(11), layer(12)])  # counted from 1
    assert [name for name, _ in named([chunk], first_expert=4)] == [
        f"decoder.layers.{layer}.mlp.local_experts.{expert}.weight"
        for layer in (10, 11)
        for expert in (4, 5)
    ]
