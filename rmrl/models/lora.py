"""LoRA through peft: adapters that train while the weights stay, and the merged weights that every
other part of the program reads.

    W' = W + (alpha / r) B A

arXiv:2106.09685, eq. 3; B starts at zero, so training starts at W. Adapters are injected into the
model in place: it stays the Hugging Face model it was, with its class, config and decoder.

Shapes: r rank    I inputs    O outputs of a linear layer
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.models.token_values import HEAD

_BASE = ".base_layer."
_DOWN = ".lora_A.default."
_UP = ".lora_B.default."
"""Parts of peft's names: a layer's own parameters, A and B."""


def add_adapters(
    language_model: PreTrainedModel, model: ModelConfig, *, seed: int = 1
) -> PreTrainedModel:
    """Freeze the weights and put float32 adapters beside the decoder's linear layers. A critic's
    head goes on training.

    Call it before sharding. A is drawn from `seed` alone, so that all processes draw the same.
    Returns `language_model`. Raises ConfigError where peft is not installed or `target_modules`
    names no linear layer of the decoder.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"model.lora_rank={model.lora_rank} needs peft, which is not installed: pip install"
            ' "rmrl-toolkit[lora]", or set lora_rank=0'
        ) from error
    names = target_modules(language_model, model.target_modules)
    language_model.requires_grad_(False)
    inject_adapter_in_model(
        LoraConfig(
            r=model.lora_rank,
            lora_alpha=model.lora_alpha,
            target_modules=names,
            lora_dropout=0.0,
            bias="none",
        ),
        language_model,
    )
    head = getattr(language_model, HEAD, None)
    if isinstance(head, nn.Linear):
        head.requires_grad_(True)
    for parameter in language_model.parameters():
        if parameter.requires_grad:
            # Trained parameters are float32 master weights, whatever dtype the frozen ones have.
            parameter.data = parameter.data.float()
    reset_adapters(language_model, seed=seed)
    return language_model


def target_modules(language_model: PreTrainedModel, selection: Any) -> list[str]:
    """Names of the linear layers that get adapters. `selection`: all-linear, one name, or names
    (the last part of a module's name).

    Raises ConfigError for a name that no linear layer of the decoder has.
    """
    linear: set[str] = {
        name.rpartition(".")[2]
        for name, module in language_model.base_model.named_modules()
        if isinstance(module, nn.Linear)
    }
    if not linear:
        raise ConfigError(
            f"model.lora_rank: {type(language_model).__name__} has no torch.nn.Linear layer that an"
            " adapter could stand beside; train all weights with lora_rank=0"
        )
    available = sorted(linear)
    if selection == "all-linear":
        return available
    names = [selection] if isinstance(selection, str) else list(map(str, selection))
    if not names or not linear.issuperset(names):
        raise ConfigError(
            f"model.target_modules={selection}: the decoder's linear layers are"
            f" {', '.join(available)}; name some of these, e.g."
            f" target_modules=[{','.join(available[:2])}], or all-linear"
        )
    return names


@torch.no_grad()
def reset_adapters(language_model: nn.Module, *, seed: int) -> None:
    """Draw every A anew (uniform with variance 1 / (3 I), as peft does) and set every B to zero;
    nothing for a model without storage."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in language_model.named_parameters():
        if parameter.is_meta:
            continue
        if _DOWN in name:  # [r, I]
            bound = 1 / math.sqrt(parameter.shape[1])
            drawn_rI = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
            parameter.copy_(drawn_rI)
        elif _UP in name:  # [O, r]
            parameter.zero_()


def is_adapter(name: str) -> bool:
    """True if a parameter of that name is A or B of some layer."""
    return _DOWN in name or _UP in name


def merged_name(name: str) -> str:
    """The Hugging Face name of a base parameter, e.g. model.layers.0.self_attn.q_proj.weight."""
    return name.replace(_BASE, ".")


def own_parameters(
    tensors: Mapping[str, Tensor], *, gather: Callable[[Tensor], Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yield each layer's A and B and the head, under the names that peft gives them in a file. The
    rest is as in `merged_parameters`."""
    for name, tensor in tensors.items():
        if is_adapter(name) or name.startswith(f"{HEAD}."):
            yield f"base_model.model.{name.replace('.default.', '.')}", gather(tensor)


def merged_parameters(
    tensors: Mapping[str, Tensor],
    model: ModelConfig,
    *,
    gather: Callable[[Tensor], Tensor],
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yield whole tensors under the base model's Hugging Face names, with the adapters merged.

    `tensors` are the parameters or their shards by name, adapters included; `gather` makes a whole
    tensor of one. Layers are merged one at a time, in float32, into a new tensor of `dtype` (None:
    the weight's). All processes must iterate together, to the end.
    """
    for name, tensor in tensors.items():
        if is_adapter(name):
            continue
        whole = gather(tensor)
        if dtype is not None and whole.is_floating_point():
            whole = whole.to(dtype)
        down = tensors.get(name.replace(_BASE, _DOWN)) if _BASE in name else None
        if down is None:
            yield merged_name(name), whole
            continue
        down_rI = gather(down)
        up_Or = gather(tensors[name.replace(_BASE, _UP)])
        scaling = model.lora_alpha / model.lora_rank
        merged_OI = torch.addmm(whole.float(), up_Or.float(), down_rI.float(), alpha=scaling)
        if whole.dtype == torch.bfloat16:
            merged_OI = stochastically_rounded(
                merged_OI, seed=zlib.crc32(merged_name(name).encode())
            )
        yield merged_name(name), merged_OI.to(whole.dtype)


def stochastically_rounded(values_OI: Tensor, *, seed: int) -> Tensor:
    """Round float32 values in place to a bfloat16 value beside each, to the nearer one more often,
    so that the mean stays (arXiv:1502.02551, section 3). What bfloat16 holds stays as it is.

    An adapter moves a weight by less than bfloat16 tells apart, and to the nearest value most
    weights would not move at all. One number for a row and one for a column decide together: they
    are the same on every device and in every process.
    """
    generator = torch.Generator().manual_seed(seed)
    row_O, column_I = (
        torch.randint(0, 1 << 16, (size,), generator=generator, dtype=torch.int32)
        for size in values_OI.shape
    )
    threshold_OI = row_O.to(values_OI.device)[:, None] + column_I.to(values_OI.device)
    bits_OI = values_OI.view(torch.int32)
    # The lower half of the bits is what bfloat16 lacks. A carry rounds up in magnitude.
    bits_OI.add_(threshold_OI.bitwise_and_(0xFFFF)).bitwise_and_(~0xFFFF)
    return values_OI
