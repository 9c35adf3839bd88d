"""Compare what rmrl uses of vLLM with the sources of several releases, without importing them.

    python scripts/vllm_contract.py                        the releases of RELEASES
    python scripts/vllm_contract.py --newest               the newest release on the index too
    python scripts/vllm_contract.py --record FILE          also write what was found as JSON
    python scripts/vllm_contract.py --sources FOLDER       an unpacked or installed vLLM

A wheel is fetched with pip, its Python files are unpacked into a folder of the cache, and the wheel
is deleted. `rmrl.inference.vllm.compat.USES` is looked up in them by their syntax trees: names,
members, arguments, and what base classes ask of subclasses. Where the index cannot be reached, or the
disk is full, the release is skipped with the reason. Status 1: a release lacks something.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rmrl.inference.vllm import compat  # noqa: E402 (the checkout is found by the line above)

RELEASES = ("0.24.0", "0.28.0", "0.32.0", "0.33.0")
"""Oldest, first with the weight transfer, the one that the tests run on, newest."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rmrl" / "vllm-sources"
LEAST_FREE_BYTES = 3 * 2**30
"""A wheel has up to 600 MB, its Python files 50."""
_STRUCTS = {"Struct", "BaseModel"}
"""Classes outside of vLLM whose subclasses take their fields as arguments."""

Node = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.stmt | ast.Module


class Unavailable(Exception):  # noqa: N818 (a reason to skip)
    """A release cannot be had now; the message says why."""


# --- sources


def sources(release: str, cache_folder: Path) -> Path:
    """Return the folder with a release's Python files; fetched where the cache lacks it. Raises
    Unavailable."""
    folder = cache_folder / release
    if folder.is_dir():
        return folder
    cache_folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache_folder).free
    if free < LEAST_FREE_BYTES:
        raise Unavailable(f"{free / 2**30:.1f} GiB are free for the cache {cache_folder}")
    with tempfile.TemporaryDirectory(dir=cache_folder) as name:
        wheels, unpacked = Path(name) / "wheels", Path(name) / "sources"
        options = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(wheels))
        pip("download", *options, f"vllm=={release}")
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wanted = [n for n in wheel.namelist() if n.endswith((".py", ".dist-info/METADATA"))]
            wheel.extractall(unpacked, wanted)
        unpacked.rename(folder)
    return folder


def pip(*arguments: str) -> str:
    """Return what pip prints. Raises Unavailable with its last error."""
    run = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        said = run.stderr.strip().splitlines()
        errors = [line for line in said if line.startswith("ERROR:")]
        raise Unavailable((errors or said or ["pip failed"])[-1])
    return run.stdout


def newest_release() -> str:
    """Return the newest release that the index offers. Raises Unavailable."""
    printed = pip("index", "versions", "vllm")
    found = re.search(r"^Available versions: ([^,\s]+)", printed, re.M)
    if found is None:
        raise Unavailable(f"pip names no versions: {printed[:200]}")
    return found[1]


def requirements(folder: Path) -> dict[str, str]:
    """Return what the release asks of torch and transformers; empty for sources without a wheel's
    metadata."""
    wanted: dict[str, str] = {}
    for path in folder.glob("vllm*.dist-info/METADATA"):
        message = email.parser.Parser().parsestr(path.read_text(encoding="utf-8"))
        for line in message.get_all("Requires-Dist", []):
            requirement = Requirement(line)
            if requirement.name in ("torch", "transformers") and requirement.marker is None:
                bounds = sorted(map(str, requirement.specifier), reverse=True)
                wanted[requirement.name] = ",".join(bounds)
    return wanted


# --- definitions


@dataclass(frozen=True)
class Definition:
    """A class, function, variable or module, with the module it stands in."""

    module: str
    node: Node


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, also those inside `if`, `try` and `with`."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from statements(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from statements(handler.body)


