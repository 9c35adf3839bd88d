"""What makes two verdicts the same verdict: the scorer's content, its settings that change numbers,
and the request itself.

A checkpoint is known by its content, so a copy in another folder has the same key. Files up to 16
MiB count with every byte. Of larger weight files count the size, the first and last MiB, the whole
safetensors header and both ends of every tensor (of other formats: evenly spread blocks): that is a
few MiB of reading, and a training that moves any tensor moves the key. Of a remote server only its
address and model name can be known; whoever changes the model behind them has to change the file
too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rmrl.errors import ConfigError
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.scoring_base import EngineSpec
from rmrl.models.checkpoint_inspect import local_checkpoint
from rmrl.rewards.remote.spec import HTTPSpec

_VERSION = "1"
"""Part of every key; raise it when the meaning of a key's parts changes."""
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
"""What training leaves beside a model and no scorer reads."""
_WHOLE_FILE_BYTES = 16 * 2**20
_END_BYTES = 2**20
_SAMPLE_BYTES = 4096
_SPREAD_SAMPLES = 1024
_SHORT_FROM = 16
_SECRET_WORDS = ("auth", "key", "token", "cookie", "secret")

_NOT_THE_NUMBER = frozenset({
    # Of an EngineSpec: where and how fast it runs, which moves the last digits as much as batching
    # does.
    "device", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "gpu_memory_utilization", "kv_cache_bytes", "threads",
    "pool", "replicas",
    # Of an HTTPSpec: how it is asked, not what.
    "api_key_env", "timeout_s", "max_concurrency", "requests_per_minute", "max_tries", "batch_size",
})  # fmt: skip
"""All other settings are part of the key, those that are yet to come included."""

_Stamp = tuple[tuple[str, int, int], ...]


def scorer_key(engine: EngineSpec | HTTPSpec, *, code_hash: str) -> str:
    """sha256 (hex) of everything besides the request that changes the number. `code_hash`: of the
    drop-in, "" without one.

    Raises ConfigError when the checkpoint is not there or cannot be read.
    """
    parts = _server(engine) if isinstance(engine, HTTPSpec) else _engine(engine)
    return hashlib.sha256(_canonical([_VERSION, parts, code_hash])).hexdigest()


def request_key(scorer: str, method: str, request: Any) -> bytes:
    """32 bytes for one request; `request` is a frozen dataclass of plain values, `scorer` a
    `scorer_key`."""
    return hashlib.sha256(_canonical([scorer, method, request])).digest()


def checkpoint_identity(path: str) -> str:
    """Of a hub snapshot its revision, of any other folder the sha256 of its content; read again
    when a file changed."""
    folder = Path(path).expanduser()
    folder = folder if folder.is_dir() else local_checkpoint(path)
    if folder.parent.name == "snapshots":
        return f"{folder.parent.parent.name}@{folder.name}"
    try:
        return _content_hash(folder.resolve(), _stamp(folder.resolve()))
    except OSError as error:
        raise ConfigError(
            f"the checkpoint '{path}' cannot be read ({error}); its content is part of the cache's"
            " keys"
        ) from error


def _engine(spec: EngineSpec) -> dict[str, Any]:
    # An engine that does not load a checkpoint gives `path` a meaning of its own.
    own = not engine_facts(spec.name).loads_checkpoint
    path = spec.path if own and not Path(spec.path).is_dir() else checkpoint_identity(spec.path)
    return _settings(spec) | {"path": path, "kwargs": dict(spec.kwargs)}


def _server(spec: HTTPSpec) -> dict[str, Any]:
    headers = {
        name.lower(): value
        for name, value in spec.headers.items()
        if not any(word in name.lower() for word in _SECRET_WORDS)
    }
    return _settings(spec) | {"url": spec.url.rstrip("/"), "headers": headers}


def _settings(spec: EngineSpec | HTTPSpec) -> dict[str, Any]:
    settings = {
        f.name: getattr(spec, f.name)
        for f in dataclasses.fields(spec)
        if f.name not in _NOT_THE_NUMBER
    }
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
    }


def _canonical(value: Any) -> bytes:
    return json.dumps(
        value, default=_plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True
    ).encode()


def _plain(value: Any) -> Any:
    """Dataclasses as name and fields (`dataclasses.asdict` would visit every token); anything else
    as its repr."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"": type(value).__name__} | {
            f.name: _short(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    return repr(value)


def _short(value: Any) -> Any:
    """Token ids as a hash of their bytes: writing them out as text would take most of the time."""
    if not isinstance(value, tuple) or len(value) < _SHORT_FROM:
        return value
    try:
        return {"ints": hashlib.sha256(array("q", value)).hexdigest()}
    except (TypeError, OverflowError):
        return value


def _files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if (
            not hidden
            and file.suffix in _CONTENT
            and not file.name.startswith(_NOT_CONTENT)
            and file.is_file()
        ):
            yield file


def _stamp(folder: Path) -> _Stamp:
    """Changes when a file is written anew; never part of a key, it only says when to read again."""
    return tuple(
        (str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in _files(folder)
    )


@lru_cache(maxsize=256)
def _content_hash(folder: Path, stamp: _Stamp) -> str:
    digest = hashlib.sha256()
    for name, size, _ in stamp:
        digest.update(_canonical([name, size]))
        _add_file(digest, folder / name, size)
    return digest.hexdigest()


def _add_file(digest: Any, file: Path, size: int) -> None:
    with file.open("rb") as stream:
        if size <= _WHOLE_FILE_BYTES:
            digest.update(stream.read())
            return
        starts = _tensor_ends(stream, size) if file.suffix == ".safetensors" else None
        if starts is None:
            starts = [size * i // _SPREAD_SAMPLES for i in range(_SPREAD_SAMPLES)]
        for start, length in [
            (0, _END_BYTES),
            (size - _END_BYTES, _END_BYTES),
            *((start, _SAMPLE_BYTES) for start in starts),
        ]:
            stream.seek(start)
            digest.update(stream.read(length))


def _tensor_ends(stream: Any, size: int) -> list[int] | None:
    """Where to read to see both ends of every tensor, and all of the header; None of a file whose
    header does not parse."""
    length = int.from_bytes(stream.read(8), "little")
    if 8 + length > size:
        return None
    try:
        header = json.loads(stream.read(length))
        spans = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        ends = [
            start for first, last in spans for start in (first, max(first, last - _SAMPLE_BYTES))
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return [*range(0, 8 + length, _SAMPLE_BYTES), *(8 + length + start for start in ends)]
