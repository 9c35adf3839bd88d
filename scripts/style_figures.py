"""Measure how dense and how plain the code is: `python scripts/style_figures.py [FOLDER ...] [--worst]`.

Figures are per thousand lines or a share, so that folders of different sizes compare. `--worst`
lists the files that stand out.

Each file of the package and of the tests has an allowance of each kind of place: what `LIMITS`
give for its size, and `FREE` more. It may also have what it had when the counts were last recorded,
in tests/style_counts.json. `tests/test_style.py` holds it to the larger of the two, and `--record`
writes the counts of today, none of which is higher than that, and the new names of moved files.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HELD = ("rmrl", "tests")
"""Folders whose files keep to their allowance."""
RECORDED = ROOT / "tests" / "style_counts.json"

FREE = 2
"""Places of each kind that any file may have, however short it is."""
LONG_LINE = 100
LIMITS = {
    "conditional expressions": ("lines", 0.0095),
    "nested comprehensions": ("lines", 0.0002),
    "unrolled loops": ("lines", 0.0004),
    "tuple assignments": ("lines", 0.0003),
    "long lines": ("lines", 0.05),
    "helpers called once": ("functions", 0.132),
    "odd names": ("names", 0.005),
    "docstring openers": ("docstrings", 0.005),
    "of in docstrings": ("docstring_words", 0.022),
    "semicolons in docstrings": ("docstring_words", 0.006),
}
"""Kind of place: what it is counted against, and the share that is plain enough."""

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ODD_NAMES = frozenset(
    {"found", "made", "asked", "given", "told", "said", "shown", "held", "seen", "taken", "kept"}
    | {"known", "wanted", "lacking", "apart", "around", "about", "here", "mine", "ours", "theirs"}
    | {"own", "there", "least", "most", "left", "behind"}
)
"""Local names that do not say what the value is."""
ODD_OPENERS = ("Of ", "As ", "Where ", "Who ", "What ", "Those ", "Both ", "By ", "Whether it ")
"""First words of docstrings that start with neither a verb nor a noun."""


@dataclass(slots=True)
class Figures:
    """Counts over a set of files, and the places they come from."""

    lines: int = 0
    functions: int = 0
    names: int = 0
    docstrings: int = 0
    docstring_words: int = 0
    line_lengths: Counter[int] = field(default_factory=Counter)
    file_lines: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def per_thousand_lines(self, kind: str) -> float:
        """Occurrences of `kind` per thousand lines."""
        return 1000 * len(self.places[kind]) / max(self.lines, 1)

    @property
    def helpers_called_once(self) -> float:
        """Private functions named twice in their file (definition and one call), as a share of
        all functions."""
        return len(self.places["helpers called once"]) / max(self.functions, 1)

    @property
    def odd_names(self) -> float:
        """Share of assigned names and parameters that are in `ODD_NAMES`."""
        return len(self.places["odd names"]) / max(self.names, 1)

    @property
    def odd_openers(self) -> float:
        """Share of docstrings that start with one of `ODD_OPENERS`."""
        return len(self.places["docstring openers"]) / max(self.docstrings, 1)

    def line_length(self, share: float) -> int:
        """Line length that `share` of all lines do not exceed."""
        passed = 0
        for length in sorted(self.line_lengths):
            passed += self.line_lengths[length]
            if passed >= share * self.lines:
                return length
        return 0

    def allowance(self, kind: str) -> int:
        """Places of `kind` that a file of this size may have."""
        counted_against, share = LIMITS[kind]
        return int(FREE + share * getattr(self, counted_against))


def measure(folders: list[Path]) -> Figures:
    """Measure every Python file under `folders`."""
    figures = Figures()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            _measure_file(path, figures)
    return figures


def _measure_file(path: Path, figures: Figures) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    tree = ast.parse(text)
    figures.lines += len(lines)
    figures.file_lines[str(path)] = len(lines)
    for number, line in enumerate(lines, start=1):
        figures.line_lengths[len(line)] += 1
        if len(line) > LONG_LINE:
            figures.places["long lines"].append(f"{path}:{number}")
    nodes = list(ast.walk(tree))
    for node in nodes:
        place = f"{path}:{getattr(node, 'lineno', 1)}"
        _measure_node(node, place, figures)
    _measure_helpers(nodes, path, figures)
    for node in nodes:
        for line in _unrolled(node):
            figures.places["unrolled loops"].append(f"{path}:{line}")
    for line, docstring in _docstrings(nodes):
        figures.docstrings += 1
        figures.docstring_words += len(docstring.split())
        place = f"{path}:{line}"
        figures.places["of in docstrings"] += [place] * len(re.findall(r"\bof\b", docstring))
        figures.places["semicolons in docstrings"] += [place] * docstring.count(";")
        if docstring.lstrip().startswith(ODD_OPENERS):
            figures.places["docstring openers"].append(f"{path}:{line}")


def _measure_node(node: ast.AST, place: str, figures: Figures) -> None:
    if isinstance(node, ast.IfExp):
        figures.places["conditional expressions"].append(place)
    elif isinstance(node, COMPREHENSIONS):
        figures.places["comprehensions"].append(place)
        inner = any(isinstance(n, COMPREHENSIONS) for n in ast.walk(node) if n is not node)
        if inner or len(node.generators) > 1:
            figures.places["nested comprehensions"].append(place)
    elif isinstance(node, ast.Assign):
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            figures.places["tuple assignments"].append(place)
    elif isinstance(node, FUNCTIONS):
        figures.functions += 1
    name = _bound_name(node)
    if name is not None:
        figures.names += 1
        if name in ODD_NAMES:
            figures.places["odd names"].append(f"{place} {name}")


EMPTY = ("[]", "{}", "set()", "list()", "dict()", "0", "0.0")


def _unrolled(node: ast.AST) -> Iterator[int]:
    """Lines of empty containers and zeros that a loop of one statement fills: comprehensions and
    sums, written out."""
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(node, block, None)
        if not isinstance(statements, list):
            continue
        for start, loop in itertools.pairwise(statements):
            if not isinstance(start, ast.Assign | ast.AnnAssign) or start.value is None:
                continue
            if not isinstance(loop, ast.For) or loop.orelse or len(loop.body) != 1:
                continue
            if ast.unparse(start.value) not in EMPTY:
                continue
            target = start.target if isinstance(start, ast.AnnAssign) else start.targets[0]
            statement = loop.body[0]
            if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
                statement = statement.body[0]
            if _fills(statement, ast.unparse(target)):
                yield start.lineno


def _fills(statement: ast.stmt, name: str) -> bool:
    """Tell whether a statement does nothing but add to `name`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) in (f"{name}.append", f"{name}.add")
    if isinstance(statement, ast.Assign):
        place = statement.targets[0]
        return isinstance(place, ast.Subscript) and ast.unparse(place.value) == name
    return isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == name


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    return None


