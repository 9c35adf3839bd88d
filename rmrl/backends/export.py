"""A training checkpoint, however many processes wrote it -> a Hugging Face folder, in one process
and without Ray.

Tensors are read, cast and written one after another. Under LoRA the frozen weights come from the
model's own checkpoint and the adapters are merged into them, so that the folder loads without
either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from rmrl.backends.state_file import STATE, SavedModel, saved_model
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.checkpoint_inspect import tensor_headers
from rmrl.models.experts import one_by_one
from rmrl.models.export import save_hf_folder
from rmrl.models.loading import build_unloaded, load_causal_lm, load_config, torch_dtype
from rmrl.models.lora import add_adapters, merged_parameters
from rmrl.models.stored_tensors import StoredTensors, stored_buffers
from rmrl.models.token_values import load_value_model, value_config
from rmrl.registry import Registry
from rmrl.tokenizer import policy_tokenizer


class CheckpointReader(Protocol):
    """Whole tensors from one checkpoint format; built with the folder that holds state.json."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The stored parameters' shapes by their names in the language model: Hugging Face's, and
        peft's for adapters."""
        ...

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors, in `names`' order."""
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
    """`export`'s result."""

    parameters: int
    """Numbers written; tied weights once."""
    difference: float | None
    """Largest difference of logits as a share of the largest logit. None: not checked."""
    transform: str = ""
    """Entry that a reward needs to give its trainer's numbers, "" where the head alone does."""


def role_folder(checkpoint: Path, role: str) -> Path:
    """`role`'s folder in a run's checkpoint (or `checkpoint` itself): the one with that role in its
    state.json. Raises CheckpointError where there is none."""
    if (checkpoint / STATE).is_file():
        files = [checkpoint / STATE]
    else:
        files = sorted(checkpoint.glob(f"*/{STATE}"))
    folders = {saved_model(file.parent).role: file.parent for file in files}
    if role in folders:
        return folders[role]
    if folders:
        raise CheckpointError(
            f"'{checkpoint}' holds no {role}, only {' and '.join(folders)}: set"
            f" role={next(iter(folders))}"
        )
    raise CheckpointError(
        f"'{checkpoint}' is no complete checkpoint (no {STATE} in it): give the folder of one, e.g."
        " <run>/checkpoints/step_000010"
    )


