"""Imports of large libraries in less time and memory, for processes that start with them."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any

_POSTPONED = {"transformers.generation.candidate_generator": ("sklearn.metrics", "roc_curve")}
"""Modules that import another for one function that is hardly ever called.

transformers imports this one for tokenizers and models alike, and with it scikit-learn, SciPy and
pandas (1 s, 110 MB), which only assisted generation calls.
"""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import in the block without garbage collection, which takes a fifth of the time where
    thousands of modules are loaded, and with the imports of _POSTPONED done at the first call."""
    finder = _Finder()
    collects = gc.isenabled()
    gc.disable()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if collects:
            gc.enable()


class _Finder(MetaPathFinder):
    """Finds the modules of _POSTPONED and leaves all others to Python."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        if fullname not in _POSTPONED:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        loader = _Loader(fullname, spec.loader.path)
        return spec_from_file_location(fullname, loader.path, loader=loader)


class _Loader(SourceFileLoader):
    """Runs a module while a stand-in has the place of what it imports needlessly."""

    def exec_module(self, module: ModuleType) -> None:
        needless, function = _POSTPONED[module.__name__]
        if needless in sys.modules:
            super().exec_module(module)
            return
        stand_in: Any = ModuleType(needless)
        setattr(stand_in, function, _at_first_call(needless, function))
        sys.modules[needless] = stand_in
        try:
            super().exec_module(module)
        finally:
            if sys.modules.get(needless) is stand_in:
                del sys.modules[needless]


def _at_first_call(module: str, function: str) -> Callable[..., Any]:
    """Return a function that imports the module when it is called, and calls its function."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*args, **kwargs)

    return call
