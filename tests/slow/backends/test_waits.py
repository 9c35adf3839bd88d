"""Places where the host would wait for a GPU in an update: numbers that are read from tensors. They
are counted on a CPU, on which the same calls read them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rmrl.backends.fsdp.part import FSDPPart
from rmrl.config.schema import FSDPConfig
from tests.backends.policies import (
    engine,
    make_batch,
    make_critic_batch,
    make_critic_settings,
    make_settings,
    write_policy,
)

READS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__")
"""Methods of a tensor that need its numbers."""
SHAPES = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.is_nonzero")
"""Operators whose result the host has to know before it goes on."""


def place() -> str:
    """Return the innermost line of a call that is neither torch's nor this file's."""
    inside = str(Path(torch.__file__).parent)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(inside) and frame.filename != __file__:
            return f"{frame.filename}:{frame.lineno}"
    return ""


class Waits(TorchFunctionMode):
    """Names of the calls in the block that read numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name in READS and args and isinstance(args[0], Tensor):
            self.seen.append(f"{name} {place()}")
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """The same for operators, also those that torch itself calls."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(function).rpartition(".")[0]
        masks = name == "aten.index" and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in SHAPES or masks:
            self.seen.append(f"{name} {place()}")
        return function(*args, **(kwargs or {}))


@contextmanager
def waits() -> Iterator[list[str]]:
    mode = Waits()
    with mode, Operators(mode.seen):
        yield mode.seen


def test_what_is_counted() -> None:
    numbers = torch.arange(3.0)
    for read in (
        lambda: numbers[0].item(),
        lambda: numbers.tolist(),
        lambda: bool(numbers[0]),
        lambda: float(numbers[1]),
        lambda: numbers.cpu(),
        lambda: numbers[numbers > 1],
        lambda: torch.nonzero(numbers),
    ):
        with waits() as waited:
            read()
        assert waited
    with waits() as waited:
        torch.where(numbers > 1, numbers, 0.0).softmax(0)
    assert waited == []


@pytest.mark.parametrize("role", ["actor", "critic"])
@pytest.mark.parametrize("param_dtype", ["bfloat16", None], ids=["sharded", "plain"])
def test_the_host_waits_once_in_a_mini_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, param_dtype: str | None
) -> None:
    """In no layer and no micro-batch: for the norm of the gradients alone."""
    of_micros: list[str] = []
    of_steps: list[int] = []
    train, step = FSDPPart.train, FSDPPart.step

    def trained(self: FSDPPart, micros: Any, loss: Any) -> None:
        assert len(micros) > 1
        with waits() as waited:
            train(self, micros, loss)
        of_micros.extend(waited)

    def stepped(self: FSDPPart, lr: float) -> float:
        with waits() as waited:
            norm = step(self, lr)
        of_steps.append(sum(name.startswith("item ") for name in waited))
        return norm

    monkeypatch.setattr(FSDPPart, "train", trained)
    monkeypatch.setattr(FSDPPart, "step", stepped)
    policy = write_policy(tmp_path / "policy")
    options: dict[str, Any] = {
        "fsdp_config": FSDPConfig(param_dtype=param_dtype),
        "ppo_max_token_len_per_gpu": 60,
    }
    model = {"share_prompts": False}
    if role == "critic":
        built = engine(make_critic_settings(policy, model=model, **options))
        batches = [make_critic_batch(8, seed=seed) for seed in range(2)]
    else:
        fsdp = options.pop("fsdp_config")
        built = engine(make_settings(policy, fsdp=fsdp, model=model, **options))
        batches = [make_batch(8, seed=seed) for seed in range(2)]
    try:
        built.update(batches)
    finally:
        built.close()
    assert of_micros == []
    assert of_steps == [1, 1]
