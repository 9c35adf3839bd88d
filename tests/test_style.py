"""Code and tests stay as plain as they are: scripts/style_figures.py holds each file to the same
allowance, and a file that had more before to what it had."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts import style_figures

RECORDED = json.loads(style_figures.RECORDED.read_text(encoding="utf-8"))
NONE_RECORDED: style_figures.Counts = {kind: {} for kind in style_figures.LIMITS}


def test_no_file_gets_denser():
    problems, _ = style_figures.over_allowance(style_figures.ROOT, RECORDED)
    advice = "Write these places in plainer words; a record rises no further."
    assert not problems, "\n".join([*problems, advice])


def test_figures_of_a_file_counted_by_hand(tmp_path: Path):
    (tmp_path / "part.py").write_text(
        '"""Of the module."""\n'
        "a, b = 1, 2\n"
        "found = a if b else [x for y in [[1]] for x in y]\n"
        "def _helper(value):\n"
        '    """Return it."""\n'
        "    return value\n"
        "def call():\n"
        "    return _helper(found)\n"
        "c = []\n"
        "for d in range(2):\n"
        "    c.append(d)\n"
    )
    figures = style_figures.measure([tmp_path])
    assert figures.lines == 11
    for kind, (counted_against, _) in style_figures.LIMITS.items():
        if counted_against == "lines" and kind != "long lines":
            assert figures.per_thousand_lines(kind) == pytest.approx(1000 / 11)
    assert figures.helpers_called_once == 0.5
    assert figures.odd_names == pytest.approx(1 / 8)  # a, b, found, x, y, value, c, d
    assert figures.odd_openers == 0.5
    assert figures.line_length(1.0) == 49


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A package of one file with four odd names, committed, so that two are too many."""
    for folder in style_figures.HELD:
        (tmp_path / folder).mkdir()
    write_names(tmp_path / "rmrl" / "part.py", "found", "made", "asked", "given")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    author = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    day = "--date=2026-01-01T00:00:00"
    git(tmp_path, *author, "commit", "--quiet", "--message", "one", day)
    return tmp_path


def write_names(path: Path, *names: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} = 1\n" for name in names))


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def check(root: Path, recorded: int | None, name: str = "rmrl/part.py") -> list[str]:
    """Problems where `name` is recorded with this many odd names."""
    counts = {**NONE_RECORDED, "odd names": {} if recorded is None else {name: recorded}}
    problems, _ = style_figures.over_allowance(root, counts)
    return problems


@pytest.mark.parametrize(("count", "problems"), [(1, 0), (2, 0), (3, 1)])
def test_a_new_file_has_its_allowance(repository: Path, count: int, problems: int):
    write_names(repository / "rmrl" / "part.py", "plain")
    write_names(repository / "tests" / "test_new.py", *["wanted", "held", "most"][:count])
    assert len(check(repository, None)) == problems


def test_an_older_file_keeps_what_it_had(repository: Path):
    assert len(check(repository, None)) == 1
    assert len(check(repository, 3)) == 1
    assert check(repository, 4) == []


def test_what_was_added_last_is_named(repository: Path):
    write_names(repository / "rmrl" / "part.py", "wanted", "found", "made", "asked", "given")
    (problem,) = check(repository, 4)
    assert problem.startswith("rmrl/part.py: 5 odd names, at most 4;")
    assert problem.endswith("last added: rmrl/part.py:1 wanted")


def test_a_moved_file_keeps_its_record(repository: Path):
    names = ["found", "made", "asked", "given"]
    assert len(check(repository, 4, name="rmrl/old/part.py")) == 0
    write_names(repository / "rmrl" / "other" / "part.py", *names)
    assert len(check(repository, 4)) == 1


def test_a_file_that_shrinks_keeps_its_record(repository: Path):
    names = ["found", *(f"plain_{number}" for number in range(400))]
    write_names(repository / "rmrl" / "part.py", *names, "made", "asked", "given")
    assert check(repository, None) == []
    write_names(repository / "rmrl" / "part.py", "found", "made", "asked", "given")
    assert len(check(repository, None)) == 1
    assert check(repository, 4) == []


def test_what_is_recorded_is_no_more_than_is_allowed(repository: Path):
    for recorded, written in ((0, 2), (3, 3), (4, 4), (9, 4)):
        counts = {**NONE_RECORDED, "odd names": {"rmrl/part.py": recorded}}
        _, to_record = style_figures.over_allowance(repository, counts)
        assert to_record == {**NONE_RECORDED, "odd names": {"rmrl/part.py": written}}
    write_names(repository / "rmrl" / "part.py", "found")
    _, to_record = style_figures.over_allowance(repository, counts)
    assert to_record == NONE_RECORDED
