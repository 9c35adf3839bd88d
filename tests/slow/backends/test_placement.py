"""Where tensors lie in a step on a GPU, without one: forward pass, loss and backward pass with
FakeTensors on a device that torch's backends in Python make up. They have no numbers, so operations
with tensors on two devices are refused, and so is every read."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.backends.policies import (
    make_batch,
    make_critic_batch,
    make_critic_settings,
    make_settings,
    write_policy,
)

GPU = "fakegpu"
CASES = ("padded", "packed", "critic")


def make_up_device() -> None:
    """For a process with nothing else: torch has one such device."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    module = ModuleType(GPU)
    module.__dict__.update(
        is_available=lambda: True, is_initialized=lambda: True, _lazy_init=lambda: None,
        _is_in_bad_fork=lambda: False, manual_seed_all=lambda _: None, current_device=lambda: 0,
        device_count=lambda: 1,
    )  # fmt: skip
    _setup_privateuseone_for_python_backend(GPU, module)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """In place of the copy through page-locked memory."""
    return torch.empty(array.shape, dtype=torch.from_numpy(array[:0].copy()).dtype, device=device)


def on_gpu(model: Any) -> Any:
    """A model from device meta, with tensors on the GPU."""
    for module in model.modules():
        for name, tensor in list(module.named_parameters(recurse=False)):
            fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=GPU)
            setattr(module, name, nn.Parameter(fake))
        for name, tensor in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty(tensor.shape, dtype=tensor.dtype, device=GPU))
    return model.train()


def step(folder: Path, case: str) -> set[str]:
    """Types of device on which loss, sums and gradients lie."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    from rmrl.backends import objective
    from rmrl.models.logprobs import ResponseModel
    from rmrl.models.token_values import ValueModel

    config = AutoConfig.from_pretrained(folder, num_labels=1)
    kind: Any = AutoModelForSequenceClassification if case == "critic" else AutoModelForCausalLM
    with torch.device("meta"):
        model: Any = kind.from_config(config, dtype=torch.bfloat16)
    fake, device = FakeTensorMode(allow_non_fake_inputs=True), torch.device(GPU)
    with fake, patch.object(objective, "to_device", on_device):
        if case == "critic":
            batch = make_critic_batch(6, seed=1)
            tokens = objective.response_tokens(batch, device)
            trained: Any = ValueModel(on_gpu(model))
            values = trained(tokens.input_ids_BS, tokens.positions_N, tokens.layout)
            settings = make_critic_settings(folder)
            loss, sums = objective.weighted_value_loss(batch, values, settings=settings)
        else:
            batch = make_batch(6, seed=1)
            tokens = objective.response_tokens(batch, device, packed=case == "packed")
            trained = ResponseModel(on_gpu(model), temperature=0.7, slice_elements=1000)
            logprobs, entropy = trained(
                tokens.input_ids_BS, tokens.positions_N, tokens.targets_N, "grad", tokens.layout
            )
            settings = make_settings(folder)
            loss, sums = objective.weighted_loss(batch, logprobs, entropy, settings=settings)
        loss.backward()
        gradients = [each.grad for each in trained.parameters()]
    return {each.device.type for each in (loss, *sums.values(), *gradients)}


def refusals() -> tuple[str, str]:
    """What an operation on two devices and a read raise."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        there = torch.ones(2, device=GPU)
        raised: list[str] = []
        for call in (lambda: there + torch.ones(2), lambda: there.sum().item()):
            try:
                call()
            except Exception as error:
                raised.append(type(error).__name__)
    first, second = raised
    return first, second


def everything(folder: Path) -> tuple[dict[str, set[str]], tuple[str, str]]:
    make_up_device()
    return {case: step(folder, case) for case in CASES}, refusals()


@pytest.fixture(scope="module")
def outcome(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, set[str]], tuple[str, str]]:
    folder = write_policy(tmp_path_factory.mktemp("placement") / "policy")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(everything, folder).result()


@pytest.mark.parametrize("case", CASES)
def test_all_tensors_of_a_step_lie_on_the_device(outcome: Any, case: str) -> None:
    assert outcome[0][case] == {GPU}


def test_what_is_refused(outcome: Any) -> None:
    assert outcome[1] == ("FakeTensorDeviceMismatchError", "DataDependentOutputException")
