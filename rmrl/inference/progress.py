"""How far an engine is in its present call, for the process that waits."""

from __future__ import annotations

import io
from typing import Any

from tqdm import tqdm


class Progress:
    """A number that grows while an engine works. Another thread reads it."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: float | None = 1) -> None:
        """Count requests that have come a step further."""
        self.count += int(count or 0)

    def bar(self, *args: Any, **kwargs: Any) -> tqdm[Any]:
        """Return a progress bar for vLLM's argument `use_tqdm`. The bar counts here and displays
        nothing."""
        return _CountingBar(self, *args, **kwargs)


class _CountingBar(tqdm):  # type: ignore[type-arg]  # no subscripts at run time
    monitor_interval = 0  # no thread that refreshes bars

    def __init__(self, progress: Progress, *args: Any, **kwargs: Any) -> None:
        self._progress = progress
        super().__init__(*args, **{**kwargs, "file": io.StringIO(), "mininterval": 3600.0})

    def update(self, n: float | None = 1) -> bool | None:
        self._progress.add(n)
        return super().update(n)
