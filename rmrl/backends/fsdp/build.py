"""Build a sharded model and its optimizer from settings."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from transformers import PreTrainedModel

from rmrl.backends.base import TrainSettings
from rmrl.backends.fsdp import compat
from rmrl.backends.fsdp.backend import sharing_of
from rmrl.backends.fsdp.initial import InitialWeights, on_first, skeleton
from rmrl.backends.fsdp.layout import Layout, decoder_layers
from rmrl.backends.process_group import all_max
from rmrl.backends.schedule import learning_rate
from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.models import varlen
from rmrl.models.compiled import compile_layers
from rmrl.models.loading import load_causal_lm, torch_dtype
from rmrl.models.logprobs import ResponseModel
from rmrl.models.lora import add_adapters
from rmrl.models.packing import (
    attention,
    check_only_attention_mixes,
    keeps_rows_apart,
    packs,
    packs_fast,
    set_attention,
    sharing_problem,
)
from rmrl.models.sequence_parallel import config_problem
from rmrl.models.shared_prompts import keeps_responses_apart, shares
from rmrl.models.token_values import ValueModel, load_value_model


def build_model(settings: TrainSettings, device: torch.device) -> tuple[nn.Module, ModelConfig]:
    """Return the role's model, sharded over the process group, and its settings in which
    use_remove_padding and share_prompts say how this model's rows are laid out. Call in every
    process. A reference is frozen.

    With several processes only the first reads the checkpoint, see rmrl.backends.fsdp.initial. Its
    error is raised in all of them.
    """
    strategy = settings.trained.strategy
    fsdp = settings.trained.fsdp_config
    layout = Layout(
        mesh=compat.device_mesh(settings.device, fsdp.fsdp_size),
        device=device,
        param_dtype=None if fsdp.param_dtype is None else _dtype(settings, "param_dtype"),
        reduce_dtype=_dtype(settings, "reduce_dtype"),
        reshard_after_forward=fsdp.reshard_after_forward,
        offload=fsdp.offload_policy,
    )
    dtype = _dtype(settings, "model_dtype")
    adapted = settings.model.lora_rank > 0 and strategy == "fsdp2"  # fsdp: one dtype for all
    if (settings.role == "ref" or adapted) and layout.param_dtype is not None:
        # Frozen weights need no master copy: rounding once gives the same compute as rounding at
        # every gather. Adapters, and a critic's head beside them, stay float32.
        dtype = layout.param_dtype
    packed = shares_prompts = False

    def load() -> nn.Module:
        nonlocal packed, shares_prompts
        model = _unsharded(settings, dtype)
        packed, shares_prompts = layout_of_rows(settings, model, layout.param_dtype or dtype)
        return model

    weights = None
    if dist.get_world_size() == 1:
        model = load()
    else:
        weights = InitialWeights(on_first(load))
        model = skeleton(lambda: _unsharded(settings, dtype))
    if fsdp.compile_layers:
        compile_layers(decoder_layers(model))
    sharded = compat.shard(model, layout, strategy=strategy, weights=weights)
    return sharded, replace(
        settings.model,
        use_remove_padding=bool(all_max(int(packed))),
        share_prompts=bool(all_max(int(shares_prompts))),
    )


def layout_of_rows(
    settings: TrainSettings, model: ResponseModel | ValueModel, dtype: torch.dtype
) -> tuple[bool, bool]:
    """Return whether rows are packed, and whether responses share their prompt. Raises ConfigError
    where the model cannot do what the settings ask for."""
    language_model = model.model
    device = settings.device
    sliced = settings.trained.fsdp_config.ulysses_sequence_parallel_size > 1
    packed = settings.model.use_remove_padding
    if packed is None:
        packed = packs_fast(
            settings.model, device=device, dtype=dtype, language_model=language_model
        )
    model_settings = replace(settings.model, use_remove_padding=packed)
    if sliced or packs(model_settings, device=device):
        name = attention_of(replace(settings, model=model_settings), language_model, dtype)
        if name == varlen.NAME:
            set_attention(language_model, name)  # the check passes boundaries down as well
        apart = keeps_rows_apart(language_model)
        if not apart and (sliced or settings.model.use_remove_padding):
            raise ConfigError(
                "model.use_remove_padding=true: models of type"
                f" '{language_model.config.model_type}' do not keep packed rows apart: set"
                " use_remove_padding=false"
            )
        packed = apart
    if sliced:
        check_only_attention_mixes(language_model)
    if isinstance(model, ResponseModel):
        model.check_head()
    if sliced or not shares(settings.model, device=device):
        return packed, False
    shares_prompts = keeps_responses_apart(language_model)
    if settings.model.share_prompts and not shares_prompts:
        raise ConfigError(
            f"model.share_prompts=true: models of type '{language_model.config.model_type}' do not"
            " keep the responses to one prompt apart: set share_prompts=false"
        )
    return packed, shares_prompts


def attention_of(
    settings: TrainSettings, language_model: PreTrainedModel, dtype: torch.dtype
) -> str:
    """The attention to compute with, by name. Raises ConfigError where it cannot run."""
    size, setting = sharing_of(settings.trained, settings.section)
    if size == 1:
        return attention(
            settings.model, device=settings.device, dtype=dtype, language_model=language_model
        )
    problem = config_problem(language_model.config, size) or sharing_problem(
        settings.model, device=settings.device, dtype=dtype, language_model=language_model
    )
    if problem:
        raise ConfigError(f"{setting} {problem}")
    return varlen.NAME


def _dtype(settings: TrainSettings, entry: str) -> torch.dtype:
    """The dtype in an fsdp_config entry."""
    name = getattr(settings.trained.fsdp_config, entry)
    return torch_dtype(name, key=f"{settings.section}.fsdp_config.{entry}")


def _unsharded(settings: TrainSettings, dtype: torch.dtype) -> ResponseModel | ValueModel:
    trains = settings.role != "ref"
    if settings.role == "critic":
        language_model = load_value_model(
            settings.model, dtype=dtype, labels=settings.labels, seed=settings.seed
        )
    else:
        language_model = load_causal_lm(settings.model, dtype=dtype)
    language_model.requires_grad_(trains)
    if trains and settings.model.lora_rank > 0:
        add_adapters(language_model, settings.model, seed=settings.seed)
    offloads = settings.model.enable_activation_offload
    if settings.role == "critic":
        return ValueModel(language_model, offload_activations=offloads)
    return ResponseModel(
        language_model,
        temperature=settings.temperature,
        offload_activations=offloads,
        wide_head=settings.model.float32_head,
    )


def build_optimizer(settings: TrainSettings, model: nn.Module) -> torch.optim.AdamW:
    """AdamW over the parameters that train. Raises ConfigError for an unknown learning-rate
    schedule."""
    optim = settings.trained.optim
    # An unknown schedule raises here, not at the first step.
    learning_rate(0, optim=optim, total_steps=settings.total_steps)
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
