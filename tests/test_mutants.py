"""Faults that scripts/mutants.py puts into functions."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import load_script

SOURCE = '''
LIMIT = 2


def checked(value):
    """Double a value."""
    if value < LIMIT and value:
        raise ValueError("too small")
    _log.info("a message")
    return value * 2
'''


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "scripts" / "mutant_sites.py"
    return load_script(path)


def test_each_fault_changes_one_place_inside_a_function(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(SOURCE)
    changes: list[str] = []
    for number in range(len(script.sites_of(str(file))[1])):
        tree, sites = script.sites_of(str(file))
        changes.append(script.mutate(tree, sites[number]))
        compile(tree, str(file), "exec")
        assert ast.unparse(tree) != ast.unparse(ast.parse(SOURCE))
    assert changes == [
        "value < LIMIT and value  ->  not (value < LIMIT and value)",
        "value < LIMIT and value  ->  value < LIMIT or value",
        "value < LIMIT and value  ->  value < LIMIT",
        "value < LIMIT  ->  value <= LIMIT",
        "value < LIMIT  ->  value >= LIMIT",
        "raise ValueError('too small')  ->  pass",
        "return value * 2  ->  return None",
        "value * 2  ->  value / 2",
        "2  ->  3",
    ]


def test_checks_of_equal_lengths_are_left_alone(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("def pairs(a, b):\n    return dict(zip(a, b, strict=True))\n")
    _, sites = script.sites_of(str(file))
    faults = [(site.fault, script.only_checks(site)) for site in sites]
    assert faults == [("return None", False), ("keyword", True), ("constant", True)]
