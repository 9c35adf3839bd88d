"""AdamW through megatron-core, with the distributed optimizer or a plain one, and with the same
numbers as torch's AdamW under FSDP.

Megatron picks the implementation: TransformerEngine's or apex's fused one where installed, else
torch's. All three decouple the weight decay and put epsilon outside the root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from rmrl.backends.base import TrainSettings
from rmrl.backends.megatron.core import OptimizerConfig, get_megatron_optimizer
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.model import MegatronModel


class Optimizer:
    """AdamW over a model's parameters. Every method is called in all processes together, except
    where its docstring differs."""

    def __init__(self, inner: Any, model: MegatronModel) -> None:
        """`inner`: a megatron.core.optimizer.MegatronOptimizer over the model's modules."""
        self.inner = inner
        self._modules: list[Any] = model.modules

    @classmethod
    def build(cls, settings: TrainSettings, model: MegatronModel) -> Optimizer:
        """Build the optimizer that the settings name; `model` must be wrapped for training."""
        modules: Any = list(model.modules)
        optim = settings.trained.optim
        first, second = optim.betas
        config = OptimizerConfig(
            optimizer="adam",
            lr=optim.lr,
            weight_decay=optim.weight_decay,
            adam_beta1=first,
            adam_beta2=second,
            adam_eps=optim.eps,
            clip_grad=0.0,  # `step` clips
            bf16=model.config.bf16,
            params_dtype=model.config.params_dtype,
            use_distributed_optimizer=settings.trained.megatron.use_distributed_optimizer,
        )
        with adapted():
            # No overrides: megatron's own would exempt norms and biases from weight decay, which
            # torch's AdamW does not.
            inner = get_megatron_optimizer(config, modules, config_overrides={})
        return cls(inner, model)

    @property
    def parts(self) -> list[Any]:
        """Megatron's optimizers, e.g. one for the experts and one for everything else; needs no
        other process."""
        return list(getattr(self.inner, "chained_optimizers", [self.inner]))

    def step(self, lr: float, max_norm: float) -> float:
        """Make one step at this rate, gradients scaled to a norm at most `max_norm` (0 or less: not
        scaled). Returns the norm before.

        The norm is over the whole model and the same in every process. One that is not finite
        changes nothing. Gradients are zero afterwards.
        """
        with adapted():
            for group in self.inner.param_groups:
                group["lr"] = lr
            self.inner.prepare_grads()
            norm = float(self.inner.get_grad_norm())
            if math.isfinite(norm):
                if max_norm > 0:
                    parameters = list(
                        chain.from_iterable(part.get_parameters() for part in self.parts)
                    )
                    nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.tensor(norm))
                self.inner.step_with_ready_grads()
            self.zero_gradients()
        return norm

    def zero_gradients(self) -> None:
        """Set all gradients to zero; needs no other process."""
        with adapted():
            for module in self._modules:
                module.zero_grad_buffer()
            self.inner.zero_grad()

    def reload(self) -> None:
        """Update the master weights after the parameters were changed, e.g. loaded."""
        with adapted():
            self.inner.reload_model_params()

    def tensors(self) -> Iterator[Tensor]:
        """This process's master weights and averages, on any device; needs no other process."""
        for part in self.parts:
            for parameter in part.get_parameters():
                yield parameter.data
            if part.optimizer is None:
                continue
            for state in part.optimizer.state.values():
                yield from filter(torch.is_tensor, state.values())
