"""`from verl...` in a user's reward file, at its top and inside its functions.

In VeRL-with-RMs reward files lie in verl/workers/reward_function and verl/utils/reward_score and
import each other by these names. Here the names lead to the files beside the importing one. A
module's functions import through the `__import__` of the module's own `__builtins__`, so the names
hold while a function runs as well, and for the files of that folder alone.

Rule workers import this module: it needs the standard library only.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_PLACES = ("verl.workers.reward_function", "verl.utils.reward_score")
"""Packages of verl whose modules are looked for beside the file."""
_PARENTS = ("verl", "verl.workers", "verl.utils", *_PLACES)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOCK = threading.RLock()


class Names:
    """verl's names as the files in one folder import them. An installed verl comes first where it
    has the module. What a name led to once it leads to ever after."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ModuleType] = {}

    def builtins(self) -> dict[str, Any]:
        """`__builtins__` of a module that imports by these names."""
        return {**vars(builtins), "__import__": self._import}

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level or name.partition(".")[0] != "verl":
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        with self._known():
            try:
                module = builtins.__import__(name, globals, locals, fromlist or (), level)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] == "verl":
                    error.msg = f"{error.msg}.{what_to_do(error.name or name)}"
                raise
        for part in fromlist or ():
            empty = module.__name__ in _PARENTS and getattr(module, "__file__", None) is None
            if empty and part != "*" and not hasattr(module, part):
                missing = f"{module.__name__}.{part}"
                raise ModuleNotFoundError(
                    f"No module named {missing!r}.{what_to_do(missing)}", name=missing
                )
        return module

    @contextlib.contextmanager
    def _known(self) -> Iterator[None]:
        """Inside the block the names lead to the folder's files."""
        finder = _Siblings(self._folder, self)
        with _LOCK:
            before = set(sys.modules)
            for name, module in self._modules.items():
                sys.modules.setdefault(name, module)
            sys.meta_path.append(finder)
            try:
                yield
            finally:
                sys.meta_path.remove(finder)
                for name in (finder.names | set(self._modules)) - before:
                    module = sys.modules.pop(name, None)
                    if module is not None:
                        self._modules[name] = module


class Loader(importlib.machinery.SourceFileLoader):
    """Executes a file in a folder whose verl names are `names`."""

    def __init__(self, fullname: str, path: str, names: Names) -> None:
        super().__init__(fullname, path)
        self._names = names

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._names.builtins()
        super().exec_module(module)


class _Siblings(importlib.abc.MetaPathFinder):
    """Finds verl's reward packages, empty, and in them one folder's files."""

    def __init__(self, folder: Path, names: Names) -> None:
        self._folder, self._names = folder, names
        self.names: set[str] = set()
        """Names that were imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname in _PARENTS:
            self.names.add(fullname)
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        parent, _, name = fullname.rpartition(".")
        file = self._folder / f"{name}.py"
        if parent not in _PLACES or not file.is_file():
            return None
        self.names.add(fullname)
        loader = Loader(fullname, str(file), self._names)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


def what_to_do(missing: str) -> str:
    """The sentence behind "No module named ...": `missing` is a name of verl that leads nowhere."""
    return (
        f" verl is not installed here, and there is no {missing.rpartition('.')[2]}.py beside the"
        " file: copy what the file needs of verl into a file beside it and import that, or install"
        " verl."
    )


def missing_inside(code: str, path: Path, entries: Collection[str]) -> str:
    """A sentence on the first import of verl that leads nowhere and is sure to run when one of
    `entries` (the file's functions) or a function they use is called, "" where there is none.

    Imports inside an if or a try may never run, and wait for that.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for statement in _sure_imports(tree, entries):
        for name in names_from_verl(statement):
            parent, _, last = name.rpartition(".")
            beside = parent in _PLACES and (path.parent / f"{last}.py").is_file()
            leads = name in _PARENTS or last == "*" or beside
            if not leads and importlib.util.find_spec("verl") is None:
                line = ast.get_source_segment(code, statement) or ""
                return (
                    f"{path}:{statement.lineno}: {line} will raise ModuleNotFoundError: No module"
                    f" named {name!r}.{what_to_do(name)}"
                )
    return ""


def _sure_imports(
    tree: ast.Module, entries: Collection[str]
) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that stand in the bodies themselves of the entries and of functions they use."""
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {
        node.name: node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)
    }
    names = list(entries)
    while names:
        function = functions.pop(names.pop(), None)
        if function is None:
            continue
        for statement in function.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield statement
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                names.append(node.id)
            elif isinstance(node, ast.Attribute):
                names.append(node.attr)


def names_from_verl(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """Full names for what a statement takes from verl, [] where it takes nothing from there."""
    prefix = ""
    if isinstance(statement, ast.ImportFrom):
        if statement.level > 0:
            return []
        if statement.module not in _PARENTS:
            module = statement.module or ""
            return [module] if module.partition(".")[0] == "verl" else []
        prefix = f"{statement.module}."
    names: list[str] = []
    for alias in statement.names:
        name = prefix + alias.name
        if name.partition(".")[0] == "verl":
            names.append(name)
    return names
