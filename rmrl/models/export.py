"""Write a Hugging Face folder that transformers and the inference engines load as they are."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rmrl.models.classifier_padding import padded_apart

SHARD_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """Processes that write one folder together, each with every tensor: the files are dealt out
    among them."""

    rank: int = 0
    count: int = 1
    barrier: Callable[[], object] = lambda: None
    """Waits for all of them."""


ALONE = Writers()


def save_hf_folder(
    folder: Path,
    model: PreTrainedModel,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    shard_bytes: int = SHARD_BYTES,
    check: Callable[[Path], None] | None = None,
    writers: Writers = ALONE,
) -> None:
    """Write config, generation config, weights and tokenizer to `folder`, which appears complete or
    not at all.

    `tensors` yields full tensors by their Hugging Face names, one at a time: memory holds two
    files' worth (`shard_bytes` each) in the process that writes them. An existing folder with that
    name is replaced. `model` is read for its configs only. `check` is called with the finished
    folder before it gets its name. After an error in it nothing is left behind. With `writers`
    every process calls this, on a file system that they share. The first one writes the rest and
    gives the folder its name.
    """
    is_first = writers.rank == 0
    name = uuid.uuid4().hex[:8] if writers.count == 1 else "writing"
    building = folder.with_name(f".{folder.name}.{name}")
    if is_first:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
    writers.barrier()
    try:
        shards = _write_shards(building, tensors, shard_bytes, writers)
        writers.barrier()
        if not is_first:
            return
        shards.name_files(building)
        if tokenizer is not None and _classifies(model):
            tokenizer = padded_apart(tokenizer, model.config)
        _write_configs(building, model, shards.dtype, tokenizer)
        if tokenizer is not None:
            tokenizer.save_pretrained(building)
        if check is not None:
            check(building)
        # An older folder is renamed first and removed last: one of the two is always whole.
        older = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.old")
        if folder.exists():
            folder.rename(older)
        building.rename(folder)
        shutil.rmtree(older, ignore_errors=True)
    finally:
        if is_first:
            shutil.rmtree(building, ignore_errors=True)


@dataclass(slots=True)
class _Shards:
    """Each file's tensors, the same in every process, whoever writes it."""

    files: list[list[str]]
    total_bytes: int = 0
    dtype: str = ""
    """Dtype of the first tensor, "" without tensors."""

    def name_files(self, folder: Path) -> None:
        """Give the files the names that transformers looks for, which hold their number, and write
        their index."""
        if len(self.files) == 1:
            (folder / "part-0").rename(folder / "model.safetensors")
            return
        weight_map: dict[str, str] = {}
        for number, names in enumerate(self.files):
            file = f"model-{number + 1:05d}-of-{len(self.files):05d}.safetensors"
            (folder / f"part-{number}").rename(folder / file)
            weight_map.update(dict.fromkeys(names, file))
        index = {"metadata": {"total_size": self.total_bytes}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _write_shards(
    folder: Path, tensors: Iterable[tuple[str, Tensor]], shard_bytes: int, writers: Writers
) -> _Shards:
    """Stream `tensors` into safetensors files, of which this process writes its own: one is written
    by a thread while the next one fills, so that gathering does not wait for the disk."""
    shards = _Shards(files=[[]])
    pending: dict[str, Tensor] = {}
    size = 0
    writing: Future[None] | None = None

    def is_own() -> bool:
        return (len(shards.files) - 1) % writers.count == writers.rank

    def flush() -> None:
        nonlocal pending, writing
        if not is_own():
            return
        if writing is not None:
            writing.result()
        file = folder / f"part-{len(shards.files) - 1}"
        # A tensor may be a view of a parameter, which the next step changes: all are written before
        # this function returns.
        writing = thread.submit(save_file, pending, file, metadata={"format": "pt"})
        pending = {}

    with ThreadPoolExecutor(1) as thread:
        for name, tensor in tensors:
            tensor_bytes = tensor.numel() * tensor.element_size()
            if shards.files[-1] and size + tensor_bytes > shard_bytes:
                flush()
                shards.files.append([])
                size = 0
            shards.files[-1].append(name)
            if is_own():
                pending[name] = tensor.detach().cpu().contiguous()
            size += tensor_bytes
            shards.total_bytes += tensor_bytes
            shards.dtype = shards.dtype or str(tensor.dtype).removeprefix("torch.")
        flush()
        if writing is not None:
            writing.result()
    return shards


def _write_configs(
    folder: Path, model: PreTrainedModel, dtype: str, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    config = type(model.config).from_dict(model.config.to_dict())
    if tokenizer is not None and _classifies(model):
        config.pad_token_id = tokenizer.pad_token_id
    config.architectures = [type(model).__name__]
    config.dtype = dtype or config.dtype
    config.use_cache = True
    config.save_pretrained(folder)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)


def _classifies(model: PreTrainedModel) -> bool:
    return type(model).__name__.endswith("ForSequenceClassification")
