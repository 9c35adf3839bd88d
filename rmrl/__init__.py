"""rmrl: score language-model responses with many reward models at once, and train policies on those
scores."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmrl.api import AsyncRewards, Rewards

__version__ = "0.1.0"
__all__ = ["AsyncRewards", "Rewards", "__version__"]

if sys.argv and sys.argv[0].endswith(("-m", "rmrl")):  # a command of ours, perhaps
    from rmrl.interrupt import end_at_interrupt

    end_at_interrupt()  # here, as no other module of a command is imported earlier


def __getattr__(name: str) -> Any:
    # Imported when the name is first used: `import rmrl` alone loads nothing else.
    if name not in __all__:
        raise AttributeError(f"module 'rmrl' has no attribute '{name}'")
    return getattr(import_module("rmrl.api"), name)
