"""Names of parts, and parts of a user's own by module and attribute."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmrl.registry import Registry, load_attribute


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("x = (\n", r"failed with SyntaxError: '\(' was never closed .*line 1"),
        ("x = 1 / 0\n", "failed with ZeroDivisionError: division by zero"),
        ("import no_such_package_at_all\n", "No module named 'no_such_package_at_all'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_an_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, text: str
) -> None:
    """The checks of a configuration turn an ImportError into a problem with its key; a SyntaxError
    ended the command with a traceback."""
    (tmp_path / "advantages_of_a_user.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=text):
        load_attribute("advantages_of_a_user:advantage")
    assert "advantages_of_a_user" not in sys.modules


def test_an_attribute_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        load_attribute("rmrl.registry:nothing_here")


def test_problems_of_a_name_stand_at_its_key() -> None:
    table: Registry[object] = Registry("kind", {"rule": "rmrl.types:ScoreItem"})
    assert table.problems("rule", "kind") == []
    assert table.problems("rmrl.types:ScoreItem", "kind") == []
    assert table.problems("rul", "kind") == [
        "kind: nothing named 'rul'; did you mean 'rule'? known: rule"
    ]
    (problem,) = table.problems("rul", "reward.specs.x.kind")
    assert problem.startswith("reward.specs.x.kind: nothing named 'rul'; did you mean")
    for name in ("nowhere.at.all:Kind", "rmrl.types:Nothing"):
        (problem,) = table.problems(name, "x")
        assert problem.startswith("x: ")
        assert problem.endswith("; give package.module:name of something that can be imported")
