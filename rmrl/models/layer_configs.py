"""Settings for a model whose layers differ, such as Gemma 4 with two head sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def layer_configs(config: Any) -> Sequence[Any]:
    """Return transformers' config for each layer where some differ, else `config` alone.

    A setting that differs cannot be read from the whole model's config: transformers raises an
    error.
    """
    if getattr(config, "is_heterogeneous", False):
        return config.per_layer_config
    return [config]
