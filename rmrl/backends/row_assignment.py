"""Processes that work on the same rows, and the one whose results stand for them. Imports no torch:
the controller uses it too."""

from __future__ import annotations

from rmrl.backends import backend_of
from rmrl.backends.descriptor import RowAssignment
from rmrl.config.schema import TrainedConfig


def row_assignment(trained: TrainedConfig, world_size: int, *, section: str) -> RowAssignment:
    """Return how the backend assigns rows to `world_size` processes that train with these settings;
    `section` is the settings' key in the configuration.

    Raises ConfigError where the parallel sizes do not fit.
    """
    return backend_of(trained.strategy).row_assignment(trained, world_size, section)


__all__ = ["RowAssignment", "row_assignment"]
