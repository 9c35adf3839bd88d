"""Write a Hugging Face folder that transformers and the inference engines load as they are."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

SHARD_BYTES = 4 * 2**30


def save_hf_folder(
    folder: Path,
    model: PreTrainedModel,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    shard_bytes: int = SHARD_BYTES,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Write config, generation config, weights and tokenizer to `folder`, which appears complete or
    not at all.

    `tensors` yields full tensors by their Hugging Face names, one at a time: memory holds one
    file's worth (`shard_bytes`). An existing folder of that name is replaced. `model` is read for
    its configs only. `check` is called with the finished folder before it gets its name; after an
    error of it nothing is left behind.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    building.mkdir()
    try:
        dtype = _write_shards(building, tensors, shard_bytes)
        _write_configs(building, model, dtype, tokenizer)
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
        shutil.rmtree(building, ignore_errors=True)


def _write_shards(folder: Path, tensors: Iterable[tuple[str, Tensor]], shard_bytes: int) -> str:
    """Stream `tensors` into safetensors files and their index; returns the dtype's name, "" without
    tensors."""
    files: list[list[str]] = []
    pending: dict[str, Tensor] = {}
    size = total = 0
    dtype = ""

    def flush() -> None:
        save_file(pending, folder / f"part-{len(files)}", metadata={"format": "pt"})
        files.append(list(pending))
        pending.clear()

    for name, tensor in tensors:
        tensor_bytes = tensor.numel() * tensor.element_size()
        if pending and size + tensor_bytes > shard_bytes:
            flush()
            size = 0
        pending[name] = tensor.detach().cpu().contiguous()
        size += tensor_bytes
        total += tensor_bytes
        dtype = dtype or str(tensor.dtype).removeprefix("torch.")
    flush()
    if len(files) == 1:
        (folder / "part-0").rename(folder / "model.safetensors")
        return dtype
    # The number of files, a part of the names transformers looks for, is known only now.
    weight_map: dict[str, str] = {}
    for number, names in enumerate(files):
        file = f"model-{number + 1:05d}-of-{len(files):05d}.safetensors"
        (folder / f"part-{number}").rename(folder / file)
        weight_map.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return dtype


def _write_configs(
    folder: Path, model: PreTrainedModel, dtype: str, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    config = type(model.config).from_dict(model.config.to_dict())
    classifies = type(model).__name__.endswith("ForSequenceClassification")
    if tokenizer is not None and config.pad_token_id is None and classifies:
        # A classifier reads the last token that is not padding.
        config.pad_token_id = tokenizer.pad_token_id
    config.architectures = [type(model).__name__]
    config.dtype = dtype or config.dtype
    config.use_cache = True
    config.save_pretrained(folder)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)
