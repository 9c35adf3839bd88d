"""How the weights get into the shards at the start: the first process reads the checkpoint, the
others receive.

Every process builds the model without weights (on the meta device), so that only the first one ever
holds a whole copy. After sharding the tensors travel one at a time from there; each process keeps
its piece. Buffers (also those that no checkpoint holds, such as rotary frequencies) travel the same
way, so that no family needs to be known.
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
    """What `build` builds, without any storage."""
    with torch.device("meta"):
        return build()


def on_first(work: Callable[[], T]) -> T | None:
    """The result of `work` in the first process, None in the others; its error is raised in all of
    them."""
    result, message = None, None
    if dist.get_rank() == 0:
        try:
            result = work()
        except RmrlError as error:
            message = error
        except (
            Exception
        ) as error:  # whatever it is, the others must not wait for tensors that never come
            message = InfrastructureError(
                f"training process 0 could not build the model ({type(error).__name__}: {error})"
            )
            message.__cause__ = error
    raised = share(message)
    if raised is not None:
        raise message or raised
    return result


def share(value: Any) -> Any:
    """The first process's `value`, in all processes."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


@dataclass(slots=True)
class Held:
    """A tensor that a module holds and that is no parameter: a buffer, or an attribute of its
    own."""

    module: nn.Module
    key: str
    tensor: Tensor

    def put(self, tensor: Tensor) -> None:
        setattr(self.module, self.key, tensor)


def held_tensors(model: nn.Module) -> Iterator[tuple[str, Held]]:
    """Buffers and plain tensor attributes by name."""
    for path, module in model.named_modules():
        loose = {key: value for key, value in vars(module).items() if isinstance(value, Tensor)}
        for key, tensor in {**dict(module.named_buffers(recurse=False)), **loose}.items():
            yield f"{path}.{key}", Held(module, key, tensor)


class InitialWeights:
    """The whole model's tensors, in the first process; elsewhere what is known of them. Every call
    is made in all processes together."""

    def __init__(self, whole: nn.Module | None) -> None:
        """`whole`: the loaded model in the first process, None elsewhere. Its tensors are released
        as they are sent."""
        self._tensors = (
            {} if whole is None else {name: p.detach() for name, p in whole.named_parameters()}
        )
        self._held = (
            {}
            if whole is None
            else {name: held.tensor.detach() for name, held in held_tensors(whole)}
        )
        headers: tuple[Headers, Headers] = share((_headers(self._tensors), _headers(self._held)))
        self._parameter_headers, self._held_headers = headers

    def adopt(self, model: nn.Module) -> None:
        """Give the parameters of a skeleton the dtypes of the loaded ones. Raises ConfigError where
        the two are different models."""
        parameters = dict(model.named_parameters())
        _require_same(self._parameter_headers, parameters)
        _require_same(self._held_headers, {name: held.tensor for name, held in held_tensors(model)})
        for name, parameter in parameters.items():
            parameter.data = parameter.data.to(self._parameter_headers[name][0])

    def whole(self, name: str, device: torch.device) -> Tensor:
        """The whole parameter `name` on `device`; asked for once."""
        dtype, shape = self._parameter_headers[name]
        return _broadcast(self._tensors.pop(name, None), dtype, shape, device)

    @torch.no_grad()
    def fill_held(self, model: nn.Module, device: torch.device) -> None:
        """Put the buffers in place."""
        for name, held in list(held_tensors(model)):
            dtype, shape = self._held_headers[name]
            held.put(_broadcast(self._held.pop(name, None), dtype, shape, device))


def _broadcast(
    source: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    tensor = (
        torch.empty(shape, dtype=dtype, device=device)
        if source is None
        else source.to(device).contiguous()
    )
    if tensor.numel():
        dist.broadcast(tensor, src=0)
    return tensor


def _headers(tensors: dict[str, Tensor]) -> Headers:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def _require_same(loaded: Headers, built: dict[str, Any]) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in built.items()}
    differing = sorted(
        name
        for name in loaded.keys() | shapes.keys()
        if name not in loaded or loaded[name][1] != shapes.get(name)
    )
    if differing:
        shown = ", ".join(differing[:3]) + (", ..." if len(differing) > 3 else "")
        raise ConfigError(
            f"the model built from config.json differs from the loaded one in {len(differing)}"
            f" tensors ({shown}), so its weights cannot be spread over several training processes:"
            " train with one process, or choose a checkpoint whose config.json describes it"
        )
