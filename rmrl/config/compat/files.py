"""`--config-path` and `--config-name`: verl's configuration files, and a user's own that start from
them, as overrides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from rmrl.config.compat.given_values import leaves, override
from rmrl.config.compat.use import STARTS
from rmrl.errors import ConfigError

_IGNORED = ("hydra", "defaults", "_target_")


def overrides_of(folder: str | None, stem: str) -> Iterator[str]:
    """Yield the overrides in the file that --config-path and --config-name name. `stem`: its name,
    "" for verl's own file. Raises ConfigError for a missing file, and for a file whose defaults are
    neither verl's nor beside it."""
    start = stem or "ppo_trainer"
    if folder is not None and _file(Path(folder), start).is_file():
        yield from _overrides(_file(Path(folder), start))
    elif start in STARTS:
        yield from STARTS[start]
    else:
        raise ConfigError(
            f"--config-path={folder} --config-name={stem}: no such file; start the command in the"
            " folder that the path is relative to, or give the file's keys as overrides (verl's own"
            f" files {' and '.join(STARTS)} need none)"
        )


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.yaml"


def _overrides(path: Path) -> Iterator[str]:
    """Yield the overrides in a file and its defaults. Later ones replace earlier ones."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}; give a YAML file of sections and keys") from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: {type(content).__name__} at the top; give a YAML file of sections and keys"
        )
    sections = cast("dict[str, Any]", content)
    defaults = cast("list[Any]", sections.pop("defaults", None) or [])
    place = defaults.index("_self_") if "_self_" in defaults else len(defaults)
    for entry in defaults[:place]:
        yield from _start(entry, path)
    for name, section in sections.items():
        if name in _IGNORED:
            continue
        for key, value in leaves(str(name), section):
            if key.rpartition(".")[2] not in _IGNORED:
                yield override(key, value)
    for entry in defaults[place + 1 :]:
        yield from _start(entry, path)


def _start(entry: Any, path: Path) -> Iterator[str]:
    name = str(entry).removesuffix(".yaml") if isinstance(entry, str) else ""
    if name in STARTS and not _file(path.parent, name).is_file():
        yield from STARTS[name]
    elif name and "@" not in name and _file(path.parent, name).is_file():
        yield from _overrides(_file(path.parent, name))
    else:
        raise ConfigError(
            f"{path}: defaults has {entry!r}; a file starts from {' or '.join(STARTS)} or from"
            " another file beside it: give the keys of that group as overrides"
        )
