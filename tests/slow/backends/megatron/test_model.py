"""A model cut into the stages of a pipeline, and its heads in a group of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.groups import join, leave
from rmrl.backends.megatron.heads import ResponseHead, ValueHead
from rmrl.backends.megatron.model import build_model
from tests.backends.megatron.tiny import VOCABULARY, make_settings, write_tiny
from tests.backends.policies import run_group


def describe(process: ProcessSettings, folders: dict[str, str]) -> dict[str, Any]:
    """What lies where with two stages, and with two of them in each process; rank 0's view and the
    last rank's, gathered."""
    facts: dict[str, Any] = {}
    for name, virtual in [("plain", None), ("interleaved", 2)]:
        settings = make_settings(
            Path(folders["tied"]),
            pipeline_model_parallel_size=2,
            virtual_pipeline_model_parallel_size=virtual,
            override_ddp_config={},
        )
        model = build_model(settings, *join(settings, process))
        chunks: list[Any] = model.chunks
        facts[name] = {
            "stages": (model.first_stage, model.last_stage),
            "layers": [[layer.layer_number for layer in chunk.decoder.layers] for chunk in chunks],
            "embedding": [hasattr(chunk, "embedding") for chunk in chunks],
            "head": [hasattr(chunk, "output_layer") for chunk in chunks],
            "marks": (
                [
                    getattr(parameter, "shared_embedding", False)
                    for chunk in chunks
                    for parameter in chunk.parameters()
                ].count(True)
            ),
            "tied_head": list(model.head.weight.shape) if model.last_stage else None,
            "lengths": model.config.variable_seq_lengths,
            "batched": model.config.batch_p2p_comm,
        }
        leave()
    gathered: list[Any] = [None, None]
    torch.distributed.all_gather_object(gathered, facts)
    return {"first": gathered[0], "last": gathered[1]}


def test_stages_of_a_pipeline(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "model")
    facts = run_group(describe, 2, tmp_path, {"tied": str(folder)})
    first, last = facts["first"]["plain"], facts["last"]["plain"]
    assert (first["stages"], last["stages"]) == ([True, False], [False, True])
    assert (first["layers"], last["layers"]) == ([[1, 2]], [[3, 4]])
    assert (first["embedding"], first["head"]) == ([True], [False])
    assert (last["embedding"], last["head"]) == ([False], [True])
    assert (first["marks"], last["marks"]) == (
        1,
        1,
    )  # one copy of the tied matrix in each, whose gradients megatron-core adds up
    assert last["tied_head"] == [VOCABULARY, 64]
    assert (first["lengths"], first["batched"]) == (True, True)
    first, last = facts["first"]["interleaved"], facts["last"]["interleaved"]
    assert (first["layers"], last["layers"]) == ([[1], [3]], [[2], [4]])
    assert (first["embedding"], last["embedding"]) == ([True, False], [False, False])
    assert (first["head"], last["head"]) == ([False, False], [False, True])
    assert (first["lengths"], first["batched"]) == (False, False)


def head_gradients(process: ProcessSettings) -> dict[str, float]:
    """Of both heads, with and without sequence parallelism: the worst difference of the gradients
    from those of one process."""
    worst: dict[str, float] = {}
    torch.manual_seed(0)
    hidden, weight, values = torch.randn(6, 2, 64), torch.randn(10, 64), torch.randn(1, 64)
    factors, value_factors = torch.randn(2, 6, 10), torch.randn(2, 6)
    for split in (False, True):
        sizes, _ = join(
            make_settings(Path("unread"), tensor_model_parallel_size=2, sequence_parallel=split),
            process,
        )
        config: Any = type(
            "Config",
            (),
            {
                "sequence_parallel": sizes.sequence_parallel,
                "hidden_size": 64,
                "params_dtype": torch.float32,
            },
        )
        own, rows = (
            slice(5 * process.rank, 5 * process.rank + 5),
            slice(3 * process.rank, 3 * process.rank + 3) if split else slice(None),
        )
        layer = torch.nn.Module()
        layer.weight = torch.nn.Parameter(weight[own].clone())
        response, value = ResponseHead(layer, config), ValueHead(config, torch.device("cpu"))
        value.weight.data.copy_(values)
        for name, head in [("response", response), ("value", value)]:
            local, whole = hidden[rows].clone().requires_grad_(), hidden.clone().requires_grad_()
            full = (weight if name == "response" else values).clone().requires_grad_()
            with adapted():
                output = head(local)[0].transpose(0, 1)
                if name == "response":
                    loss = torch.nn.functional.linear(output, response.weight) * factors[..., own]
                else:
                    loss = value.values(output) * value_factors
                loss.sum().backward()
            results = whole.transpose(0, 1) @ full.T
            (
                results * factors if name == "response" else results[..., 0] * value_factors
            ).sum().backward()
            weight_grad = full.grad[own] if name == "response" else full.grad
            difference = max(
                (local.grad - whole.grad[rows]).abs().max(),
                (head.weight.grad - weight_grad).abs().max(),
            )
            worst[f"{name} {split}"] = float(difference)
        leave()
    return worst


def test_heads_give_every_process_its_gradient(tmp_path: Path) -> None:
    worst = run_group(head_gradients, 2, tmp_path)
    assert len(worst) == 4
    assert max(worst.values()) < 1e-5, worst
