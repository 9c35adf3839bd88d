"""A YAML file that holds a configuration, or its section `reward` alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rmrl.errors import ConfigError


def read_yaml(path: Path) -> Mapping[str, Any]:
    """Return the content of a YAML file. Raises ConfigError where it cannot be read or is no
    mapping."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML ({error})") from error
    if not isinstance(content, Mapping):
        raise ConfigError(
            f"{path} holds {type(content).__name__}; need a section `reward` as a mapping, e.g."
            " models: [gsm8k]"
        )
    return content
