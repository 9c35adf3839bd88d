"""Verdicts' keys: the scorer's content, its settings that change numbers, and the request itself.

A checkpoint, like an adapter, is identified by its content, so a copy in another folder has the
same key. Files up to 16 MiB count with every byte. Of larger weight files count the size, the first
and last MiB, the whole safetensors header and both ends of every tensor (of other formats: evenly
spread blocks): that means reading a few MiB, and a training that moves any tensor moves the key. A
remote server is identified by its address and model name only; whoever changes the model behind
them has to change the file too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from array import array
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rmrl.digests import canonical_json
from rmrl.errors import ConfigError
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.models.checkpoint_inspect import local_checkpoint
from rmrl.rewards.remote.spec import HTTPSpec

_VERSION = "1"
"""Part of every key. Raise it when the meaning of a key's parts changes."""
_CONTENT = (
    ".json",
    ".txt",
    ".model",
    ".jinja",
    ".tiktoken",
    ".py",
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".gguf",
    ".onnx",
)
_NOT_CONTENT = (
    "trainer_state.json",
    "training_args.bin",
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "rng_state",
    "manifest.json",
)
"""Files that training leaves beside a model and no scorer reads."""
_WHOLE_FILE_BYTES = 16 * 2**20
_END_BYTES = 2**20
_SAMPLE_BYTES = 4096
_SPREAD_SAMPLES = 1024
_SHORT_FROM = 16
_SECRET_WORDS = ("auth", "key", "token", "cookie", "secret")

_NOT_THE_NUMBER = frozenset(
    {
        # EngineSpec: place and speed, which move the last digits no more than batching does.
        "device",
        "max_num_seqs",
        "max_num_batched_tokens",
        "tensor_parallel_size",
        "gpu_memory_utilization",
        "kv_cache_bytes",
        "threads",
        "pool",
        "replicas",
        # The adapters of other rewards on the engine.
        "adapters",
        # HTTPSpec: the manner of the request, not its content.
        "api_key_env",
        "timeout_s",
        "max_concurrency",
        "requests_per_minute",
        "max_tries",
        "batch_size",
    }
)
"""Settings that are no part of the key. All others are, future ones included."""

_Stamp = tuple[tuple[str, int, int], ...]


def scorer_key(engine: EngineSpec | HTTPSpec, *, code_hash: str) -> str:
    """Return the sha256 (hex) of everything besides the request that changes the number.
    `code_hash`: the drop-in's, "" without one.

    Raises ConfigError when the checkpoint is missing or cannot be read.
    """
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(engine):
        if field.name not in _NOT_THE_NUMBER:
            value = getattr(engine, field.name)
            parts[field.name] = dict(value) if isinstance(value, Mapping) else value
    if not parts.get("adapter"):
        parts.pop("adapter", None)  # so that keys of earlier versions stay valid
    if isinstance(engine, HTTPSpec):
        parts["url"] = engine.url.rstrip("/")
        parts["headers"] = {}
        for name, value in engine.headers.items():
            if not any(word in name.lower() for word in _SECRET_WORDS):
                parts["headers"][name.lower()] = value
    # An engine that does not load a checkpoint gives `path` a meaning of its own.
    elif engine_facts(engine.name).loads_checkpoint or Path(engine.path).is_dir():
        parts["path"] = checkpoint_identity(engine.path)
    if "adapter" in parts:
        parts["adapter"] = _folder_identity(Path(parts["adapter"]))
    return hashlib.sha256(_canonical([_VERSION, parts, code_hash])).hexdigest()


def request_key(scorer: str, method: str, request: Any) -> bytes:
    """Return 32 bytes for one request; `request` is a frozen dataclass with plain values, `scorer`
    a `scorer_key`."""
    if getattr(request, "choice_tokens", ()) and request.token_ids:
        method = f"{method}, float32 logits"  # earlier versions rounded what is read
    return hashlib.sha256(_canonical([scorer, method, request])).digest()


def checkpoint_identity(path: str) -> str:
    """Return the revision of a hub snapshot, any other folder's content as sha256; files are read
    again when one has changed."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        folder = local_checkpoint(path)
    return _folder_identity(folder)


def _folder_identity(folder: Path) -> str:
    if folder.parent.name == "snapshots":
        return f"{folder.parent.parent.name}@{folder.name}"
    try:
        return _content_hash(folder.resolve(), _stamp(folder.resolve()))
    except OSError as error:
        raise ConfigError(
            f"the checkpoint '{folder}' cannot be read ({error}); its content is part of the"
            " cache's keys"
        ) from error


_ADDED = ("adapter", "stop_token_ids")
"""Fields that earlier versions did not have."""


def _canonical(value: Any) -> bytes:
    return canonical_json(value, default=_plain, compact=True)


def _plain(value: Any) -> Any:
    """Dataclasses as name and fields (`dataclasses.asdict` would visit every token); anything else
    as its repr."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    plain: dict[str, Any] = {"": type(value).__name__}
    for field in dataclasses.fields(value):
        if not field.compare:
            continue  # requests that compare as equal have one key
        part = getattr(value, field.name)
        if field.name in _ADDED and not part:
            continue  # so that keys of earlier versions stay valid
        if isinstance(part, tuple) and len(part) >= _SHORT_FROM:
            # Token ids as a hash of their bytes: writing them as text would take most of the time.
            with contextlib.suppress(TypeError, OverflowError):
                part = {"ints": hashlib.sha256(array("q", part)).hexdigest()}
        plain[field.name] = part
    return plain


def _stamp(folder: Path) -> _Stamp:
    """(name, size, modification time) of each visible file that a scorer reads: changes when a file
    is written anew. No part of a key. It only triggers a new reading."""
    entries: list[tuple[str, int, int]] = []
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or file.suffix not in _CONTENT or file.name.startswith(_NOT_CONTENT):
            continue
        if file.is_file():
            status = file.stat()
            entries.append((str(name), status.st_size, status.st_mtime_ns))
    return tuple(entries)


@lru_cache(maxsize=256)
def _content_hash(folder: Path, stamp: _Stamp) -> str:
    digest = hashlib.sha256()
    for name, size, _ in stamp:
        digest.update(_canonical([name, size]))
        file = folder / name
        with file.open("rb") as stream:
            if size <= _WHOLE_FILE_BYTES:
                digest.update(stream.read())
                continue
            starts = _tensor_ends(stream, size) if file.suffix == ".safetensors" else None
            if starts is None:
                starts = [size * i // _SPREAD_SAMPLES for i in range(_SPREAD_SAMPLES)]
            for start in (0, size - _END_BYTES):
                stream.seek(start)
                digest.update(stream.read(_END_BYTES))
            for start in starts:
                stream.seek(start)
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _tensor_ends(stream: Any, size: int) -> list[int] | None:
    """Offsets of samples that cover the header and both ends of every tensor, None for a file whose
    header does not parse."""
    length = int.from_bytes(stream.read(8), "little")
    data_start = 8 + length
    if data_start > size:
        return None
    starts = list(range(0, data_start, _SAMPLE_BYTES))
    try:
        for name, entry in json.loads(stream.read(length)).items():
            if name != "__metadata__":
                first, end = entry["data_offsets"]
                last = max(first, end - _SAMPLE_BYTES)
                starts += [data_start + first, data_start + last]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return starts
