"""A Megatron model's parts that leave the device between training phases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from torch import Tensor

from rmrl.backends.offload import Offloader, storages
from rmrl.config.schema import MegatronConfig

if TYPE_CHECKING:
    from rmrl.backends.megatron.model import MegatronModel
    from rmrl.backends.megatron.optimizer import Optimizer


def offloaders(model: MegatronModel, megatron: MegatronConfig) -> list[Offloader]:
    """The model's offloaders that the settings enable: parameters, and gradients (not kept, between
    phases they are zero)."""
    enabled: list[Offloader] = []
    if megatron.param_offload:
        enabled.append(Offloader(lambda: parameters(model), model.device))
    if megatron.grad_offload:
        enabled.append(Offloader(lambda: gradients(model), model.device, keep=False))
    return enabled


def optimizer_offloader(model: MegatronModel, optimizer: Optimizer) -> Offloader:
    """The optimizer tensors' offloader. The parameters and gradients must be on the device when it
    moves, for some optimizer tensors lie in their storages."""

    def own_tensors() -> Iterator[Tensor]:
        # In float32 the distributed optimizer updates the parameters themselves: those are not its
        # own.
        others = storages([*parameters(model), *gradients(model)], model.device)
        addresses = {storage.data_ptr() for storage in others}
        for tensor in optimizer.tensors():
            if tensor.untyped_storage().data_ptr() not in addresses:
                yield tensor

    return Offloader(own_tensors, model.device)


def parameters(model: MegatronModel) -> list[Tensor]:
    """All parameters in this process's stages."""
    of_modules = chain.from_iterable(module.parameters() for module in model.modules)
    return [parameter.data for parameter in of_modules]


def gradients(model: MegatronModel) -> list[Tensor]:
    """Buffers in which gradients are accumulated; none for a model that does not train."""
    tensors: list[Tensor] = []
    for module in model.modules:
        for parameter in module.parameters():
            gradient = getattr(parameter, "main_grad", None)
            if gradient is not None:
                tensors.append(gradient)
    return tensors
