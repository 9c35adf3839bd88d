"""hf://name/split as a row file: a data set's split on the Hugging Face hub, or in a local folder
that the package datasets reads.

The split is streamed, without the other splits, into a jsonl file below datasets' cache folder,
once: jobs read their rows several times, and a job that continues needs the rows that it began
with.
"""

# pyright: basic
# The package datasets is only partly typed.

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.data.json_text import json_text
from rmrl.errors import ConfigError, DataError, first_line
from rmrl.files import put_in_place

_log = logging.getLogger(__name__)

SCHEME = "hf://"
_FORMS = "hf://owner/name/split, or hf://owner/name/configuration/split"
_DIGEST_BYTES = 8
_reported: set[Path] = set()


def hub_file(address: str, key: str) -> Path:
    """Return the file with hf://name/split's rows. The first call for it writes the file. `key`
    (data.files) appears in errors.

    Raises ConfigError for another address form and without the package datasets, DataError where
    the rows cannot be read or kept.
    """
    split = split_of(address, key)
    path = split.path()
    if path.is_file():
        if path not in _reported:
            _log.info(f"{address} was read before into {path}; remove the file to read it again")
            _reported.add(path)
        return path
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _log.info(f"reading {address}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        count = 0
        with fresh.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for row in split.rows():
                file.write(json_text(row) + "\n")
                count += 1
        put_in_place(fresh, path)
    except OSError as error:
        raise DataError(
            f"{key}: the rows of {address} cannot be kept in {path.parent} ({error}); make room, or"
            " name another folder in the environment variable HF_DATASETS_CACHE"
        ) from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    _log.info(f"wrote {path}: {count} rows")
    _reported.add(path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSplit:
    """One split in a data set."""

    address: str
    key: str
    name: str
    """Id on the hub, or a local folder, which takes precedence as in the package datasets."""
    configuration: str | None
    """None: the only one."""
    split: str

    def path(self) -> Path:
        """Return the rows' file, beside the package datasets' own: for a local folder another one
        when a file in it changes."""
        words = [self.name, self.configuration or "", self.split]
        folder = Path(self.name)
        if folder.is_dir():
            folder = folder.resolve()
            digest = hashlib.blake2b(str(folder).encode(), digest_size=_DIGEST_BYTES)
            for path in sorted(folder.rglob("*")):
                status = path.stat()
                digest.update(f"{path}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
            words = [folder.name, digest.hexdigest(), self.split]
        home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
        cache = os.environ.get("HF_DATASETS_CACHE") or f"{home}/datasets"
        file_name = "--".join(filter(None, words)).replace("/", "--")
        return Path(cache).expanduser() / "rmrl" / f"{file_name}.jsonl"

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Stream the rows. Errors as in `hub_file`."""
        try:
            from datasets import load_dataset  # slow to import, and not needed for files
            from datasets.exceptions import DatasetsError
        except ImportError as error:
            raise ConfigError(
                f"{self.key}: {self.address} is read with the package datasets, which cannot be"
                f" imported ({first_line(error)}): pip install datasets"
            ) from error
        from httpx import HTTPError

        try:
            yield from load_dataset(self.name, self.configuration, split=self.split, streaming=True)
        except (OSError, ValueError, RuntimeError, HTTPError, DatasetsError) as error:
            advice = f"check the spelling ({_FORMS}) and the connection"
            if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0") and isinstance(error, OSError):
                advice = (
                    "HF_HUB_OFFLINE is set, so nothing is downloaded: unset it, or name files of"
                    " this machine"
                )
            elif isinstance(error, ValueError):
                advice = f"name what it has: {_FORMS}"
            raise DataError(
                f"{self.key}: {self.address} cannot be read ({type(error).__name__}:"
                f" {first_line(error)}); {advice}"
            ) from error


def split_of(address: str, key: str) -> HubSplit:
    """Return what an address names. Raises ConfigError for another form."""
    rest = address.removeprefix(SCHEME)
    name, _, split = rest.rpartition("/")
    configuration: str | None = None
    folder = Path(name).expanduser()
    is_local = bool(name) and folder.is_dir()
    words = rest.split("/")
    if is_local:
        name = str(folder)
    elif len(words) == 4:
        name = f"{words[0]}/{words[1]}"
        configuration = words[2]
    is_known = is_local or (2 <= len(words) <= 4 and "" not in words and words[0] != "datasets")
    if not is_known or not split:
        raise ConfigError(
            f"{key}: {address} names no split of a data set; need {_FORMS}, e.g."
            f" {key}=hf://openai/gsm8k/main/test; a folder of this machine stands in the place of"
            " owner/name"
        )
    return HubSplit(address=address, key=key, name=name, configuration=configuration, split=split)
