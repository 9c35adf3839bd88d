"""This package's YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def read_rows(name: str) -> dict[str, Any]:
    """Return what one file in this package holds."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C where it was built
    return loader(text).get_single_data()
