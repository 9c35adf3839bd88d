"""Load a Hugging Face folder into a Megatron model's stages. Each process reads only its own part.

Files are mapped into memory, a tensor's slice is a view into the file, and its elements are copied
from there into the parameter: no other memory is used, whatever the checkpoint's size.

Everything is checked against the whole weight table and the files' headers, before anything is
read. All processes see the same files, so either all fail, with the same message, or none does.
There is no communication between them here.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch
from safetensors import safe_open
from torch import Tensor

from rmrl.backends.base import TrainSettings
from rmrl.backends.megatron.mapping import HEAD, Entry, entries, fill, named, slice_of
from rmrl.backends.megatron.model import MegatronModel
from rmrl.backends.megatron.ranks import experts_here, tensor_rank
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.checkpoint_inspect import architecture, local_checkpoint, tensor_headers

_PLAIN = {"F64", "F32", "F16", "BF16"}
"""Codes of plain number formats. Others need scales."""


@torch.no_grad()
def load_weights(model: MegatronModel, settings: TrainSettings) -> None:
    """Fill every parameter from `settings.model.path`, casting on the way.

    A critic's head comes from a classifier with one label, or zero when the checkpoint is a
    language model (see `rmrl.models.token_values.load_value_model` for why). Raises ConfigError
    when the folder holds no safetensors or quantised ones, CheckpointError when tensors are missing
    or of another shape.
    """
    files = _Files(settings)
    table = {entry.name: entry for entry in entries(model.shape, model.role)}
    new_head = model.role == "critic" and not files.classify
    files.require(entry for entry in table.values() if not (new_head and HEAD in entry.hf))
    for name, parameter in named(model.chunks, experts_here(model.shape).start):
        entry = table[name]
        if new_head and HEAD in entry.hf:
            parameter.zero_()
        else:
            fill(entry, files.slices(entry, *tensor_rank(entry)), parameter)


class _Files:
    """A checkpoint folder's tensors."""

    def __init__(self, settings: TrainSettings) -> None:
        self._key = "actor_rollout_ref.model.path"
        if settings.role == "critic":
            self._key = "critic.model.path"
        self._path = settings.model.path or ""
        if not self._path:
            raise ConfigError(
                f"{self._key} is empty: set {self._key}=<checkpoint folder or hub id>"
            )
        folder = local_checkpoint(self._path)
        if not any(folder.glob("*.safetensors")):
            files = sorted(file.name for file in folder.glob("*.bin"))
            weights = ", ".join(files[:2]) or "no weights at all"
            raise ConfigError(
                f"{self._key}={self._path}: the folder holds {weights}, and strategy=megatron reads"
                " *.safetensors only: convert it with"
                f" AutoModelForCausalLM.from_pretrained('{self._path}').save_pretrained(<folder>)"
                f" and set {self._key}=<folder>"
            )
        self._headers = {header.name: header for header in tensor_headers(folder)}

    @property
    def classify(self) -> bool:
        """True for a classifier's files, which have a head."""
        return architecture(self._path).endswith("ForSequenceClassification")

    def require(self, table: Iterable[Entry]) -> None:
        """Raise unless each tensor in the table is present, with its shape, and in a plain
        format."""
        shapes = dict(
            chain.from_iterable(zip(entry.hf, entry.shapes, strict=True) for entry in table)
        )
        missing = [name for name in shapes if name not in self._headers]
        if missing:
            raise CheckpointError(
                f"'{self._path}' lacks {len(missing)} weights of the model ({_few(missing)}); they"
                f" would be random. Set {self._key} to a complete checkpoint."
            )
        other: list[str] = []
        quantised: list[str] = []
        for name, shape in shapes.items():
            header = self._headers[name]
            if header.shape != shape:
                other.append(f"{name} {list(header.shape)} and not {list(shape)}")
            if header.dtype not in _PLAIN:
                quantised.append(f"{name} {header.dtype}")
        if other:
            raise CheckpointError(
                f"'{self._path}' holds {len(other)} tensors of another shape than in its"
                f" config.json ({_few(other)}). Set {self._key} to a checkpoint whose files belong"
                " together."
            )
        if quantised:
            raise ConfigError(
                f"{self._key}={self._path}: {len(quantised)} weights are quantised"
                f" ({_few(quantised)}), and training needs plain ones: set {self._key} to the"
                " checkpoint in bfloat16, float16 or float32"
            )

    def slices(self, entry: Entry, rank: int, ranks: int) -> list[Tensor]:
        """Each of the entry's tensors, as far as tensor-parallel rank `rank` of `ranks` has it;
        views into the files."""
        views: list[Tensor] = []
        for number, name in enumerate(entry.hf):
            part = slice_of(entry, number, rank, ranks)
            with safe_open(self._headers[name].file, framework="pt") as file:
                views.append(file.get_slice(name)[part])
        return views


def _few(names: list[str]) -> str:
    text = ", ".join(names[:3])
    if len(names) > 3:
        text += ", ..."
    return text