def _measure_helpers(nodes: list[ast.AST], path: Path, figures: Figures) -> None:
    """A private function that its file names once besides its definition."""
    uses: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.Name):
            uses[node.id] += 1
        elif isinstance(node, ast.Attribute):
            uses[node.attr] += 1
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            private = node.name.startswith("_") and not node.name.startswith("__")
            if private and uses[node.name] == 1:
                place = f"{path}:{node.lineno} {node.name}"
                figures.places["helpers called once"].append(place)


def _docstrings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes and functions, and the strings below attributes."""
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            statements = node.body[:1]
        elif isinstance(node, ast.Module | ast.ClassDef):
            statements = node.body
        else:
            continue
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    yield statement.lineno, value


Counts = dict[str, dict[str, int]]
"""Kind of place -> file -> places, of the files that have more than `FREE`."""


def over_allowance(root: Path, recorded: Counts) -> tuple[list[str], Counts]:
    """Compare each file under `HELD` with its allowance and with what was recorded of it.

    Returns one sentence per kind and file that has more than either, and the counts to record.
    """
    problems: list[str] = []
    counts: Counts = {kind: {} for kind in LIMITS}
    for folder in HELD:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            figures = Figures()
            _measure_file(path, figures)
            for kind in LIMITS:
                places = figures.places[kind]
                before = _recorded_count(recorded[kind], name, root)
                most = max(figures.allowance(kind), before)
                if len(places) > most:
                    newest = _newest_first(root, name, places)[: len(places) - most]
                    problems.append(
                        f"{name}: {len(places)} {kind}, at most {most}; last added: "
                        + ", ".join(place.removeprefix(f"{root}/") for place in newest)
                    )
                if len(places) > FREE:
                    counts[kind][name] = min(len(places), most)
    return problems, counts


def _recorded_count(by_file: dict[str, int], name: str, root: Path) -> int:
    """Count of a file, or of the one file of this name that is no longer where it was."""
    if name in by_file:
        return by_file[name]
    moved = []
    for before in by_file:
        if Path(before).name == Path(name).name and not (root / before).exists():
            moved.append(by_file[before])
    return moved[0] if len(moved) == 1 else 0


def _newest_first(root: Path, name: str, places: list[str]) -> list[str]:
    """Sort places of a file by when their lines were last changed; without git, from the end."""
    command = ["git", "blame", "--line-porcelain", name]
    blame = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    times = [0]
    for line in blame.stdout.splitlines():
        if line.startswith("author-time "):
            times.append(int(line.split()[1]))

    def age(place: str) -> tuple[int, int]:
        number = int(place.removeprefix(f"{root}/{name}:").split()[0])
        return (times[number] if number < len(times) else 0, number)

    return sorted(places, key=age, reverse=True)


def record() -> None:
    """Write the counts of today to `RECORDED`; none is higher than the test lets it be."""
    _, counts = over_allowance(ROOT, json.loads(RECORDED.read_text(encoding="utf-8")))
    RECORDED.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Print the figures of the folders on the command line."""
    parser = argparse.ArgumentParser(description="Measure how dense and how plain code is.")
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("rmrl")])
    parser.add_argument("--worst", action="store_true", help="list the files that stand out")
    parser.add_argument("--record", action="store_true", help="write tests/style_counts.json")
    arguments = parser.parse_args()
    if arguments.record:
        record()
        return
    figures = measure(arguments.folders)
    print(
        f"{len(figures.file_lines)} files, {figures.lines} lines, {figures.functions} functions;"
        f" longest file {max(figures.file_lines.values())} lines"
    )
    print(f"95th percentile of line length: {figures.line_length(0.95)}")
    for kind in (
        "conditional expressions",
        "comprehensions",
        "nested comprehensions",
        "unrolled loops",
        "tuple assignments",
    ):
        print(f"{kind}: {figures.per_thousand_lines(kind):.1f} per thousand lines")
    print(f"helpers called once: {figures.helpers_called_once:.1%} of functions")
    for kind in ("of in docstrings", "semicolons in docstrings"):
        share = 1000 * len(figures.places[kind]) / max(figures.docstring_words, 1)
        print(f"{kind}: {share:.1f} per thousand words")
    print(f"odd names: {figures.odd_names:.1%}; docstring openers: {figures.odd_openers:.1%}")
    if arguments.worst:
        for kind, places in figures.places.items():
            by_file = Counter(place.split(":")[0] for place in places)
            print(f"\n{kind}:")
            for file, count in by_file.most_common(10):
                print(f"  {count:4d}  {file}")


if __name__ == "__main__":
    main()
