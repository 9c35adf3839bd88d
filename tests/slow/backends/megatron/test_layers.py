"""TransformerEngine's layers in real groups of processes, with fakes in the place of its
modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rmrl.backends.base import ProcessSettings
from tests.backends.megatron.tiny import write_tiny
from tests.backends.policies import run_group
from tests.slow.backends.megatron.test_weights import compare, loaded, with_outputs

TP2 = {"tensor_model_parallel_size": 2}
EP2 = {"expert_model_parallel_size": 2}


def fake_parts() -> Any:
    """What `fused_parts` returns where the library is used."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear

    from rmrl.backends.megatron.layers import FusedParts, RMSNorm

    class FakeLayerNormColumnParallelLinear(ColumnParallelLinear):
        def __init__(self, input_size: int, output_size: int, **options: Any) -> None:
            super().__init__(input_size, output_size, **options)
            config = options["config"]
            inside = RMSNorm(config, input_size, eps=config.layernorm_epsilon)
            self.layer_norm_weight = inside.weight
            self._norm = [inside]  # in a list: no submodule, whose name would be another one

        def forward(self, input_: Any, *arguments: Any, **options: Any) -> Any:
            return super().forward(self._norm[0](input_), *arguments, **options)

        def sharded_state_dict(
            self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None
        ) -> Any:
            from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

            return make_sharded_tensors_for_checkpoint(
                self.state_dict(prefix="", keep_vars=True), prefix, {"weight": 0, "bias": 0},
                sharded_offsets, tp_group=self.tp_group, dp_cp_group=metadata["dp_cp_group"],
            )  # fmt: skip

    class FakeGroupedLinear(torch.nn.Module):
        """A matrix for each expert, as parameters weight0, weight1, ..., cut over the experts' tensor
        ranks along `cut`."""

        cut: int

        def __init__(
            self, num_gemms: int, input_size: int, output_size: int, *, config: Any, pg_collection: Any, **_: Any
        ) -> None:  # fmt: skip
            super().__init__()
            self._count = num_gemms
            size = [output_size, input_size]
            size[self.cut] //= pg_collection.expt_tp.size()
            for number in range(num_gemms):
                weight = torch.nn.Parameter(torch.empty(size, dtype=config.params_dtype))
                weight.allreduce = config.expert_model_parallel_size == 1
                self.register_parameter(f"weight{number}", weight)

        def forward(self, rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, None]:
            parts = [
                part @ self.get_parameter(f"weight{number}").T
                for number, part in enumerate(rows.split(counts))
            ]
            return torch.cat(parts), None

    class FakeColumn(FakeGroupedLinear):
        cut = 0

    class FakeRow(FakeGroupedLinear):
        cut = 1

    return FusedParts(
        norm=RMSNorm,
        norm_and_column=FakeLayerNormColumnParallelLinear,
        row=RowParallelLinear,
        grouped=(FakeColumn, FakeRow),
    )


def with_fused_parts(
    process: ProcessSettings, folders: dict[str, str], sizes: dict[str, Any]
) -> dict[str, Any]:
    """`compare` of test_weights for each model, and the names of its layers' parameters."""
    from rmrl.backends.megatron import model as module
    from rmrl.backends.megatron.checkpoint import _parameters

    module.fused_parts = lambda _: fake_parts()
    found: dict[str, Any] = {}
    for name, folder in folders.items():
        made = loaded(process, folder, sizes, "actor")
        local = [each for each, _ in made.chunks[0].named_parameters()]
        found[name] = {
            **compare(made, folder),
            "fused": sorted(each for each in local if "layer_norm_weight" in each),
            "grouped": [each for each in local if ".experts.linear_fc" in each],
            "alone": [each for each in local if ".local_experts." in each],
            "saved": sorted(each.entry.name for each in _parameters(made).values()),
        }
    return found


@pytest.mark.parametrize(
    ("world_size", "sizes", "experts"),
    [(1, {}, 4), (2, TP2, 4), (2, EP2, 2)],
    ids=["one process", "tp2", "ep2"],
)
def test_fused_layers_are_loaded_published_and_saved_as_the_plain_ones(
    tmp_path: Path, world_size: int, sizes: dict[str, Any], experts: int
) -> None:
    folders: dict[str, str] = {}
    families = ("qwen3_moe",) if sizes == EP2 else ("llama", "qwen2", "qwen3", "qwen3_moe")
    for family in families:
        folder = write_tiny(tmp_path / family, family, tied=family == "llama")
        folders[family] = str(with_outputs(folder, AutoModelForCausalLM))
    found = run_group(with_fused_parts, world_size, tmp_path, folders, sizes)
    for name, result in found.items():
        assert 0 <= result["distance"] <= 1e-5, (name, result["distance"])
        assert result["different"] == 0, name
        # Every layer's norm before attention, and in dense models that before the matrices too.
        assert len(result["fused"]) == (4 if name == "qwen3_moe" else 8), name
        # Two matrices for each expert of this process in each of four layers.
        assert len(result["grouped"]) == (2 * experts * 4 if name == "qwen3_moe" else 0), name
        assert result["alone"] == [], name
        for layer in range(4):
            assert f"decoder.layers.{layer}.input_layernorm.weight" in result["saved"]
            assert f"decoder.layers.{layer}.pre_mlp_layernorm.weight" in result["saved"]
        assert not any("layer_norm_weight" in each for each in result["saved"])
