"""vLLM's CPU worker with a sleep that really frees memory, and a weight reload that also reaches
tied output heads and experts.

vLLM's own CPU worker ignores `sleep`. On CUDA the stock worker is used and this module is never
imported.

Two facts about the CPU build shape this file. Linear weights live in packed oneDNN handles
(`layer.cpu_linear`) beside an emptied `layer.weight`; and a reload repacks the layers whose loader
ran, which a *tied* output head's never does: it would go on computing with the old weights. Experts
are packed at the first load alone: after a reload their kernel would misread them. In both cases
only logprobs would tell.

A third: float32 matrix products choose their kernel, and with it a sum's order, by how many rows
there are, so that a score would change with its neighbours. Scoring heads are torch's products over
the sequences of a step: they get `HEAD_ROWS` rows each time. oneDNN's, in all other layers, differ
for a single row alone (a lone sequence that writes its next token): see `pair_lone_rows`.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.v1.worker.cpu_worker import CPUWorker

from rmrl.inference.vllm.lone_store import in_memory
from rmrl.models.linear_head import wide_linear

HEAD_ROWS = 32
"""Rows that a head computes at once; missing ones are zeros."""
Storages = list[tuple[torch.UntypedStorage, int]]
"""Each storage once, with the bytes it had before it was emptied."""


class SleepingCPUWorker(CPUWorker):
    """Level 1 frees the KV cache (weights are in host memory already); level 2 frees the weights
    too.

    After `wake_up` from level 2 the weights are allocated but undefined until `reload_weights`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._emptied: dict[str, Storages] = {}
        self._pairs = False

    def init_device(self) -> None:
        """Extend vLLM's method by seeded sampling in parts. See `rewind_discarded_draws`. A single
        worker leaves no file behind."""
        self.distributed_init_method = in_memory(
            self.distributed_init_method, processes=self.parallel_config.world_size
        )
        super().init_device()
        rewind_discarded_draws(self.model_runner)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Extend vLLM's method: heads compute equally large blocks."""
        super().load_model(*args, **kwargs)
        steady_heads(self.model_runner.get_model())

    def pair_lone_rows(self) -> None:
        """Compute no single row in any linear layer from now on, also after a reload. See the
        function of this name."""
        self._pairs = True
        pair_lone_rows(self.model_runner.get_model())

    def widen_heads(self, on: bool) -> None:
        """Compute logits in float32 from now on, or as vLLM does. See the function of this name."""
        widen_heads(self.model_runner.get_model(), on=on)

    def sleep(self, level: int = 1) -> None:
        """Free memory; sleeping again at a deeper level frees the rest."""
        if "kv_cache" not in self._emptied:
            forget(_tensors(self.model_runner.kv_caches))
            self._emptied["kv_cache"] = []
        if level >= 2 and "weights" not in self._emptied:
            model = self.model_runner.get_model()
            for module in model.modules():
                if getattr(module, "cpu_linear", None) is not None:
                    # The packed weights.
                    module.cpu_linear = None  # pyright: ignore[reportArgumentType]
            storages = [storage for storage in _storages(model.parameters()) if storage.nbytes()]
            self._emptied["weights"] = [(storage, storage.nbytes()) for storage in storages]
            for storage in storages:
                storage.resize_(0)
        _return_memory()

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Allocate again what `sleep` freed, or only the parts in `tags` ("weights",
        "kv_cache")."""
        for tag in tags or list(self._emptied):
            for storage, size in self._emptied.pop(tag, []):
                storage.resize_(size)

    def reload_weights(self, *args: Any, **kwargs: Any) -> None:
        """Extend vLLM's method: also repack tied heads and experts."""
        super().reload_weights(*args, **kwargs)
        self._repack()

    def finish_weight_update(self) -> None:
        """Extend vLLM's method: also repack tied heads and experts."""
        super().finish_weight_update()
        self._repack()

    def _repack(self) -> None:
        repack(self.model_runner.get_model())
        if self._pairs:
            pair_lone_rows(self.model_runner.get_model())
        _return_memory()


def rewind_discarded_draws(runner: Any) -> None:
    """Allow a request with its own seed to be prefilled in several parts.

    After each part but the last the sampled token is thrown away, and vLLM moves the request's
    generator back by its offset. A CPU generator has none: the engine would stop with "CPU
    Generator does not use offset". Here its whole state is put back instead.
    """
    sample = runner._sample
    bookkeep = runner._bookkeeping_sync

    def sample_and_rewind(*args: Any, **kwargs: Any) -> Any:
        states: list[tuple[torch.Generator, torch.Tensor]] = [
            (generator, generator.get_state())
            for i, generator in runner.input_batch.generators.items()
            if runner.discard_request_mask.np[i]
        ]
        try:
            return sample(*args, **kwargs)
        finally:
            for generator, state in states:
                generator.set_state(state)

    def bookkeep_without_offsets(*args: Any, **kwargs: Any) -> Any:
        generators = runner.input_batch.generators
        runner.input_batch.generators = {}
        try:
            return bookkeep(*args, **kwargs)
        finally:
            runner.input_batch.generators = generators

    runner._sample = sample_and_rewind
    runner._bookkeeping_sync = bookkeep_without_offsets


