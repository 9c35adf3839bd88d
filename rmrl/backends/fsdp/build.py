"""From settings to a sharded model and its optimizer."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from transformers import PreTrainedModel

from rmrl.backends.base import TrainSettings
from rmrl.backends.fsdp import compat
from rmrl.backends.fsdp.initial import InitialWeights, on_first, skeleton
from rmrl.backends.fsdp.layout import Layout
from rmrl.backends.schedule import learning_rate
from rmrl.models.loading import load_causal_lm, torch_dtype
from rmrl.models.logprobs import ResponseModel
from rmrl.models.lora import add_adapters
from rmrl.models.packing import check_rows_kept_apart, packs
from rmrl.models.values import ValueModel, load_value_model


def build_model(settings: TrainSettings, device: torch.device) -> nn.Module:
    """The role's model, sharded over the process group; call in every process. A reference is
    frozen.

    With several processes only the first reads the checkpoint, see rmrl.backends.fsdp.initial.
    Raises, in all of them, what it raises.
    """
    layout, dtype = _layout(settings, device), _dtype(settings)
    strategy = settings.trained.strategy
    if dist.get_world_size() == 1:
        return compat.shard(
            _checked(_unsharded(settings, dtype), settings), layout, strategy=strategy
        )
    weights = InitialWeights(on_first(lambda: _checked(_unsharded(settings, dtype), settings)))
    return compat.shard(
        skeleton(lambda: _unsharded(settings, dtype)), layout, strategy=strategy, weights=weights
    )


def _layout(settings: TrainSettings, device: torch.device) -> Layout:
    fsdp = settings.trained.fsdp_config
    return Layout(
        mesh=compat.device_mesh(settings.device, fsdp.fsdp_size),
        device=device,
        param_dtype=None if fsdp.param_dtype is None else _named_dtype(settings, "param_dtype"),
        reduce_dtype=_named_dtype(settings, "reduce_dtype"),
        reshard_after_forward=fsdp.reshard_after_forward,
        offload=fsdp.offload_policy,
    )


def _dtype(settings: TrainSettings) -> torch.dtype:
    """Of the parameters. A frozen model needs no master weights: rounding once gives the same
    compute as rounding at every gather."""
    frozen_in_compute = (
        settings.role == "ref" and settings.trained.fsdp_config.param_dtype is not None
    )
    return _named_dtype(settings, "param_dtype" if frozen_in_compute else "model_dtype")


def _named_dtype(settings: TrainSettings, entry: str) -> torch.dtype:
    return torch_dtype(
        getattr(settings.trained.fsdp_config, entry), key=f"{settings.section}.fsdp_config.{entry}"
    )


def _unsharded(settings: TrainSettings, dtype: torch.dtype) -> ResponseModel | ValueModel:
    trains = settings.role != "ref"
    load = load_value_model if settings.role == "critic" else load_causal_lm
    language_model: PreTrainedModel = load(settings.model, dtype=dtype).requires_grad_(trains)
    if trains and settings.model.lora_rank > 0:
        add_adapters(language_model, settings.model, seed=settings.seed)
    if settings.role == "critic":
        return ValueModel(language_model)
    return ResponseModel(language_model, temperature=settings.temperature)


def _checked(model: ResponseModel | ValueModel, settings: TrainSettings) -> nn.Module:
    if packs(settings.model, device=settings.device):
        check_rows_kept_apart(model.model)
    if isinstance(model, ResponseModel):
        model.check_head()
    return model


def build_optimizer(settings: TrainSettings, model: nn.Module) -> torch.optim.AdamW:
    """AdamW over the parameters that train. Raises ConfigError for an unknown learning-rate
    schedule."""
    optim = settings.trained.optim
    learning_rate(
        0, optim=optim, total_steps=settings.total_steps
    )  # an unknown schedule is an error now, not at the first step
    first, second = optim.betas
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        trained,
        lr=optim.lr,
        betas=(first, second),
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        fused=True,
    )
