"""A YAML file that holds a configuration, or its section `reward` alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rmrl.errors import ConfigError
from rmrl.files import is_there

SUFFIXES = (".yaml", ".yml")
Configuration = Mapping[str, Any] | Sequence[Any] | Callable[..., Any] | Path
"""What programs may give: a mapping, a YAML file's path, or rewards, as `content_of` takes them."""


def names_function(text: str) -> bool:
    """Return whether a text is the path of a Python file, with or without a function's name."""
    return text.partition(":")[0].endswith(".py")


def content_of(config: Configuration | Any) -> Mapping[str, Any]:
    """Return a configuration's content: a mapping as it is, or the content of the YAML file whose
    path is given. A reward's name, a function, its file (rules.py or rules.py:name) and a list of
    these are a section `reward` that names them alone. Raises ConfigError for any other value, and
    as `read_yaml`."""
    if isinstance(config, str | Path):
        path = Path(config).expanduser()
        if names_function(str(path)):
            return {"models": [str(path)]}
        is_file = is_there(path) and not path.is_dir()
        if isinstance(config, Path) or path.suffix in SUFFIXES or is_file:
            return read_yaml(path)
    if isinstance(config, str | list | tuple) or callable(config):
        return {"models": config}
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"saw {config!r:.80}; need a section `reward`, e.g. {{'models': ['gsm8k']}}, or the"
            " path of a YAML file with one"
        )
    return config


def read_yaml(path: Path) -> Mapping[str, Any]:
    """Return a YAML file's content. Raises ConfigError where it cannot be read or is no mapping."""
    try:
        content: Any = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} does not exist; give a YAML file with a section `reward`, e.g. with the line"
            " models: [gsm8k]"
        ) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML ({error})") from error
    if not isinstance(content, Mapping):
        held = "is empty" if content is None else f"holds {type(content).__name__}"
        raise ConfigError(
            f"{path} {held}; need a section `reward` as a mapping, e.g. models: [gsm8k]"
        )
    return content


class _Loader(yaml.SafeLoader):
    """Reads 1e-6 as a number, as the command line and Hydra do. For YAML 1.1 alone it is a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    [*"-+0123456789"],
)
