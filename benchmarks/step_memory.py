"""Device memory of one training step at the shapes of a 7B, as torch's memory tracker counts it
on tensors without storage, beside what the memory plan expects. No GPU, and no memory to speak of.

    python -m benchmarks.step_memory --out benchmarks/results/step_memory.json

The real part of the training engine (rmrl.backends.fsdp.part) builds the model, sharded over a fake
group of 8 processes, and trains on two micro-batches: the second one has the gradients of the first
beside it. The tracker does not know what CUDA and NCCL hold, nor fragmentation, and has not been compared with
a GPU yet.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM

from rmrl.backends import objective
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp import build, compat, initial, part
from rmrl.backends.fsdp.offload import averages
from rmrl.backends.objective import weighted_loss
from rmrl.backends.process_group import leave_group, neighbours
from rmrl.config.schema import ActorConfig, FSDPConfig, ModelConfig
from rmrl.models import logprobs, varlen
from rmrl.models.loading import build_unloaded, load_config
from rmrl.models.slice_sizes import LARGEST_SLICE_ELEMENTS
from rmrl.trainer.train_memory import activation_bytes, state
from rmrl.types import Ragged, TrainBatch

WORLD = 8
ROWS = 8
_DEVICE = torch.device("cpu")
SHAPE_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
"""Qwen2.5-7B, from its config.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Settings of one step."""

    layers: int = 28
    tokens: int = 16384
    checkpointing: bool = True
    every: int = 1
    """Of so many layers one recomputes, with checkpointing."""
    lora_rank: int = 0
    sharing: int = 1
    """Processes that share the rows."""

    @property
    def name(self) -> str:
        shared = f", {self.sharing} share the rows" if self.sharing > 1 else ""
        layers = f"in 1 of {self.every} layers" if self.every > 1 else "on"
        return (
            f"{self.layers} layers, {self.tokens} tokens, checkpointing"
            f" {layers if self.checkpointing else 'off'}, LoRA {self.lora_rank or 'off'}{shared}"
        )


CASES = (
    Case(),
    Case(checkpointing=False),
    Case(every=2),
    Case(lora_rank=16),
    Case(tokens=8192),
    Case(layers=14),
    Case(tokens=65536, sharing=4),
)


def main() -> None:
    """Measure the cases, print a line for each and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    result: dict[str, dict[str, float]] = {}
    for case in CASES:
        started = time.monotonic()
        result[case.name] = measured(case)
        print(case.name, result[case.name], f"({time.monotonic() - started:.0f} s)")
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def checkpoint_7b(folder: Path, *, layers: int = 28) -> Path:
    """Write a checkpoint of a 7B's shapes: headers are all that it has, its numbers are a hole in
    the file."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = SHAPE_7B | {"num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    model = ModelConfig(path=str(folder))
    with torch.device("meta"):
        built = _unloaded(model, torch.bfloat16)
    headers: dict[str, Any] = {}
    end = 0
    for name, parameter in built.named_parameters():
        start, end = end, end + 2 * parameter.numel()
        headers[name] = {
            "dtype": "BF16",
            "shape": list(parameter.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(headers).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder


def measured(case: Case) -> dict[str, float]:
    """Return GiB of one process: tracked (state, and the most beside it in the second micro-batch)
    and planned, and planned / tracked of all together."""
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint_7b(Path(folder), layers=case.layers)
        model = ModelConfig(
            path=str(path),
            enable_gradient_checkpointing=case.checkpointing,
            gradient_checkpointing_every=case.every,
            lora_rank=case.lora_rank,
            share_prompts=False,
        )
        fsdp = FSDPConfig(ulysses_sequence_parallel_size=case.sharing)
        settings = TrainSettings(model=model, actor=ActorConfig(fsdp_config=fsdp))
        held, beside = _tracked(settings, case.tokens)
        planned_held = state(model, settings.trained, WORLD).total // WORLD
        planned_beside = activation_bytes(
            model,
            settings.trained,
            WORLD,
            tokens=case.tokens,
            slice_elements=LARGEST_SLICE_ELEMENTS,
        )
    numbers = {
        "state": held / 2**30,
        "beside": beside / 2**30,
        "planned_state": planned_held / 2**30,
        "planned_beside": planned_beside / 2**30,
        "planned_to_tracked": (planned_held + planned_beside) / (held + beside),
    }
    return {name: round(value, 3) for name, value in numbers.items()}


def _tracked(settings: TrainSettings, tokens: int) -> tuple[int, int]:
    """Return the bytes of weights, gradients and optimizer state, and the most beside them."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    try:
        # outside of the mode: the mesh's ranks are numbers, and peft changes tensors in place
        mesh = compat.device_mesh("cpu", -1)
        sharing = settings.trained.fsdp_config.ulysses_sequence_parallel_size
        neighbours(sharing, ProcessSettings().timeout_s)
        dtypes = (torch.float32, torch.bfloat16)
        with torch.device("meta"):
            ready = {
                dtype: [build._unsharded(settings, dtype) for _ in range(2)]  # pyright: ignore[reportPrivateUsage]
                for dtype in dtypes
            }
        with (
            _in_place_of_a_cluster(mesh, ready),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            return _step(settings, tokens)
    finally:
        leave_group()


def _in_place_of_a_cluster(mesh: Any, ready: Mapping[torch.dtype, list[Any]]) -> ExitStack:
    """Replace what needs other processes, a checkpoint's numbers, or the value of a number."""
    stack = ExitStack()
    for place, name, value in (
        (part.process_group, "join_group", lambda *_: _DEVICE),
        (compat, "device_mesh", lambda *_: mesh),
        (initial, "share", lambda value: value),
        (initial, "_broadcast", _empty),
        (initial.InitialWeights, "adopt", lambda *_: None),
        (build, "_unsharded", lambda _, dtype: ready[dtype].pop()),
        (build, "all_max", lambda value: value),
        (build.ResponseModel, "check_head", lambda _: None),
        (build, "keeps_rows_apart", lambda _: True),
        (build, "check_only_attention_mixes", lambda _: None),
        (varlen, "attend", partial(_attend_alike, varlen.attend)),
        (logprobs, "slice_elements", lambda _: LARGEST_SLICE_ELEMENTS),
        (objective, "to_device", _as_empty),
        (compat, "clip_gradients", lambda *_: 1.0),
    ):
        stack.enter_context(patch.object(place, name, value))
    return stack


def _attend_alike(attend: Callable[..., Tensor], *qkv_Tnd: Tensor, **options: Any) -> Tensor:
    """Attend in packed rows of one length, which is not read from the boundaries."""
    return attend(*qkv_Tnd, lengths=[len(qkv_Tnd[0]) // ROWS] * ROWS, **options)


def _unloaded(model: ModelConfig, dtype: torch.dtype) -> Any:
    return build_unloaded(AutoModelForCausalLM, model, config=load_config(model), dtype=dtype)


def _empty(
    source: Tensor | None,  # noqa: ARG001
    dtype: torch.dtype,
    shape: tuple[int, ...],
    device: torch.device,
) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def _as_empty(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.empty(array.shape, dtype=torch.from_numpy(array[:0]).dtype, device=device)


def _step(settings: TrainSettings, tokens: int) -> tuple[int, int]:
    model = part.FSDPPart(settings, ProcessSettings(rank=0, world_size=WORLD))
    batch = _rows(tokens)

    def loss(micro: TrainBatch, outputs_N: Tensor, entropy_N: Tensor | None) -> Tensor:
        return weighted_loss(micro, outputs_N, entropy_N, settings=settings)[0]

    tracker = FSDPMemTracker(model.model, model._optimizer)  # pyright: ignore[reportPrivateUsage]
    with tracker:
        model.train([batch], loss)
        before = _counted(tracker, "current")
        tracker.reset_mod_stats()
        model.train([batch], loss)
        peak = _counted(tracker, "peak")
        model.step(1e-6)
    assert model._optimizer is not None  # pyright: ignore[reportPrivateUsage]
    moments = averages(model._optimizer)  # pyright: ignore[reportPrivateUsage]
    weights = sum(_bytes(model.model))
    gradients = sum(_bytes(model.model, trained=True))
    return weights + gradients + sum(tensor.nbytes for tensor in moments), peak - before


def _counted(tracker: FSDPMemTracker, which: str) -> int:
    return int(tracker.get_tracker_snapshot(which)[_DEVICE]["Total"])


def _bytes(model: nn.Module, *, trained: bool = False) -> Iterator[int]:
    """Yield the bytes of this process's part of each parameter, or of each that trains."""
    for parameter in model.parameters():
        if parameter.requires_grad or not trained:
            assert isinstance(parameter, DTensor)
            yield parameter.to_local().nbytes


def _rows(tokens: int) -> TrainBatch:
    """Rows of equal length, seven parts in eight of them responses."""
    size = tokens // ROWS
    response = math.floor(size * 7 / 8)

    def stream(value: float, length: int, dtype: Any = np.float32) -> Ragged:
        return Ragged.of([np.full(length, value)] * ROWS, dtype)

    return TrainBatch(
        tokens=stream(1, size, np.int64),
        response_mask=stream(1, response),
        advantages=stream(0.5, response),
        rollout_logprobs=stream(-1, response),
    )


if __name__ == "__main__":
    main()
