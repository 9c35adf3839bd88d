"""megatron-core on CPU: replacements for CUDA calls where there is no CUDA. No other file depends
on them. They do nothing on CUDA machines.

megatron-core uses `device="cuda"`, `torch.cuda.current_device()`, streams and the CUDA generator
wherever it allocates. Inside `adapted()`, in the calling thread alone, these mean the CPU. With
gloo as the process group's backend the rest is device-independent.

What `install` changes for the whole process, and only where `torch.cuda.is_available()` is False:
    - `CALLS`' functions in torch.cuda, and the classes Stream and Event. Each checks whether
      the calling thread is inside `adapted()`; outside they keep their behaviour (which without
      CUDA is mostly to raise);
    - torch.compile is the identity while megatron-core is first imported, in the importing
      thread alone: megatron-core decorates dozens of small functions with it, and every one would
      be compiled by a C++ compiler at its first call;
    - five names inside megatron.core's own modules, and one stand-in for a module of Triton kernels
      that nothing here calls.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")

_installing = threading.Lock()


class _Process:
    installed = False


class _Thread(threading.local):
    """The calling thread's state."""

    adapted = 0
    importing = False


_process = _Process()
_thread = _Thread()


def install() -> None:
    """Adapt this process. Call before megatron is first imported. Once. Nothing where CUDA is
    available.

    Raises RuntimeError where megatron-core was imported before: its functions are compiled ones by
    then.
    """
    if torch.cuda.is_available():
        return
    with _installing:
        if _process.installed:
            return
        if "megatron.core" in sys.modules:
            raise RuntimeError(
                "megatron.core was imported before rmrl.backends.megatron.core: import it from"
                " there"
            )
        for name, stand_in in CALLS.items():
            _adapt(torch.cuda, name, stand_in)
        for name in ("get_rng_state", "set_rng_state", "manual_seed"):
            _adapt(torch.cuda.random, name, CALLS[name])
        for name in ("range_push", "range_pop"):
            _adapt(torch.cuda.nvtx, name, _nothing)
        for name in ("Stream", "Event"):
            setattr(torch.cuda, name, _adapted_class(getattr(torch.cuda, name)))
        _import_megatron()
        _adapt_megatron()
        _process.installed = True


@contextlib.contextmanager
def adapted() -> Iterator[None]:
    """Surround every call into megatron-core: CUDA means CPU in this thread. Does nothing where
    CUDA is available.

    Never yield to foreign code from inside it.
    """
    if torch.cuda.is_available():
        yield
        return
    _thread.adapted += 1
    try:
        outermost = _thread.adapted == 1
        with _CudaIsCpu() if outermost else contextlib.nullcontext():
            yield
    finally:
        _thread.adapted -= 1


class _CudaIsCpu(TorchFunctionMode):
    """Makes device="cuda" the CPU in every torch call that this thread makes, t.cuda() return t,
    and t.type() return CUDA tensors' names."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            # The optimizers take parameters of these names and no others.
            return func(args[0]).replace("torch.", "torch.cuda.", 1)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        if func is torch.Tensor.to:
            args = tuple(CPU if _is_cuda(value) else value for value in args)
        return func(*args, **kwargs)


def _is_cuda(value: object) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


class _Synchronous:
    """Replaces a stream or an event: on CPU everything has happened when a call returns."""

    device = CPU

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def query(self) -> bool:
        return True

    def record_event(self, *_: Any) -> _Synchronous:
        return _Synchronous()

    def elapsed_time(self, _: Any) -> float:
        return 0.0

    def __enter__(self) -> _Synchronous:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _set_rng_state(state: torch.Tensor, *_: Any, **__: Any) -> None:
    torch.set_rng_state(state)


def _get_rng_state(*_: Any, **__: Any) -> torch.Tensor:
    return torch.get_rng_state()


CALLS: dict[str, Callable[..., Any]] = {
    "current_device": lambda: CPU,  # only ever used as device=torch.cuda.current_device()
    "synchronize": _nothing,
    "empty_cache": _nothing,
    "set_device": _nothing,
    "current_stream": _Synchronous,
    "default_stream": _Synchronous,
    "stream": lambda _: contextlib.nullcontext(),
    "memory_allocated": _zero,
    "max_memory_allocated": _zero,
    "memory_reserved": _zero,
    "get_rng_state": _get_rng_state,
    "set_rng_state": _set_rng_state,
    # torch.manual_seed calls cuda.manual_seed_all, which is left alone for that reason.
    "manual_seed": lambda seed: torch.default_generator.manual_seed(seed),
}
"""Functions of torch.cuda -> their replacements inside `adapted()`."""


def _adapt(module: types.ModuleType, name: str, stand_in: Callable[..., Any]) -> None:
    """Replace a function by one that is `stand_in` inside `adapted()` and the function itself
    elsewhere."""
    real = getattr(module, name)

    @functools.wraps(real)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        function = stand_in if _thread.adapted else real
        return function(*args, **kwargs)

    setattr(module, name, chosen)


def _adapted_class(real: type) -> type:
    """`_adapt` for a class: the result is a subclass, so that isinstance and annotations keep their
    meaning."""

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        if _thread.adapted:
            return _Synchronous()
        return real.__new__(cls, *args, **kwargs)

    return type(real)(
        real.__name__,
        (real,),
        {"__new__": make, "__doc__": real.__doc__, "__module__": real.__module__},
    )


def _import_megatron() -> None:
    """megatron-core's first import."""
    if importlib.util.find_spec("triton") is None:
        # Versions with this module import it, Triton or not; its functions run on GPUs alone.
        kernels = types.ModuleType("megatron.core.transformer.moe.ops.paged_stash")
        kernels.__dict__.update(
            GLOBAL_BLOCK_SIZE=1024, paged_stash_copy_kernel=None, paged_stash_pop_kernel=None
        )
        sys.modules[kernels.__name__] = kernels
    real = torch.compile
    _thread.importing = True

    def compile_(model: Any = None, **options: Any) -> Any:
        if not _thread.importing:
            return real(model, **options)
        if model is None:
            return lambda function: function
        return model

    torch.compile = compile_
    try:
        for name in ("dist_checkpointing", "models.gpt", "optimizer"):
            importlib.import_module(f"megatron.core.{name}")
        importlib.import_module("megatron.core.jit").disable_jit_fuser()
    finally:
        torch.compile = real
        _thread.importing = False


def _adapt_megatron() -> None:
    random = importlib.import_module("megatron.core.tensor_parallel.random")
    moe_utils = importlib.import_module("megatron.core.transformer.moe.moe_utils")
    dispatcher = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    random.__dict__.update(_set_cuda_rng_state=_set_rng_state, _get_cuda_rng_state=_get_rng_state)
    # It warns that the CPU generator's state changed: there is no other generator here.
    logging.getLogger(random.__name__).addFilter(
        lambda record: "CPU RNG state changed" not in record.getMessage()
    )
    # Some versions read this name without TransformerEngine too.
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.__dict__.update(te_general_gemm=None)
    # The original returns a tensor on the CPU unchanged, even if numbers are needed.
    if hasattr(dispatcher, "maybe_move_tensor_to_cpu"):
        dispatcher.__dict__.update(maybe_move_tensor_to_cpu=_as_numbers)


def _as_numbers(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:  # noqa: ARG001
    if as_numpy and isinstance(tensor, torch.Tensor):
        return tensor.numpy()
    return tensor
