"""A user's reward file's imports: its siblings, modules in the working directory, and the packages
that its siblings had in verl (`names_of_verl`).

`import helper` and `from .helper import f` find helper.py beside the file. Folder and working
directory are looked at last, so that a drop-in called math_verify.py never shadows the package
math_verify, and sys.path stays as it is.

Rule workers import this module: it needs the standard library only.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from rmrl.rewards.dropins.names_of_verl import Loader, Names


class _Folders(importlib.abc.MetaPathFinder):
    """Finds top-level modules in reward file folders, the newest first, and in the working
    directory."""

    def __init__(self) -> None:
        self.folders: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(
            fullname, [*self.folders, str(Path.cwd())], target
        )
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            file = spec.loader.path
            spec.loader = Loader(fullname, file, Names(Path(file).parent))
        return spec


_FOLDERS = _Folders()


def importable(folder: Path | None = None) -> None:
    """Let modules in `folder` and in the working directory be imported, where nothing installed has
    their name.

    A module that another reward file folder has under the same name is forgotten: each file gets
    its own sibling.
    """
    if _FOLDERS not in sys.meta_path:
        sys.meta_path.append(_FOLDERS)
    if folder is None:
        return
    others = [place for place in _FOLDERS.folders if place != str(folder)]
    _FOLDERS.folders = [str(folder), *others]
    for file in folder.glob("*.py"):
        module_file = getattr(sys.modules.get(file.stem), "__file__", None)
        if module_file and str(Path(module_file).parent) in others:
            del sys.modules[file.stem]


def package_of(folder: Path) -> str:
    """Return the name for a synthetic package whose modules are `folder`'s files: the target for a
    drop-in's relative imports."""
    name = f"_rmrl_dropins_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


def siblings(code: str, folder: Path) -> list[Path]:
    """Return the files in `folder` that a text imports, and those that these import; sorted. A text
    that cannot be parsed imports nothing."""
    files: set[Path] = set()
    texts = [code]
    while texts:
        for name in imported_names(texts.pop()):
            file = folder / f"{name}.py"
            if file.is_file() and file not in files:
                files.add(file)
                texts.append(file.read_text(encoding="utf-8", errors="replace"))
    return sorted(files)


def imported_names(code: str) -> set[str]:
    """Return every imported module's first and last part, and the names it takes from them: any may
    be a sibling's."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return set()
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                modules.add(alias.name)
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    names: set[str] = set()
    for module in modules:
        names |= {module.partition(".")[0], module.rpartition(".")[2]}
    return names
