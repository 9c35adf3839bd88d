"""The shards' initial weights: the first process reads the checkpoint and broadcasts it.

Every process builds the model without weights (on the meta device), so that only the first one ever
has a whole copy. After sharding the tensors are broadcast one at a time. Each process keeps its
piece. Buffers (also those that no checkpoint contains, such as rotary frequencies) are broadcast
too, so that nothing here depends on the model's family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmrl.errors import ConfigError, InfrastructureError, RmrlError

Header = tuple[torch.dtype, tuple[int, ...]]
Headers = dict[str, Header]
T = TypeVar("T")


def skeleton(build: Callable[[], nn.Module]) -> nn.Module:
    """`build`'s model on the meta device, without any storage."""
    with torch.device("meta"):
        return build()


def on_first(work: Callable[[], T]) -> T | None:
    """`work`'s result in the first process, None in the others. Its error is raised in all of
    them."""
    result = None
    failure: RmrlError | None = None
    if dist.get_rank() == 0:
        try:
            result = work()
        except RmrlError as error:
            failure = error
        # After any other error, too, the other processes must not wait for tensors.
        except Exception as error:
            failure = InfrastructureError(
                f"training process 0 could not build the model ({type(error).__name__}: {error})"
            )
            failure.__cause__ = error
    shared = share(failure)
    if shared is not None:
        # in the first process the error itself, with its traceback
        raise failure or shared
    return result


def share(value: Any) -> Any:
    """The first process's `value`, in all processes."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


@dataclass(slots=True)
class NonParameter:
    """A module's tensor that is no parameter: a buffer, or a plain attribute."""

    module: nn.Module
    key: str
    tensor: Tensor

    def put(self, tensor: Tensor) -> None:
        setattr(self.module, self.key, tensor)


def held_tensors(model: nn.Module) -> Iterator[tuple[str, NonParameter]]:
    """Yield buffers and plain tensor attributes by name."""
    for path, module in model.named_modules():
        tensors = dict(module.named_buffers(recurse=False))
        for key, value in vars(module).items():
            if isinstance(value, Tensor):
                tensors[key] = value
        for key, tensor in tensors.items():
            yield f"{path}.{key}", NonParameter(module, key, tensor)


class InitialWeights:
    """The whole model's tensors in the first process, their dtypes and shapes in all. Every call is
    made in all processes together."""

    def __init__(self, whole: nn.Module | None) -> None:
        """`whole`: the loaded model in the first process, None elsewhere. Its tensors are released
        as they are sent."""
        self._tensors: dict[str, Tensor] = {}
        self._held: dict[str, Tensor] = {}
        if whole is not None:
            for name, parameter in whole.named_parameters():
                self._tensors[name] = parameter.detach()
            self._held = {name: buffer.detach() for name, buffer in _buffers(whole).items()}
        headers: tuple[Headers, Headers] = share((_headers(self._tensors), _headers(self._held)))
        self._parameter_headers, self._held_headers = headers

    def adopt(self, model: nn.Module) -> None:
        """Give a skeleton's parameters the dtypes that the loaded ones have. Raises ConfigError
        where the two are different models."""
        parameters = dict(model.named_parameters())
        _require_same(self._parameter_headers, parameters)
        _require_same(self._held_headers, _buffers(model))
        for name, parameter in parameters.items():
            parameter.data = parameter.data.to(self._parameter_headers[name][0])

    def whole(self, name: str, device: torch.device) -> Tensor:
        """The whole parameter `name` on `device`; to be called once for each name."""
        dtype, shape = self._parameter_headers[name]
        return _broadcast(self._tensors.pop(name, None), dtype, shape, device)

    @torch.no_grad()
    def fill_held(self, model: nn.Module, device: torch.device) -> None:
        """Put the buffers in place."""
        for name, buffer in list(held_tensors(model)):
            dtype, shape = self._held_headers[name]
            buffer.put(_broadcast(self._held.pop(name, None), dtype, shape, device))


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.tensor for name, buffer in held_tensors(model)}


def _broadcast(
    source: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """The first process's `source` in all of them."""
    if source is None:
        tensor = torch.empty(shape, dtype=dtype, device=device)
    else:
        tensor = source.to(device).contiguous()
    if tensor.numel():
        dist.broadcast(tensor, src=0)
    return tensor


def _headers(tensors: dict[str, Tensor]) -> Headers:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def _require_same(loaded: Headers, built: dict[str, Any]) -> None:
    """Raise ConfigError unless both have the same names and shapes."""
    differing: list[str] = []
    for name in sorted(loaded.keys() | built.keys()):
        same_names = name in loaded and name in built
        if not same_names or loaded[name][1] != tuple(built[name].shape):
            differing.append(name)
    if differing:
        names = ", ".join(differing[:3])
        if len(differing) > 3:
            names += ", ..."
        raise ConfigError(
            f"the model built from config.json differs from the loaded one in {len(differing)}"
            f" tensors ({names}), so its weights cannot be spread over several training processes:"
            " train with one process, or choose a checkpoint whose config.json describes it"
        )
