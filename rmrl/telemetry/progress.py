"""A progress bar inside a step: how many responses are finished. Silent where the output is no
terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the count so far."""
    with tqdm(
        total=total,
        desc=what,
        leave=False,
        disable=not sys.stderr.isatty(),
        unit="resp",
        position=1,
    ) as bar:

        def update(done: int) -> None:
            bar.update(done - bar.n)

        yield update
