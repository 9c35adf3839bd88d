"""`--config-path` and `--config-name`: verl's configuration files, and a user's own that start from
them, as overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from rmrl.config.command_line import NAME, PATH, pop_flag
from rmrl.config.verl.setting import leaves, override
from rmrl.errors import ConfigError

STARTS: Mapping[str, tuple[str, ...]] = {
    "ppo_trainer": (),
    "ppo_megatron_trainer": ("actor_rollout_ref.actor.strategy=megatron",),
}
"""File that ships with verl -> the overrides in which it differs from the defaults here."""
_IGNORED = ("hydra", "defaults", "_target_")


def own_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the command line with --config-path and --config-name replaced by the overrides of the
    file, in front of the others.

    Without --config-path (or with --config-dir) these flags are passed to Hydra, except for the
    names of verl's files. Raises ConfigError for a missing file, and for a file whose defaults are
    neither verl's nor beside it.
    """
    folder, rest = pop_flag(arguments, PATH)
    name, without_name = pop_flag(rest, NAME)
    stem = (name or "").removesuffix(".yaml").removesuffix(".yml")
    if folder is None and stem not in STARTS:
        return list(arguments)
    if folder is None or not _file(Path(folder), stem or "ppo_trainer").is_file():
        if stem and stem not in STARTS:
            raise ConfigError(
                f"--config-path={folder} --config-name={name}: no such file; start the command in"
                " the folder that the path is relative to, or give the file's keys as overrides"
                f" (verl's own files {' and '.join(STARTS)} need none)"
            )
        return [*STARTS[stem or "ppo_trainer"], *without_name]
    return [*_overrides(_file(Path(folder), stem or "ppo_trainer")), *without_name]


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.yaml"


def _overrides(path: Path) -> Iterator[str]:
    """Yield the overrides of a file and of its defaults; later ones replace earlier ones."""
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
