"""Fused experts under the names of checkpoint files."""

from __future__ import annotations

import torch

from rmrl.models.experts import one_by_one


def test_views_of_each_expert():
    gate_up = torch.arange(2 * 4 * 3).reshape(
        2, 4, 3
    )  # 2 experts of width 2, hidden 3: rows 0, 1 gate, rows 2, 3 up projection
    views = one_by_one("model.layers.5.mlp.experts.gate_up_proj", gate_up)
    assert [name.removeprefix("model.layers.5.mlp.experts.") for name in views] == [
        "0.gate_proj.weight", "0.up_proj.weight", "1.gate_proj.weight", "1.up_proj.weight",
    ]  # fmt: skip
    assert views["model.layers.5.mlp.experts.1.up_proj.weight"].tolist() == [
        [18, 19, 20],
        [21, 22, 23],
    ]
    views["model.layers.5.mlp.experts.0.gate_proj.weight"].zero_()
    assert gate_up[0, :2].sum() == 0
    (down,) = one_by_one("m.experts.down_proj", torch.ones(1, 3, 2)).items()
    assert down[0] == "m.experts.0.down_proj.weight"
    assert down[1].shape == (3, 2)


def test_other_parameters_are_none():
    assert one_by_one("model.layers.0.mlp.down_proj.weight", torch.ones(3, 2)) == {}
    assert one_by_one("model.layers.0.mlp.gate_up_proj", torch.ones(1, 3, 2)) == {}
