"""A training checkpoint of any number of processes -> a Hugging Face folder, in one process and
without Ray.

Tensors are read, cast and written one after another. Under LoRA the frozen weights come from the
model's own checkpoint and the adapters are merged into them, so that whoever loads the folder needs
to know of neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from rmrl.backends.state_file import STATE, SavedModel, saved_model
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.experts import one_by_one
from rmrl.models.export import save_hf_folder
from rmrl.models.loading import build_unloaded, load_causal_lm, load_config, torch_dtype
from rmrl.models.lora import add_adapters, merged_parameters
from rmrl.models.values import load_value_model, value_config
from rmrl.registry import Registry
from rmrl.tokenizer import policy_tokenizer


class CheckpointReader(Protocol):
    """Whole tensors of one checkpoint format; built with the folder that holds state.json."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of the stored parameters by their names in the language model: Hugging Face's, and peft's
        for adapters."""
        ...

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors, in the order of `names`."""
        ...


READERS: Registry[Callable[[Path], CheckpointReader]] = Registry(
    "checkpoint format",
    {
        "torch-dcp-safetensors": "rmrl.backends.fsdp.whole:WholeTensors",
        "megatron-dist-safetensors": "rmrl.backends.megatron.whole:MegatronTensors",
    },
)
PLAIN_TOLERANCE = 1e-5
MERGED_TOLERANCE = 0.05
"""Largest difference of logits, as a share of the largest logit, that the check accepts: with the
same weights, and with adapters merged into weights that are then rounded."""
CHECKED_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What `export` did."""

    parameters: int
    """Numbers written; tied weights once."""
    difference: float | None
    """Largest difference of logits as a share of the largest logit; None: not checked."""


def role_folder(checkpoint: Path, role: str) -> Path:
    """The folder of `role` in a run's checkpoint (or `checkpoint` itself). Raises CheckpointError
    where there is none.

    It is the one whose state.json says so.
    """
    if (checkpoint / STATE).is_file():
        found = {saved_model(checkpoint).role: checkpoint}
    else:
        found = {
            saved_model(file.parent).role: file.parent
            for file in sorted(checkpoint.glob(f"*/{STATE}"))
        }
    if role in found:
        return found[role]
    if found:
        raise CheckpointError(
            f"'{checkpoint}' holds no {role}, only {' and '.join(found)}: set"
            f" role={next(iter(found))}"
        )
    raise CheckpointError(
        f"'{checkpoint}' is no complete checkpoint (no {STATE} in it): give the folder of one, e.g."
        " <run>/checkpoints/step_000010"
    )


def export(
    folder: Path, out: Path, *, dtype: str = "bfloat16", base: str | None = None, check: bool = True
) -> Exported:
    """Write the model of the checkpoint in `folder` to `out`, with its config and tokenizer,
    complete or not at all.

    `base`: where its config, tokenizer and (LoRA) frozen weights are, if no longer where training
    found them. `check`: reload what was written and compare its logits with those of the
    checkpoint's tensors. Raises CheckpointError for a torn checkpoint or a failed check,
    ConfigError where the base model cannot be read.
    """
    saved = saved_model(folder)
    source = _Source(
        (
            saved
            if base is None
            else replace(saved, model=replace(saved.model, path=base, tokenizer_path=None))
        ),
        folder,
    )
    cast = torch_dtype(dtype, key="dtype")
    numbers, difference = 0, None

    def counted() -> Iterator[tuple[str, Tensor]]:
        nonlocal numbers
        for name, tensor in source.merged():
            numbers += tensor.numel()
            yield name, tensor.to(cast) if tensor.is_floating_point() else tensor

    def compare(written: Path) -> None:
        nonlocal difference
        difference = _difference(source, written, cast)

    save_hf_folder(
        out,
        source.skeleton,
        counted(),
        tokenizer=policy_tokenizer(source.saved.model),
        check=compare if check else None,
    )
    return Exported(parameters=numbers, difference=difference)


class _Source:
    """The checkpoint's tensors beside the model that they belong to."""

    def __init__(self, saved: SavedModel, folder: Path) -> None:
        self.saved, self._folder = saved, folder
        self.reader = READERS[saved.format](folder)
        self.adapted = saved.model.lora_rank > 0
        self.classifies = saved.role == "critic"
        with torch.device("meta"):
            self.skeleton = self._of_base(self._load)
            names = {
                name: tuple(parameter.shape)
                for name, parameter in self._parameters(self._with_adapters(self._load())).items()
            }
        self.names = [name for name in names if not self.adapted or name in self.reader.shapes]
        self._require(names)

    def _of_base(self, read: Callable[[], PreTrainedModel]) -> PreTrainedModel:
        try:
            return read()
        except ConfigError as error:
            raise ConfigError(
                f"the checkpoint was trained from '{self.saved.model.path}', which is needed for"
                f" its config{' and frozen weights' if self.adapted else ''} and cannot be read:"
                f" set base=<its folder or hub id> ({error.problems[0]})"
            ) from error

    def _load(self) -> PreTrainedModel:
        load = load_value_model if self.classifies else load_causal_lm
        return load(self.saved.model, dtype=torch_dtype(self.saved.dtype, key="dtype"))

    def _with_adapters(self, model: PreTrainedModel) -> PreTrainedModel:
        return add_adapters(model, self.saved.model) if self.adapted else model

    def _parameters(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """The model's parameters under the names in which they are stored: fused experts one by one
        where they are stored so."""
        found: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            found |= (
                {name: parameter}
                if name in self.reader.shapes
                else one_by_one(name, parameter) or {name: parameter}
            )
        return found

    def _require(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        stored = self.reader.shapes
        wrong = [name for name in self.names if stored.get(name) != shapes[name]] or [
            name for name in stored if name not in shapes
        ]
        if wrong or not self.names:
            name = next(iter(wrong), "any parameter")
            raise CheckpointError(
                f"'{self._folder}' holds '{name}' with shape {stored.get(name)} and the model of"
                f" '{self.saved.model.path}' has it with {shapes.get(name)}: the checkpoint is"
                " torn, or base=<folder or hub id> is another model"
            )

    def merged(self) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors by their Hugging Face names."""
        if not self.adapted:
            return self.reader.read(self.names)
        whole = self.whole(torch_dtype(self.saved.dtype, key="dtype"))
        tensors = {name: parameter.detach() for name, parameter in whole.named_parameters()}
        return merged_parameters(tensors, self.saved.model, gather=lambda tensor: tensor)

    @torch.no_grad()
    def whole(self, dtype: torch.dtype) -> PreTrainedModel:
        """The model with the checkpoint's tensors in memory, adapters beside their layers."""
        model: Any = self._with_adapters(
            self._of_base(self._load if self.adapted else self._unloaded)
        )
        stored = self._parameters(model)
        for name, tensor in self.reader.read(self.names):
            stored[name].copy_(tensor)
        for parameter in (
            model.parameters()
        ):  # not model.to: buffers such as rotary frequencies keep their precision
            parameter.data = parameter.data.to(dtype)
        return model.eval()

    def _unloaded(self) -> PreTrainedModel:
        """Parameters need no values where all of them are in the checkpoint."""
        config: PretrainedConfig = (value_config if self.classifies else load_config)(
            self.saved.model
        )
        dtype = torch_dtype(self.saved.dtype, key="dtype")
        return build_unloaded(self.architecture, self.saved.model, config=config, dtype=dtype)

    @property
    def architecture(self) -> Any:
        """transformers' class."""
        return AutoModelForSequenceClassification if self.classifies else AutoModelForCausalLM


def _difference(source: _Source, written: Path, dtype: torch.dtype) -> float:
    """Between what the written folder and the checkpoint's tensors answer; one of the two is in
    memory at a time."""
    ids_1S = torch.linspace(
        0, source.skeleton.config.get_text_config().vocab_size - 1, CHECKED_TOKENS
    ).long()[None]
    expected = _answer(partial(source.whole, dtype), ids_1S)
    trust = source.saved.model.trust_remote_code
    got = _answer(
        lambda: source.architecture.from_pretrained(
            written, dtype=dtype, trust_remote_code=trust
        ).eval(),
        ids_1S,
    )
    difference = ((got - expected).abs().max() / expected.abs().max().clamp_min(1e-12)).item()
    allowed = MERGED_TOLERANCE if source.adapted else PLAIN_TOLERANCE
    if not difference <= allowed:  # nan too
        raise CheckpointError(
            "the exported model was reloaded and its logits differ from the checkpoint's by"
            f" {difference:.2g} of the largest one (allowed: {allowed:g}), so nothing was written;"
            " export with dtype=float32, or set check=false to keep it all the same"
        )
    return difference


@torch.no_grad()
def _answer(build: Callable[[], PreTrainedModel], ids_1S: Tensor) -> Tensor:
    """Last hidden states and what the head makes of them, flat, in float32."""
    model: Any = build()
    hidden_1SH = model.base_model(input_ids=ids_1S, use_cache=False).last_hidden_state
    head = model.get_output_embeddings() or model.score
    return torch.cat([hidden_1SH.float().flatten(), head(hidden_1SH).float().flatten()])
