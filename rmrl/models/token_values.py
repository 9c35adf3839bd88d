"""The critic's model: a decoder with a head of one number, V(state), read before each response
token.

It is a Hugging Face sequence classifier with one label, so a critic and a Bradley-Terry reward
model are the same checkpoint: a reward model's folder is a critic to start from, and an exported
critic loads wherever reward models load.

Shapes: B rows    S longest row    N response tokens of all rows, flat    H hidden
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from rmrl.config.schema import ModelConfig
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.loading import build_unloaded, load_config, load_pretrained
from rmrl.models.packing import Layout, hidden_states

HEAD = "score"
"""Name of the head in transformers' sequence classifiers of decoder families."""


class ValueModel(nn.Module):
    """A sequence classifier with one label that returns a value per response token instead of one
    label per row."""

    def __init__(self, model: PreTrainedModel, *, offload_activations: bool = False) -> None:
        """`offload_activations`: see rmrl.models.activations."""
        super().__init__()
        self.model = model
        self.offload_activations = offload_activations

    def forward(
        self, input_ids_BS: Tensor, positions_N: Tensor, layout: Layout | None = None
    ) -> Tensor:
        """Values [N] (of several labels [N, labels]), float32, at `positions_N`: for a critic the
        positions *before* the response tokens, as in ResponseModel.forward.

        `layout` as there; without it rows are right-padded.
        """
        decoded = hidden_states(self.model, input_ids_BS, layout, offload=self.offload_activations)
        hidden_NH = decoded.index_select(0, positions_N)
        # float32 from here on: bfloat16 has 8 bits for a number whose differences of a hundredth
        # are the advantages.
        weight_LH = value_head(self.model).weight
        if len(weight_LH) > 1:
            return hidden_NH.float() @ weight_LH.float().T
        return hidden_NH.float() @ weight_LH[0].float()


def value_head(model: PreTrainedModel) -> nn.Linear:
    """The layer hidden -> labels."""
    return getattr(model, HEAD)


def value_config(model: ModelConfig, labels: tuple[str, ...] = ()) -> PretrainedConfig:
    """The checkpoint's config, with one label, or those that are named. Raises ConfigError for a
    checkpoint that classifies into another number."""
    config = load_config(model)
    count = max(1, len(labels))
    if _classifies(config) and config.num_labels != count and labels:
        raise ConfigError(
            f"model.path={model.path}: this classifier has {config.num_labels} labels, and"
            f" {count} are to be trained ({', '.join(labels)}): set model.path to a causal language"
            " model, or to a classifier with these"
        )
    if _classifies(config) and config.num_labels != count:
        raise ConfigError(
            f"critic.model.path={model.path}: this classifier has {config.num_labels} labels, a"
            " value is one number: set critic.model.path to a causal language model or to a reward"
            " model with one label"
        )
    config.num_labels = count
    if len(labels) > 1:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
        config.problem_type = "regression"
    return config


def load_value_model(
    model: ModelConfig, *, dtype: torch.dtype, labels: tuple[str, ...] = (), seed: int = 1
) -> PreTrainedModel:
    """A sequence classifier with one label (or `labels`) from a causal language model, or from such
    a classifier, whose head is kept.

    A new head is zero. Then every process has the same one without a draw, and the first advantages
    are the returns themselves and not their distance from a random projection of hidden states. Its
    own gradient is not zero, so the first step moves it and the second reaches the decoder. With
    `labels`, for a reward model, a new head is drawn from `seed`, with the spread that the family
    gives its layers. Raises ConfigError for a path or family without such a model, CheckpointError
    for missing weights.
    """
    config = value_config(model, labels)
    has_head = _classifies(config)
    new_weights = () if has_head else (f"{HEAD}.weight",)
    family = AutoModelForSequenceClassification
    try:
        loaded: Any = load_pretrained(
            family, model, config=config, dtype=dtype, may_lack=new_weights
        )
    except CheckpointError:
        # Of another head, other weights are missing.
        with torch.device("meta"):
            check_value_head(build_unloaded(family, model, config=config, dtype=dtype))
        raise
    check_value_head(loaded)
    if not has_head:
        _init_head(value_head(loaded), config, drawn=bool(labels), seed=seed)
    return loaded


@torch.no_grad()
def _init_head(head: nn.Linear, config: Any, *, drawn: bool, seed: int) -> None:
    """Set a new head to zero, or draw it from `seed` alone."""
    if not drawn or head.weight.is_meta:
        nn.init.zeros_(head.weight)
        return
    spread = getattr(config.get_text_config(), "initializer_range", 0.02)
    generator = torch.Generator().manual_seed(seed)
    head.weight.copy_(torch.randn(head.weight.shape, generator=generator) * spread)


def check_value_head(model: PreTrainedModel) -> None:
    """Raise ConfigError unless the model's head is one linear layer without bias that reads the
    decoder's last hidden state."""
    head: Any = getattr(model, HEAD, None)
    linear = isinstance(head, nn.Linear) and head.out_features == model.config.num_labels
    has_bias = getattr(head, "bias", None) is not None
    if not linear or has_bias or model.base_model is model:
        raise ConfigError(
            f"critic.model.path: models of type '{model.config.model_type}' have no scalar head"
            f" '{HEAD}' on a decoder: choose another family, e.g. llama, qwen3, gemma3 or mistral"
        )


def _classifies(config: PretrainedConfig) -> bool:
    names = map(str, config.architectures or [])
    return any(name.endswith("ForSequenceClassification") for name in names)