def steady_heads(model: torch.nn.Module) -> int:
    """Let every `torch.nn.Linear` compute `HEAD_ROWS` rows at a time, for any input. Return how
    many there are.

    Layers of the trunk are vLLM's own modules; plain ones are scoring and embedding models'
    projections and heads.
    """
    heads = [module for module in model.modules() if type(module) is torch.nn.Linear]
    for head in heads:
        head.forward = partial(in_blocks, head.forward)  # type: ignore[method-assign]
    return len(heads)


class _Paired:
    """A packed linear layer that computes a single row as one of two equal ones."""

    def __init__(self, compute: Callable[..., torch.Tensor]) -> None:
        self._compute = compute

    def __call__(self, x_RI: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
        if x_RI.ndim != 2 or len(x_RI) != 1:
            return self._compute(x_RI, *weights)
        return self._compute(torch.cat([x_RI, x_RI]), *weights)[:1]


def pair_lone_rows(model: torch.nn.Module) -> int:
    """Let packed linear layers compute two rows or more. Return how many were changed.

    For one row oneDNN takes another kernel, which adds up in another order.
    """
    count = 0
    for module in model.modules():
        compute = getattr(module, "cpu_linear", None)
        if compute is not None and not isinstance(compute, _Paired):
            module.cpu_linear = _Paired(compute)  # pyright: ignore[reportArgumentType]
            count += 1
    return count


def widen_heads(model: torch.nn.Module, *, on: bool) -> int:
    """Let output heads in half precision compute float32 logits, or give vLLM's method back. Return
    how many there are.

    vLLM's own way, `head_dtype`, converts the whole matrix at every step on CPU, with which a small
    model takes twice as long to write.
    """
    heads = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
    for head in heads:
        vars(head).pop("_apply_head", None)
        if on:
            vars(head)["_apply_head"] = wide_logits
    return len(heads)


def wide_logits(
    lm_head: torch.nn.Module, hidden_nH: torch.Tensor, bias_V: torch.Tensor | None
) -> torch.Tensor:
    """Return float32 logits [n, V], each row as if it were alone."""
    weight_VH: Any = lm_head.weight
    return in_blocks(lambda block_nH: wide_linear(block_nH, weight_VH, bias_V), hidden_nH)


def in_blocks(compute: Callable[[torch.Tensor], torch.Tensor], x_RI: torch.Tensor) -> torch.Tensor:
    """Apply `compute` to each row of x_RI ([rows, inputs] -> [rows, outputs]), in blocks with
    `HEAD_ROWS` rows."""
    if x_RI.ndim != 2 or not len(x_RI):
        return compute(x_RI)
    missing = -len(x_RI) % HEAD_ROWS
    padded = torch.nn.functional.pad(x_RI, (0, 0, 0, missing))
    blocks = [compute(block) for block in padded.split(HEAD_ROWS)]
    return torch.cat(blocks)[: len(x_RI)]


def repack(model: torch.nn.Module) -> None:
    """Rebuild the packed weights that vLLM leaves unchanged when it reloads: without this the model
    would silently return wrong probabilities."""
    repack_tied_heads(model)
    repack_experts(model)


def repack_experts(model: torch.nn.Module) -> int:
    """Pack every mixture's experts, which vLLM does at the first load only. Return how many
    mixtures there are."""
    count = 0
    for module in list(model.modules()):
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        if kernel is not None:
            kernel.fused_experts.process_weights_after_loading(module)
            count += 1
    return count


def repack_tied_heads(model: torch.nn.Module) -> int:
    """Rebuild every output head's packed copy from its (possibly shared) weight. Return how many
    heads there are."""
    count = 0
    for head in list(model.modules()):
        if isinstance(head, ParallelLMHead) and hasattr(head, "cpu_linear"):
            head.quant_method.process_weights_after_loading(head)
            count += 1
    return count


def _tensors(nested: Any) -> list[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        return [nested]
    values = nested.values() if isinstance(nested, dict) else nested
    return list(chain.from_iterable(map(_tensors, values)))


def forget(tensors: Any) -> None:
    """Give `tensors`' pages back to the system. Reading them afterwards gives 0, and costs memory
    only for the pages that are touched.

    Zeros matter: attention may read a cache's whole blocks, and garbage can be NaN.
    """
    for storage in _storages(tensors):
        start = storage.data_ptr()
        end = storage.data_ptr() + storage.nbytes()
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end // mmap.PAGESIZE * mmap.PAGESIZE
        if last <= first or _libc().madvise(
            ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED
        ):
            first = last = end
        ctypes.memset(start, 0, first - start)
        ctypes.memset(last, 0, end - last)


def _storages(tensors: Any) -> list[torch.UntypedStorage]:
    """Return each tensor's storage. Tied tensors share a storage, which is listed once."""
    storages: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
    return list(storages.values())


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _return_memory() -> None:
    """Give freed pages back to the system; glibc keeps them otherwise."""
    gc.collect()
    if sys.platform == "linux":
        _libc().malloc_trim(0)
