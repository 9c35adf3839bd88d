"""Hugging Face checkpoints -> models; errors name the key to set."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as hf_logging

from rmrl.config.schema import ModelConfig
from rmrl.errors import CheckpointError, ConfigError, first_line
from rmrl.registry import did_you_mean

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHORT_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}


def torch_dtype(name: str, *, key: str) -> torch.dtype:
    """The dtype called `name` (float32, bfloat16, float16 or fp32, bf16, fp16); `key` is the
    configuration key an error names."""
    name = SHORT_DTYPES.get(name, name)
    if name not in DTYPES:
        raise ConfigError(f"{key}={name}: not a dtype{did_you_mean(name, DTYPES)}")
    return DTYPES[name]


def load_config(model: ModelConfig) -> PretrainedConfig:
    """The checkpoint's config with `override_config` applied. Raises ConfigError for a missing path
    or an unknown entry."""
    path = _checkpoint(model)
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise ConfigError(_unreadable(path, error)) from error
    _override(config, model.override_config, prefix="")
    return config


def load_causal_lm(model: ModelConfig, *, dtype: torch.dtype) -> PreTrainedModel:
    """The causal language model. See `load_pretrained`."""
    return load_pretrained(AutoModelForCausalLM, model, config=load_config(model), dtype=dtype)


def load_pretrained(
    architecture: Any,
    model: ModelConfig,
    *,
    config: PretrainedConfig,
    dtype: torch.dtype,
    may_lack: tuple[str, ...] = (),
) -> PreTrainedModel:
    """Load a model with the transformers class `architecture` on CPU in `dtype`, with attention
    through torch's SDPA, no KV cache, every dropout off.

    Under `torch.device("meta")` it is built from its config, on that device: no weight is read, and
    no memory used. Dropout is off because the policy ratio must be exactly 1 before the first
    optimizer step. Raises ConfigError for a path that holds no such model, CheckpointError if any
    weight outside `may_lack` is missing (it would be random).
    """
    hf_logging.disable_progress_bar()  # every process of a group would draw its own
    if torch.get_default_device().type == "meta":
        return _ready(_built(architecture, model, config, dtype), model)
    path = _checkpoint(model)
    level = hf_logging.get_verbosity()
    # Missing weights are an error below; an unused head is none for a critic.
    hf_logging.set_verbosity_error()
    try:
        loaded, info = architecture.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation="sdpa",
            trust_remote_code=model.trust_remote_code,
            output_loading_info=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(_unreadable(path, error, architecture)) from error
    finally:
        hf_logging.set_verbosity(level)
    missing = sorted(set(info["missing_keys"]) - set(may_lack))
    if missing:
        names = ", ".join(missing[:3])
        if len(missing) > 3:
            names += ", ..."
        raise CheckpointError(
            f"'{path}' lacks {len(missing)} weights of the model ({names}); they would be random. "
            "Set actor_rollout_ref.model.path to a complete causal language model."
        )
    return _ready(loaded, model)


def build_unloaded(
    architecture: Any, model: ModelConfig, *, config: PretrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """Build `load_pretrained`'s model without reading a weight: buffers have their values,
    parameters are uninitialised memory."""
    return _ready(_built(architecture, model, config, dtype), model)


def _ready(loaded: Any, model: ModelConfig) -> Any:
    """Switch off the KV cache, dropout and padding of embeddings; gradient checkpointing as set."""
    loaded.config.use_cache = False
    for module in loaded.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "attn_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
        # Embeddings leave out the gradient of the padding token, which in many checkpoints is the
        # end token too and then part of the rows. Padded positions have no effect on the loss.
        if isinstance(module, nn.Embedding):
            module.padding_idx = None
    if model.recomputed_every:
        recompute_layers(loaded, every=model.recomputed_every)
    return loaded


def recompute_layers(loaded: PreTrainedModel, *, every: int) -> None:
    """Let the first in every `every` layers recompute its activations in the backward pass, and so
    on. A model whose layers are not transformers' own recomputes them all, which needs less memory.
    """
    # transformers before 5.24 has another name for it, of which later releases warn.
    name = "activation_checkpointing_enable"
    if not hasattr(loaded, name):
        name = "gradient_checkpointing_enable"
    getattr(loaded, name)({"use_reentrant": False})
    layers = [
        module for module in loaded.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    for number, layer in enumerate(layers):
        layer.gradient_checkpointing = number % every == 0


def _built(
    architecture: Any, model: ModelConfig, config: PretrainedConfig, dtype: torch.dtype
) -> Any:
    """The same modules from the config alone, with the generation settings that come with the
    checkpoint."""
    path = _checkpoint(model)
    try:
        with no_init_weights():
            built = architecture.from_config(
                config,
                dtype=dtype,
                attn_implementation="sdpa",
                trust_remote_code=model.trust_remote_code,
            )
    except (OSError, ValueError) as error:
        raise ConfigError(_unreadable(path, error, architecture)) from error
    built.tie_weights()  # part of what was left out
    if built.can_generate():
        # Without a generation_config.json the model has made one from its config.
        with suppress(OSError):
            built.generation_config = GenerationConfig.from_pretrained(path)
    return built


def _checkpoint(model: ModelConfig) -> str:
    """`model.path`, checked as far as a folder can be checked without reading it."""
    if not model.path:
        raise ConfigError(
            "actor_rollout_ref.model.path is empty: set actor_rollout_ref.model.path=<checkpoint"
            " folder or hub id>"
        )
    folder = Path(model.path).expanduser()
    looks_local = (
        folder.is_absolute() or model.path.startswith((".", "~")) or model.path.count("/") > 1
    )
    if looks_local and not folder.is_dir():
        raise ConfigError(
            f"actor_rollout_ref.model.path={model.path}: there is no such folder; set"
            " actor_rollout_ref.model.path=<folder with config.json and *.safetensors, or hub id>"
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ConfigError(
            f"actor_rollout_ref.model.path={model.path}: the folder holds no config.json; set"
            " actor_rollout_ref.model.path to the folder that holds config.json and *.safetensors"
        )
    if folder.is_dir():
        return str(folder)
    return model.path


def _override(config: Any, entries: Mapping[str, Any], *, prefix: str) -> None:
    """Set `entries` on a config object. A mapping is applied to the nested mapping or config with
    that name."""
    present = config if isinstance(config, dict) else config.to_dict()
    for name, value in entries.items():
        if name not in present:
            raise ConfigError(
                f"actor_rollout_ref.model.override_config.{prefix}{name}: the model's config has no"
                f" such entry{did_you_mean(name, present)}"
            )
        current = config[name] if isinstance(config, dict) else getattr(config, name)
        if isinstance(value, Mapping) and isinstance(current, dict | PretrainedConfig):
            _override(current, value, prefix=f"{prefix}{name}.")
        elif isinstance(config, dict):
            config[name] = value
        else:
            setattr(config, name, value)


def _unreadable(path: str, error: Exception, architecture: Any = None) -> str:
    what = "causal language model"
    if architecture is AutoModelForSequenceClassification:
        what = "classifier (of a family for which transformers has one)"
    return (
        f"actor_rollout_ref.model.path={path}: no {what} could be read"
        f" ({first_line(error)}); set actor_rollout_ref.model.path=<folder with config.json and"
        " *.safetensors, or hub id>"
    )