def export(
    folder: Path, out: Path, *, dtype: str = "bfloat16", base: str | None = None, check: bool = True
) -> Exported:
    """Write the checkpoint's model in `folder` to `out`, with its config and tokenizer, complete or
    not at all.

    `base`: folder or hub id with its config, tokenizer and (LoRA) frozen weights, if these are no
    longer where training read them. `check`: reload the written folder and compare its logits with
    the checkpoint tensors' ones. Raises CheckpointError for a torn checkpoint or a failed check,
    ConfigError where the base model cannot be read.
    """
    saved = saved_model(folder)
    if base is not None:
        saved = replace(saved, model=replace(saved.model, path=base, tokenizer_path=None))
    source = _Source(saved, folder)
    cast = torch_dtype(dtype, key="dtype")
    numbers = 0
    difference = None

    def counted() -> Iterator[tuple[str, Tensor]]:
        nonlocal numbers
        for name, tensor in source.merged(cast):
            numbers += tensor.numel()
            if tensor.is_floating_point():
                tensor = tensor.to(cast)
            yield name, tensor
        yield from source.stored.all(source.buffers().items())

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
    """A checkpoint's tensors, and the model that they belong to."""

    def __init__(self, saved: SavedModel, folder: Path) -> None:
        self.saved = saved
        self.reader = READERS[saved.format](folder)
        self.adapted = saved.model.lora_rank > 0
        self.classifies = saved.role == "critic"
        with torch.device("meta"):
            self.skeleton = self._of_base(self._load)
            self.stored = StoredTensors(self.skeleton)
            parameters = self._parameters(self._with_adapters(self._load()))
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        self.names = [name for name in shapes if not self.adapted or name in self.reader.shapes]
        stored = self.reader.shapes
        wrong = [name for name in self.names if stored.get(name) != shapes[name]]
        wrong += [name for name in stored if name not in shapes]
        if wrong or not self.names:
            name = wrong[0] if wrong else "any parameter"
            raise CheckpointError(
                f"'{folder}' holds '{name}' with shape {stored.get(name)} and the model of"
                f" '{saved.model.path}' has it with {shapes.get(name)}: the checkpoint is"
                " torn, or base=<folder or hub id> is another model"
            )

    def _of_base(self, read: Callable[[], PreTrainedModel]) -> PreTrainedModel:
        """The model that `read` returns. Its error names `base` as the remedy."""
        try:
            return read()
        except ConfigError as error:
            weights = " and frozen weights" if self.adapted else ""
            raise ConfigError(
                f"the checkpoint was trained from '{self.saved.model.path}', which is needed for"
                f" its config{weights} and cannot be read: set base=<its folder or hub id>"
                f" ({error.problems[0]})"
            ) from error

    def _load(self) -> PreTrainedModel:
        load = load_value_model if self.classifies else load_causal_lm
        return load(self.saved.model, dtype=torch_dtype(self.saved.dtype, key="dtype"))

    def _with_adapters(self, model: PreTrainedModel) -> PreTrainedModel:
        return add_adapters(model, self.saved.model) if self.adapted else model

    def _parameters(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """The model's parameters by the names under which they are stored: fused experts one by one
        where they are stored so."""
        parameters: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            experts = one_by_one(name, parameter)
            if name in self.reader.shapes or not experts:
                parameters[name] = parameter
            else:
                parameters |= experts
        return parameters

    def merged(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """Yield whole tensors by their Hugging Face names. Where adapters are merged, they have
        `dtype`, else their own."""
        if self.adapted:
            whole = self.whole(torch_dtype(self.saved.dtype, key="dtype"))
            tensors = {name: parameter.detach() for name, parameter in whole.named_parameters()}
            yield from self.stored.all(
                merged_parameters(
                    tensors, self.saved.model, gather=lambda tensor: tensor, dtype=dtype
                )
            )
        else:
            yield from self.stored.all(self.reader.read(self.names))

    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers that files hold. No training changes them: they are the base's."""
        buffers = dict(stored_buffers(self.skeleton))
        if not buffers:
            return buffers
        files = {header.name: header.file for header in tensor_headers(str(self.saved.model.path))}
        for name, buffer in buffers.items():
            (stored,) = self.stored.of(name, buffer)
            if stored not in files:
                raise CheckpointError(
                    f"'{self.saved.model.path}' lacks '{stored}', which its model has beside its"
                    " parameters: set base=<a folder or hub id with all tensors>"
                )
            with safe_open(files[stored], framework="pt") as file:
                buffers[name] = file.get_tensor(stored)
        return buffers

    @torch.no_grad()
    def whole(self, dtype: torch.dtype) -> PreTrainedModel:
        """The model with the checkpoint's tensors in memory, adapters beside their layers."""
        # Parameters need no values where all of them are in the checkpoint.
        read = self._load if self.adapted else self._unloaded
        model: Any = self._with_adapters(self._of_base(read))
        stored = self._parameters(model)
        for name, tensor in self.reader.read(self.names):
            stored[name].copy_(tensor)
        empty = dict(stored_buffers(model))
        for name, buffer in self.buffers().items():
            empty[name].copy_(buffer)
        # not model.to: buffers such as rotary frequencies keep their precision
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return model.eval()

    def _unloaded(self) -> PreTrainedModel:
        read_config = value_config if self.classifies else load_config
        config: PretrainedConfig = read_config(self.saved.model)
        dtype = torch_dtype(self.saved.dtype, key="dtype")
        return build_unloaded(self.architecture, self.saved.model, config=config, dtype=dtype)

    @property
    def architecture(self) -> Any:
        """The model's transformers class."""
        if self.classifies:
            return AutoModelForSequenceClassification
        return AutoModelForCausalLM


def _difference(source: _Source, written: Path, dtype: torch.dtype) -> float:
    """The largest difference between the written folder's outputs and the checkpoint's, as a share
    of the largest output. Only one model is in memory at a time.

    Raises CheckpointError above the tolerance.
    """
    vocabulary = source.skeleton.config.get_text_config().vocab_size
    ids_1S = torch.linspace(0, vocabulary - 1, CHECKED_TOKENS).long()[None]

    def reload() -> PreTrainedModel:
        trust = source.saved.model.trust_remote_code
        model = source.architecture.from_pretrained(written, dtype=dtype, trust_remote_code=trust)
        return model.eval()

    expected = _answer(partial(source.whole, dtype), ids_1S)
    actual = _answer(reload, ids_1S)
    difference = (actual - expected).abs().max() / expected.abs().max().clamp_min(1e-12)
    difference = difference.item()
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
    """Last hidden states and the head's outputs, flat, in float32."""
    model: Any = build()
    hidden_1SH = model.base_model(input_ids=ids_1S, use_cache=False).last_hidden_state
    head = model.get_output_embeddings() or model.score
    return torch.cat([hidden_1SH.float().flatten(), head(hidden_1SH).float().flatten()])
