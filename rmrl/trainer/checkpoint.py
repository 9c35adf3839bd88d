"""Checkpoint folders: complete or absent.

    <root>/step_000010/...             files of `write`
    <root>/step_000010/manifest.json   step, sizes and digests of all files, rmrl version, config
      fingerprint, its own digest
    <root>/best                        link to the one with the best validation
    <root>/.tmp-...                    being written, or being removed; removed by the next save

A folder gets its final name only after its files and its manifest have reached the disk. Files are
compared with the manifest when they are read, so a torn or altered checkpoint is skipped in favour
of the one before it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import re
import shutil
import time
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import rmrl
from rmrl.digests import digest
from rmrl.errors import CheckpointError, ConfigError
from rmrl.trainer.disk_full import is_disk_full

_log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
BEST = "best"
"""Link to the checkpoint with the best validation."""
FULL_DIGEST_BYTES = 2**30
"""Files up to this size are digested whole, larger ones by their first and last MiB (and their
size)."""
ENDS_BYTES = 2**20
_THREADS = 8
"""Files that are digested at once; hashing and waiting for the disk leave the interpreter free."""

_NAME = re.compile(r"step_(\d+)")
_TEMPORARY = ".tmp-"

Write = Callable[[Path], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    step: int
    config_fingerprint: str
    rmrl_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsealed:
    """A checkpoint whose files are written and may not have reached the disk yet."""

    root: Path
    folder: Path
    """Its temporary folder."""
    step: int
    config_fingerprint: str


async def write_files(
    root: Path, step: int, write: Write, *, config_fingerprint: str = ""
) -> Unsealed:
    """Call `write(folder)` on a temporary folder, for `seal`. What an earlier call left without a
    seal is removed.

    `write` may be a plain or an async function. If it raises or is cancelled, nothing new remains
    and older checkpoints are untouched. Raises CheckpointError when the disk is full.
    """
    root.mkdir(parents=True, exist_ok=True)
    for path in root.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
    folder = root / f"{_TEMPORARY}{folder_of(root, step).name}-{os.getpid()}"
    unsealed = Unsealed(root=root, folder=folder, step=step, config_fingerprint=config_fingerprint)
    with _removed_after_errors(unsealed):
        folder.mkdir()
    await add_files(unsealed, write)
    return unsealed


async def add_files(unsealed: Unsealed, write: Write) -> None:
    """Call `write(folder)` on the temporary folder, as `write_files` does."""
    with _removed_after_errors(unsealed):
        written = write(unsealed.folder)
        if inspect.isawaitable(written):
            await written


async def seal(unsealed: Unsealed) -> Checkpoint:
    """Bring the files to the disk, write their manifest and give the folder its name. A checkpoint
    of the same step is replaced.

    After an error nothing new remains and older checkpoints are untouched. Cancelled, the work goes
    on to its end, in its thread. Raises CheckpointError when the disk is full.
    """
    return await to_thread(_sealed, unsealed)


def _sealed(unsealed: Unsealed) -> Checkpoint:
    root = unsealed.root
    final = folder_of(root, unsealed.step)
    step = unsealed.step
    fingerprint = unsealed.config_fingerprint
    with _removed_after_errors(unsealed):
        _write_manifest(unsealed.folder, {"step": step, "config_fingerprint": fingerprint})
        if final.exists():
            _remove(final)
        unsealed.folder.rename(final)
        _sync(root)
    return Checkpoint(
        path=final, step=step, config_fingerprint=fingerprint, rmrl_version=rmrl.__version__
    )


@contextmanager
def _removed_after_errors(unsealed: Unsealed) -> Iterator[None]:
    """Remove the temporary folder when the block does not end well; CheckpointError for a full
    disk."""
    root = unsealed.root
    try:
        yield
    except BaseException as error:
        size = sum(path.stat().st_size for path in _files(unsealed.folder))
        # The folder still fills the disk here.
        is_full = isinstance(error, Exception) and is_disk_full(error, root)
        shutil.rmtree(unsealed.folder, ignore_errors=True)
        if not is_full:
            raise
        older = [path.name for path in _folders(root) if _looks_whole(path)]
        remaining = "there is no earlier checkpoint"
        if older:
            remaining = f"the last complete checkpoint is {older[-1]}, untouched"
        raise CheckpointError(
            f"the disk of {root} is full: the checkpoint of step {unsealed.step} could not be"
            f" written ({size / 2**20:.1f} MiB of it were); {remaining}. Free some space or set"
            " trainer.max_actor_ckpt_to_keep, then start the same command again."
        ) from error


def folder_of(root: Path, step: int) -> Path:
    """Return the folder with a step's checkpoint."""
    return root / f"step_{step:06d}"


def verify(path: Path) -> Checkpoint:
    """Compare every file of the checkpoint at `path` with its manifest. CheckpointError names the
    file and its fault."""
    manifest = _read_manifest(path)
    files = manifest["files"]

    def problem_of(name: str) -> str:
        return _problem(path / name, files[name])

    with ThreadPoolExecutor(_THREADS) as threads:
        for name, problem in zip(files, threads.map(problem_of, files), strict=True):
            if problem:
                raise CheckpointError(
                    f"the checkpoint {path} cannot be used: its file {name} {problem}."
                )
    return Checkpoint(
        path=path,
        step=manifest["step"],
        config_fingerprint=manifest["config_fingerprint"],
        rmrl_version=manifest["rmrl_version"],
    )


