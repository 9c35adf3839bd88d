"""Places in a file for small faults (mutants), and the faults: a comparison, an operator, a number, a
name in quotes, a condition, a statement, a keyword or a returned value that is changed or dropped
inside a function. Texts of errors and log messages stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.MatMult: ast.Mult,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOGS = ("_log", "warnings", "logging")


@dataclass(frozen=True, slots=True)
class Site:
    """A place for one mutant."""

    path: str
    function: str
    """Qualified name of the outermost function around it."""
    statement: int
    """First line of its statement."""
    node: ast.AST
    fault: str
    number: int = 0
    """Position of a comparison's operator, or of a call's keyword."""

    @property
    def key(self) -> str:
        node: Any = self.node
        place = f"{self.path}:{node.lineno}:{node.col_offset}-{node.end_col_offset}"
        return f"{place}:{type(node).__name__}:{self.fault}:{self.number}"


def is_log(node: ast.AST) -> bool:
    """Return whether this is a call such as `_log.info(...)`, or a statement of one."""
    if isinstance(node, ast.Expr):
        node = node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id in LOGS


def faults(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the faults that a node can have, with a number where it has several of a sort."""
    match node:
        case ast.Compare(ops=operators):
            for i, operator in enumerate(operators):
                yield "comparison", i
                if type(operator) in OPPOSITES:
                    yield "opposite", i
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            yield "operator", 0
        case ast.AugAssign(op=operator):
            if type(operator) in OPERATORS:
                yield "operator", 0
            yield "drop", 0
        case ast.BoolOp():
            yield "and/or", 0
            yield "fewer terms", 0
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "sign", 0
        case ast.Constant(value=bool() | int() | float()):
            yield "constant", 0
        case ast.Constant(value=str(text)) if text and " " not in text.strip():
            yield "constant", 0
        case ast.Return(value=value) if value is not None and not is_none(value):
            yield "return None", 0
        case ast.Expr(value=ast.Call() | ast.Await()) if not is_log(node):
            yield "drop", 0
        case ast.Raise():
            yield "drop", 0
        case ast.Break() | ast.Continue():
            yield "break/continue", 0
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "drop", 0
        case ast.Assign(targets=[ast.Name()], value=value) if not is_none(value):
            yield "assign None", 0
        case ast.Call(keywords=keywords):
            for i, keyword in enumerate(keywords):
                if keyword.arg:
                    yield "keyword", i
        case _:
            pass


def is_none(node: ast.AST) -> bool:
    """Return whether this is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


class Sites(ast.NodeVisitor):
    """The sites inside the functions of one file, in order."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.sites: list[Site] = []
        self._names: list[str] = []
        self._functions = 0
        self._texts = 0
        self._statement = 0

    def visit(self, node: ast.AST) -> None:
        statement = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node.lineno
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._definition(node)
        else:
            self._inside(node)
        self._statement = statement

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        is_function = isinstance(node, FUNCTIONS)
        is_outer = not self._functions
        if is_outer:
            self._names.append(node.name)
        self._functions += is_function
        has_docstring = is_function and ast.get_docstring(node, clean=False) is not None
        for statement in node.body[has_docstring:]:
            self.visit(statement)
        self._functions -= is_function
        if is_outer:
            self._names.pop()

    def _inside(self, node: ast.AST) -> None:
        if self._functions and not self._texts:
            for fault, number in faults(node):
                self._add(node, fault, number)
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                self._add(node.test, "negate")
            elif isinstance(node, ast.comprehension):
                for condition in node.ifs:
                    self._add(condition, "always")
        is_text = isinstance(node, ast.Raise | ast.JoinedStr) or is_log(node)
        self._texts += is_text
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)
        self._texts -= is_text

    def _add(self, node: ast.AST, fault: str, number: int = 0) -> None:
        function = ".".join(self._names)
        self.sites.append(Site(self.path, function, self._statement, node, fault, number))


def sites_of(path: str) -> tuple[ast.Module, list[Site]]:
    """Parse a file. Returns its tree and the sites in it, in order."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    visitor = Sites(path)
    visitor.visit(tree)
    return tree, visitor.sites


def replaced(tree: ast.AST, old: ast.AST, new: ast.AST) -> ast.AST:
    """Put `new` where `old` stands in the tree. Returns `new`."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return new
            if isinstance(value, list) and any(each is old for each in value):
                value[:] = [new if each is old else each for each in value]
                return new
    raise ValueError("the node is not in this tree")


def mutate(tree: ast.Module, site: Site) -> str:
    """Put the fault into the tree. Returns it as "before -> after"."""
    node: Any = site.node
    new: ast.AST = node
    before = ast.unparse(node)
    match site.fault:
        case "comparison":
            node.ops[site.number] = COMPARISONS[type(node.ops[site.number])]()
        case "opposite":
            node.ops[site.number] = OPPOSITES[type(node.ops[site.number])]()
        case "operator":
            node.op = OPERATORS[type(node.op)]()
        case "and/or":
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case "fewer terms":
            fewer = ast.BoolOp(node.op, node.values[:-1])
            new = replaced(tree, node, node.values[0] if len(node.values) == 2 else fewer)
        case "sign":
            new = replaced(tree, node, node.operand)
        case "constant" if isinstance(node.value, bool):
            node.value = not node.value
        case "constant":
            node.value = f"XX{node.value}XX" if isinstance(node.value, str) else node.value + 1
        case "always":
            new = replaced(tree, node, ast.Constant(True))
        case "negate":
            new = replaced(tree, node, ast.UnaryOp(ast.Not(), node))
        case "return None" | "assign None":
            node.value = ast.Constant(None)
        case "break/continue":
            other = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
            new = replaced(tree, node, other)
        case "keyword":
            del node.keywords[site.number]
        case _:
            new = replaced(tree, node, ast.Pass())
    for part in ast.walk(new):
        if isinstance(part, ast.expr | ast.stmt) and not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    ast.fix_missing_locations(tree)
    return f"{before[:200]}  ->  {ast.unparse(new)[:200]}"


def only_checks(site: Site) -> bool:
    """Return whether the site is `strict=` of zip, which guards against mistakes of ours."""
    if site.fault == "keyword":
        keyword = site.node.keywords[site.number]  # type: ignore[attr-defined]
        return keyword.arg == "strict"
    node: Any = site.node
    line = (ROOT / site.path).read_text(encoding="utf-8").splitlines()[node.lineno - 1]
    return site.fault == "constant" and line[: node.col_offset].endswith("strict=")