def assigned(statement: ast.stmt) -> set[str]:
    """Return the names that an assignment sets."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


class Sources:
    """The definitions below a folder of packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = cache(self._tree)
        self.find = cache(self._find)

    def _tree(self, module: str) -> ast.Module | None:
        place = self.folder.joinpath(*module.split("."))
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                return ast.parse(path.read_text(encoding="utf-8"))
        return None

    def _find(self, module: str, name: str) -> Definition | None:
        """Return what `from module import name` gives, through imports; None: there is nothing."""
        tree = self.tree(module)
        if tree is None:
            return None
        for statement in statements(tree.body):
            if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if statement.name == name:
                    return Definition(module, statement)
            elif isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        found = self.find(self._absolute(module, statement), alias.name)
                        if found is not None:
                            return found
            elif name in assigned(statement):
                return Definition(module, statement)
        inner = self.tree(f"{module}.{name}")
        return None if inner is None else Definition(f"{module}.{name}", inner)

    def _absolute(self, module: str, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        package = module.split(".")
        is_package = self.folder.joinpath(*package, "__init__.py").is_file()
        package = package[: len(package) - statement.level + is_package]
        return ".".join([*package, *filter(None, [statement.module])])

    def lineage(self, definition: Definition) -> list[Definition]:
        """Return a class and those of its bases that stand in these sources."""
        found = [definition]
        for base in bases(definition):
            above = self.find(definition.module, base)
            if above is not None and isinstance(above.node, ast.ClassDef):
                found += [one for one in self.lineage(above) if one not in found]
        return found

    def members(self, definition: Definition) -> dict[str, ast.stmt]:
        """Return the members of a class by name, as the class nearest to it defines them; for an
        annotated variable those of its type."""
        node = definition.node
        if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Name):
            kind = self.find(definition.module, node.annotation.id)
            return self.members(kind) if kind is not None else {}
        found: dict[str, ast.stmt] = {}
        for each in self.lineage(definition):
            if not isinstance(each.node, ast.ClassDef):
                continue
            for statement in statements(each.node.body):
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.setdefault(statement.name, statement)
                for name in assigned(statement):
                    found.setdefault(name, statement)
        return found

    def parameters(self, definition: Definition) -> set[str]:
        """Return the arguments of a function or of a class, fields of dataclasses and structs
        included."""
        if isinstance(definition.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return arguments(definition.node)
        names: set[str] = set()
        for each in self.lineage(definition):
            node = each.node
            if not isinstance(node, ast.ClassDef):
                continue
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and takes_fields(node, bases(each)):
                    names |= assigned(statement)
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    names |= arguments(statement)
        return names


def bases(definition: Definition) -> list[str]:
    """Return the plain names of a class's bases, `Generic[T]` as Generic and `abc.ABC` as ABC."""
    names: list[str] = []
    for base in getattr(definition.node, "bases", []):
        plain = base.value if isinstance(base, ast.Subscript) else base
        names.append(plain.attr if isinstance(plain, ast.Attribute) else getattr(plain, "id", ""))
    return names


def takes_fields(node: ast.ClassDef, base_names: Sequence[str]) -> bool:
    """Return whether annotated names of a class are arguments."""
    return bool(_STRUCTS & set(base_names)) or any(
        "dataclass" in d or d == "config" for d in decorators(node)
    )


def decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the decorators of a definition without their arguments."""
    return [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of a function's arguments."""
    given = function.args
    return {arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def form(member: ast.stmt) -> str:
    """Return "method", or "value" for what is read without a call."""
    if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
        return "value"
    return "value" if any("property" in d for d in decorators(member)) else "method"


# --- the contract


def missing(use: compat.Use, found: Sources) -> list[str]:
    """Return what the sources lack of one use."""
    module, _, name = use.name.partition(":")
    definition = found.find(module, name)
    if definition is None:
        return [f"{use.name}: not there"]
    parameters = found.parameters(definition) if use.arguments else set[str]()
    lacks = [f"{use.name}({name})" for name in use.arguments if name not in parameters]
    members = found.members(definition) if use.members else {}
    for member in use.members:
        plain, wanted = compat.method_arguments(member)
        there = members.get(plain)
        if there is None:
            lacks.append(f"{use.name}.{plain}")
        elif wanted:
            known = arguments(there) if isinstance(there, ast.FunctionDef) else set[str]()
            lacks += [f"{use.name}.{plain}({name})" for name in wanted if name not in known]
    return lacks + (broken_rules(use, found, definition) if use.extended else [])


def broken_rules(use: compat.Use, found: Sources, definition: Definition) -> list[str]:
    """Return what the base class `use.name` asks of a subclass and rmrl's does not do."""
    members = found.members(definition)
    lacks: list[str] = []
    for name, ours in use.extended.items():
        theirs = members.get(name)
        if theirs is None:
            lacks.append(f"{use.name}.{name}: nothing there to extend")
        elif (ours == "method") != (form(theirs) == "method"):
            lacks.append(f"{use.name}.{name}: a {form(theirs)} there, a {ours} in rmrl")
    for name, member in members.items():
        if name in use.extended or not isinstance(member, ast.FunctionDef):
            continue
        if any("abstract" in decorator for decorator in decorators(member)):
            lacks.append(f"{use.name}.{name}: abstract, and rmrl does not define it")
    check = members.get("__init_subclass__")
    if isinstance(check, ast.FunctionDef):
        lacks += _asked(use, check)
    return lacks


def _asked(use: compat.Use, check: ast.FunctionDef) -> list[str]:
    """Return the members that `__init_subclass__` looks at and that rmrl defines in a form whose name
    the check does not hold."""
    words = {node.value for node in ast.walk(check) if isinstance(node, ast.Constant)}
    names = {node.id for node in ast.walk(check) if isinstance(node, ast.Name)}
    lacks: list[str] = []
    for name in sorted(word for word in words if isinstance(word, str) and word.isidentifier()):
        ours = use.extended.get(name)
        if ours is not None and ours != "method" and ours not in names:
            lacks.append(f"{use.name}.{name}: __init_subclass__ asks for another form than {ours}")
        if ours == "method" and "cached_property" in names:
            lacks.append(f"{use.name}.{name}: __init_subclass__ asks for a cached_property")
    return lacks


def compare(folder: Path, version: Version) -> dict[str, Any]:
    """Return what the sources of a release have and lack of what rmrl uses with it."""
    found = Sources(folder)
    uses = [use for use in compat.USES if use.in_release(version)]
    lacks = [line for use in uses for line in missing(use, found)]
    return {"uses": len(uses), "missing": lacks, **requirements(folder)}


def versions_to_check(args: argparse.Namespace) -> dict[str, str]:
    """Return release -> reason why it is asked for; raises Unavailable where the index is asked."""
    wanted = dict.fromkeys(args.releases, "named")
    if args.newest:
        wanted.setdefault(newest_release(), "newest on the index")
    return wanted


def run(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Compare the releases and print a line for each. Returns release -> what was found."""
    found: dict[str, dict[str, Any]] = {}
    for release, why in versions_to_check(args).items():
        try:
            compared = compare(sources(release, args.cache), Version(release))
        except Unavailable as reason:
            print(f"skipped  vLLM {release}: {reason}", flush=True)
            continue
        found[release] = {"date": str(datetime.datetime.now(datetime.UTC).date()), **compared}
        state = "lacks   " if compared["missing"] else "ok      "
        print(
            f"{state} vLLM {release} ({why}): {compared['uses']} uses",
            *compared["missing"],
            sep="\n           ",
            flush=True,
        )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--releases", nargs="+", default=RELEASES, help="versions of vLLM")
    parser.add_argument(
        "--newest", action="store_true", help="ask the index for the newest release"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of unpacked sources")
    parser.add_argument("--record", type=Path, help="write what was found as JSON")
    parser.add_argument(
        "--sources", type=Path, help="a folder that holds vllm/, of --releases VERSION"
    )
    args = parser.parse_args(argv)
    if args.sources is not None:
        compared = compare(args.sources, Version(args.releases[0]))
        print(json.dumps(compared, indent=1))
        return 1 if compared["missing"] else 0
    try:
        found = run(args)
    except Unavailable as reason:
        print(f"skipped: {reason}")
        found = {}
    if args.record is not None:
        args.record.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if any(each["missing"] for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