def newest_complete(root: Path, *, level: int = logging.WARNING) -> Checkpoint | None:
    """Return the newest checkpoint under `root` that verifies, None if none was ever saved. Each
    skipped one is logged at `level`.

    Raises CheckpointError where there are checkpoints and none can be used: a start from nothing
    would cut the run's logs away.
    """
    folders = _folders(root)
    for path in reversed(folders):
        try:
            return verify(path)
        except CheckpointError as error:
            _log.log(level, f"{error} It is skipped; the one before it is tried.")
    if folders:
        raise CheckpointError(
            f"no complete checkpoint is left under {root}: none of the {len(folders)} there can be"
            f" used. To start anew, remove {root} or choose another trainer.experiment_name."
        )
    return None


def last_step(root: Path) -> int:
    """Return the highest step in the name of a folder under `root`, complete or not; 0 without
    one."""
    folders = _folders(root)
    if folders:
        return int(folders[-1].name.removeprefix("step_"))
    return 0


def prune(root: Path, keep: int | None, best: int = -1) -> list[Path]:
    """Remove everything older than the `keep` newest checkpoints whose files are all present at
    full size, but for the one of step `best`. None: keep all.

    Torn folders do not count towards `keep`. Returns the removed folders. Raises ConfigError for
    `keep` below 1.
    """
    if keep is None:
        return []
    if keep < 1:
        raise ConfigError(
            f"trainer.max_actor_ckpt_to_keep={keep}: at least 1 must be kept; use null to keep all"
        )
    folders = _folders(root)
    whole = [path for path in folders if _looks_whole(path)]
    if len(whole) <= keep:
        return []
    spared = folder_of(root, best)
    old = [path for path in folders[: folders.index(whole[-keep])] if path != spared]
    for path in old:
        _remove(path)
    return old


def link_best(root: Path, step: int) -> None:
    """Have the link `best` name the checkpoint of `step`, where it is there."""
    folder = folder_of(root, step)
    if folder.is_dir():
        fresh = root / f"{_TEMPORARY}{BEST}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.name)
        fresh.replace(root / BEST)


def _folders(root: Path) -> list[Path]:
    """Folders with a checkpoint's name, oldest step first."""
    if not root.is_dir():
        return []
    folders = [path for path in root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name.removeprefix("step_")))


def _remove(path: Path) -> None:
    """Rename first: an interrupted removal must not leave half a checkpoint behind."""
    doomed = path.with_name(f"{_TEMPORARY}removed-{path.name}-{os.getpid()}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


# --- manifest


def _write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Sync every file to the disk, then write the manifest."""
    files: dict[str, Any] = {}
    paths = list(_files(folder))
    with ThreadPoolExecutor(_THREADS) as threads:
        for path, entry in zip(paths, threads.map(_entry, paths), strict=True):
            files[path.relative_to(folder).as_posix()] = entry
    manifest: dict[str, Any] = {
        "format": 1,
        **facts,
        "rmrl_version": rmrl.__version__,
        "saved_unix_s": int(time.time()),
        "files": files,
    }
    manifest["sha256"] = _self_digest(manifest)
    path = folder / MANIFEST
    path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    _sync(path)
    for entry in folder.rglob("*"):
        if entry.is_dir():
            _sync(entry)
    _sync(folder)


def _entry(path: Path) -> dict[str, Any]:
    """Sync a file to the disk. Return its entry in the manifest."""
    _sync(path)
    size = path.stat().st_size
    span = "all" if size <= FULL_DIGEST_BYTES else "ends"
    return {"bytes": size, "sha256": _digest(path, span), "span": span}


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest: Any = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        problem = f"it has no {MANIFEST}"
        inside = _folders(folder) or _folders(folder / "checkpoints")
        if not folder.exists():
            problem += ", there is no such folder"
        elif inside:
            problem += f", but it holds checkpoints: name one of them, e.g. {inside[-1]}"
        raise CheckpointError(f"the checkpoint {folder} cannot be used: {problem}.") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint {folder} cannot be used: its {MANIFEST} cannot be read ({error})."
        ) from error
    facts = cast("dict[str, Any]", manifest) if isinstance(manifest, dict) else {}
    if facts.get("sha256") != _self_digest(facts):
        raise CheckpointError(
            f"the checkpoint {folder} cannot be used: its {MANIFEST} was altered after it was"
            " written."
        )
    return facts


def _self_digest(manifest: dict[str, Any]) -> str:
    facts = {key: value for key, value in manifest.items() if key != "sha256"}
    return digest(facts)


def _problem(path: Path, expected: dict[str, Any]) -> str:
    """Describe the fault of a file, as the end of a sentence; "" for none."""
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"has {size} bytes where {expected['bytes']} were written"
        changed = _digest(path, expected["span"]) != expected["sha256"]
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error})"
    if changed:
        return "has other content than was written (sha256 differs)"
    return ""


def _looks_whole(folder: Path) -> bool:
    """Return whether the manifest is valid and all files have their full size; contents are not
    read."""
    try:
        files = _read_manifest(folder)["files"]
    except CheckpointError:
        return False
    for name, entry in files.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != entry["bytes"]:
            return False
    return True


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / MANIFEST:
            yield path


def _digest(path: Path, span: str) -> str:
    """sha256 of the whole file (span "all") or of its first and last MiB ("ends"), as hex."""
    with path.open("rb") as file:
        if span == "all":
            return hashlib.file_digest(file, "sha256").hexdigest()
        ends = hashlib.sha256(file.read(ENDS_BYTES))
        file.seek(-ENDS_BYTES, os.SEEK_END)
        ends.update(file.read())
        return ends.hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
