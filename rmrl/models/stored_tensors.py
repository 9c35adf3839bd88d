"""A model's tensors as checkpoint files hold them, and as engines and other programs read them.

While transformers loads some families it renames modules and joins the experts of a layer; its own
table of conversions undoes this (transformers.core_model_loading). Files also hold some buffers,
such as the bias by which DeepSeek-V3 and GLM-4.5 choose experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion

Named = Iterable[tuple[str, Tensor]]


class StoredTensors:
    """The way from a model's names to those in files."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._converts = bool(get_model_conversion_mapping(model, add_legacy=False))

    def of(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        """Return the tensors that one of the model's is joined from: for most families itself.
        `tensor` may be without storage, for names and shapes alone."""
        if not self._converts:
            return {name: tensor}
        return revert_weight_conversion(self._model, {name: tensor})

    def all(self, named: Named) -> Iterator[tuple[str, Tensor]]:
        """Yield `of` each tensor."""
        for name, tensor in named:
            yield from self.of(name, tensor).items()

    @torch.no_grad()
    def copy(self, named: Named) -> None:
        """Copy tensors with files' names into the model. Raises KeyError for one that it lacks."""
        state = self._model.state_dict()
        places: dict[str, tuple[Tensor, Tensor | None]] = {}
        for name, tensor in state.items():
            empty = self.of(name, torch.empty(tensor.shape, device="meta"))
            if list(empty) == [name]:
                places[name] = (tensor, None)
                continue
            numbers = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
            for stored, part in self.of(name, numbers).items():
                places[stored] = (tensor, part.flatten())
        for name, tensor in named:
            joined, part = places[name]
            if part is None:
                joined.copy_(tensor)
            else:
                joined.view(-1)[part] = tensor.flatten().to(joined)


def stored_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers that files hold, by the model's names."""
    for path, module in model.named_modules():
        left_out = module._non_persistent_buffers_set  # pyright: ignore[reportPrivateUsage]
        for name, buffer in module.named_buffers(recurse=False):
            if name not in left_out:
                yield f"{path}.{name}", buffer.detach()
