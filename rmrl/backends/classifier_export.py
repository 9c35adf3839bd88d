"""A reward model in a peer's form -> a classifier that transformers and the engines load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification

from rmrl.backends.export import CHECKED_TOKENS, PLAIN_TOLERANCE, Exported
from rmrl.config.schema import ModelConfig
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.checkpoint_inspect import TensorHeader, architecture, tensor_headers
from rmrl.models.export import save_hf_folder
from rmrl.models.loading import build_unloaded, torch_dtype
from rmrl.models.peer_heads import PeerHead, peer_head
from rmrl.models.token_values import HEAD, check_value_head, value_config
from rmrl.tokenizer import policy_tokenizer

_OUTPUT = "lm_head."


def export_classifier(path: str, out: Path, *, dtype: str, check: bool = True) -> Exported:
    """Write the model in `path` as AutoModelForSequenceClassification with one label, complete or
    not at all. Tensors are read and cast one after another.

    `check`: the written folder is reloaded, and a few tokens' score in float32 is compared with
    what the head makes from the last hidden state in `path`. The difference is relative to the
    terms that add up to the score, which may be larger. Raises ConfigError where the folder holds
    no such model, CheckpointError where its tensors do not fit the family or the check fails.
    """
    head = peer_head(path)
    if head is None:
        raise ConfigError(
            f"reward_model={path}: a {architecture(path) or 'model without architecture'} with no"
            " linear head of one output (score, value_head, v_head.summary); a classifier"
            " (*ForSequenceClassification) is used as it is"
        )
    model = ModelConfig(path=path, enable_gradient_checkpointing=False)
    config = value_config(model)
    with torch.device("meta"):
        skeleton = build_unloaded(
            AutoModelForSequenceClassification, model, config=config, dtype=torch.float32
        )
    check_value_head(skeleton)
    cast = torch_dtype(dtype, key="dtype")
    shapes = {name: tuple(each.shape) for name, each in skeleton.named_parameters()}
    numbers = 0
    difference: float | None = None

    def counted() -> Iterator[tuple[str, Tensor]]:
        nonlocal numbers
        missing = dict(shapes)
        for name, tensor in _tensors(path, head):
            if missing.pop(name, None) != tuple(tensor.shape):
                raise CheckpointError(
                    f"'{path}' holds '{name}' {list(tensor.shape)}, which is no parameter of a"
                    f" {type(skeleton).__name__}: give a folder with whole weights, adapters merged"
                )
            numbers += tensor.numel()
            yield name, tensor.to(cast)
        if missing:
            raise CheckpointError(
                f"'{path}' lacks '{next(iter(missing))}': give a folder with whole weights"
            )

    def compare(written: Path) -> None:
        nonlocal difference
        difference = _difference(path, head, written, cast)

    tokenizer = policy_tokenizer(model)
    save_hf_folder(out, skeleton, counted(), tokenizer=tokenizer, check=compare if check else None)
    bias = 0.0 if head.bias is None else _read(head.bias).float().item()
    transform = ""
    if bias or (head.mean, head.std) != (0.0, 1.0):
        factor, offset = 1 / head.std, (bias - head.mean) / head.std
        transform = f"transform={{kind: scale, factor: {factor:.7g}, offset: {offset:.7g}}}"
    return Exported(parameters=numbers, difference=difference, transform=transform)


def _tensors(path: str, head: PeerHead) -> Iterator[tuple[str, Tensor]]:
    """The classifier's tensors by their names, one after another."""
    left_out = {head.weight.name} | ({head.bias.name} if head.bias else set())
    for header in tensor_headers(path):
        if header.name not in left_out and not header.name.startswith(_OUTPUT):
            yield header.name, _read(header)
    yield f"{HEAD}.weight", _read(head.weight)


def _read(header: TensorHeader) -> Tensor:
    with safe_open(header.file, framework="pt") as file:
        return file.get_tensor(header.name)


@torch.no_grad()
def _difference(path: str, head: PeerHead, written: Path, cast: torch.dtype) -> float:
    model: Any = AutoModel.from_pretrained(path, dtype=torch.float32)
    ids_1S = torch.linspace(0, model.config.vocab_size - 1, CHECKED_TOKENS).long()[None]
    for parameter in model.parameters():
        parameter.data = parameter.data.to(cast).float()
    hidden_H = model.eval()(input_ids=ids_1S, use_cache=False).last_hidden_state[0, -1]
    weight_H = _read(head.weight).to(cast).float()[0]
    expected = hidden_H @ weight_H
    # A score may be small beside its terms, whose rounding it has all the same.
    terms = hidden_H.abs() @ weight_H.abs()
    del model
    scorer: Any = AutoModelForSequenceClassification.from_pretrained(written, dtype=torch.float32)
    actual = scorer.eval()(input_ids=ids_1S, use_cache=False).logits[0, 0]
    difference = ((actual - expected).abs() / terms.clamp_min(1e-6)).item()
    if not difference <= PLAIN_TOLERANCE:  # nan too
        raise CheckpointError(
            f"the written classifier gives {actual:.6g} where {head.weight.name} on the last hidden"
            f" state of '{path}' gives {expected:.6g}, so nothing was written; set check=false to"
            " keep it all the same"
        )
    return difference
