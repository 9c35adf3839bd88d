"""The stamp of the long checks: when scripts/nightly.py writes it, and when it is too old."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTHING = "import sys; open(sys.argv[1], 'w').write('2')"
TODAY = datetime.date(2026, 11, 23)


@pytest.fixture(scope="module")
def nightly() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nightly", ROOT / "scripts" / "nightly.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nightly"] = module
    spec.loader.exec_module(module)
    return module


def git(root: Path, *arguments: str, day: str = "2026-11-01") -> str:
    dates = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
    person = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "tag.gpgsign=false"]
    command = ["git", "-C", str(root), *person, *arguments]
    environment = {**os.environ, **dates, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def commit(root: Path, **files: str) -> str:
    for name, text in files.items():
        (root / f"{name}.md").write_text(text)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "a change")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with an unreleased version."""
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    git(root.parent, "init", "--quiet", str(root))
    (root / ".gitignore").write_text("build/\n")
    commit(root, CHANGELOG="# Changes\n\n## [Unreleased]\n\n## 0.1.0 (not released yet)\n")
    return root


def release(root: Path, day: str) -> None:
    commit(root, CHANGELOG=f"# Changes\n\n## [Unreleased]\n\n## [0.1.0] - {day}\n")


def stamp(nightly: ModuleType, root: Path, day: str, sha: str | None = None) -> None:
    commit_of = sha or git(root, "rev-parse", "HEAD")
    made = nightly.Stamp(commit_of, datetime.date.fromisoformat(day), 9, {"a": {"passed": 1}})
    made.write(root / nightly.STAMP)


def step(nightly: ModuleType, name: str, code: str = NOTHING, **more: Any) -> Any:
    return nightly.Step(
        name=name,
        command=[sys.executable, "-c", code, "{out}"],
        counts=lambda path: {"passed": int(path.read_text())},
        **more,
    )


def test_the_stamp_of_the_repository_is_one(nightly: ModuleType) -> None:
    path = ROOT / nightly.STAMP
    if path.is_file():
        assert nightly.Stamp.read(path).date <= datetime.datetime.now(datetime.UTC).date()


def test_a_whole_run_writes_commit_day_and_counts(nightly: ModuleType, project: Path) -> None:
    steps = [step(nightly, "first one", beside=True), step(nightly, "second")]
    assert nightly.run_and_stamp(steps, project, partial=False) == 0
    written = nightly.Stamp.read(project / nightly.STAMP)
    assert written.commit == git(project, "rev-parse", "HEAD")
    assert written.counts == {"first one": {"passed": 2}, "second": {"passed": 2}}
    # A second run on the same commit: the stamp itself is no change.
    assert nightly.run_and_stamp(steps, project, partial=False) == 0


@pytest.mark.parametrize("beside", [True, False])
def test_a_step_that_fails_leaves_no_stamp(
    nightly: ModuleType, project: Path, beside: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [step(nightly, "fails", "raise SystemExit(3)", beside=beside), step(nightly, "b")]
    assert nightly.run_and_stamp(steps, project, partial=False) == 1
    assert not (project / nightly.STAMP).exists()
    assert "failed: fails\n" in capsys.readouterr().out


def test_a_step_that_may_skip_nothing_fails_where_it_does(
    nightly: ModuleType, project: Path
) -> None:
    strict = nightly.Step(
        name="strict",
        command=[sys.executable, "-c", NOTHING, "{out}"],
        counts=lambda path: {"skipped": int(path.read_text())},
        may_skip=False,
    )
    assert nightly.run_and_stamp([strict], project, partial=False) == 1
    assert not (project / nightly.STAMP).exists()


def test_a_part_of_the_steps_leaves_no_stamp(nightly: ModuleType, project: Path) -> None:
    assert nightly.run_and_stamp([step(nightly, "a")], project, partial=True) == 0
    assert not (project / nightly.STAMP).exists()


def test_changes_that_are_not_committed_leave_no_stamp(nightly: ModuleType, project: Path) -> None:
    (project / "CHANGELOG.md").write_text("other")
    assert nightly.run_and_stamp([step(nightly, "a")], project, partial=False) == 1
    assert not (project / nightly.STAMP).exists()


def test_the_age_is_told_in_days_and_commits(nightly: ModuleType, project: Path) -> None:
    stamp(nightly, project, "2026-11-20")
    sha = git(project, "rev-parse", "HEAD")
    commit(project, README="one")
    commit(project, README="two")
    sentence, recent = nightly.age(project, TODAY)
    assert recent
    assert sentence == (
        f"nightly: passed at {sha[:10]} on 2026-11-20, 3 days and 2 commits ago; no release yet"
    )


@pytest.mark.parametrize(("day", "recent"), [("2026-11-09", False), ("2026-11-10", True)])
def test_a_stamp_older_than_the_last_release_is_too_old(
    nightly: ModuleType, project: Path, day: str, recent: bool
) -> None:
    stamp(nightly, project, day)
    release(project, "2026-11-10")
    sentence, result = nightly.age(project, TODAY)
    assert result is recent
    assert "the last release, 0.1.0, is of 2026-11-10" in sentence
    assert sentence.endswith("make test-nightly is due") is not recent


def test_the_newest_of_headings_and_tags_counts(nightly: ModuleType, project: Path) -> None:
    assert nightly.last_release(project) is None
    git(project, "tag", "--annotate", "v0.2.0", "--message", "x", day="2026-11-12")
    git(project, "tag", "nightly-0.3", day="2026-11-14")
    assert nightly.last_release(project) == ("v0.2.0", datetime.date(2026, 11, 12))
    release(project, "2026-11-10")
    assert nightly.last_release(project) == ("v0.2.0", datetime.date(2026, 11, 12))
    release(project, "2026-11-13")
    assert nightly.last_release(project) == ("0.1.0", datetime.date(2026, 11, 13))


def test_no_stamp_is_too_old_once_there_is_a_release(nightly: ModuleType, project: Path) -> None:
    assert nightly.age(project, TODAY)[1]
    release(project, "2026-11-10")
    sentence, recent = nightly.age(project, TODAY)
    assert not recent
    assert "no run is recorded" in sentence


def test_a_clone_without_the_commit_of_the_stamp_knows_the_days_alone(
    nightly: ModuleType, project: Path, tmp_path: Path
) -> None:
    stamp(nightly, project, "2026-11-20")
    commit(project)
    commit(project, README="one")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{project}", "shallow")
    sentence, recent = nightly.age(tmp_path / "shallow", TODAY)
    assert recent
    assert "3 days and an unknown number of commits ago" in sentence
    stamp(nightly, project, "2026-11-20", sha="0" * 40)
    assert "an unknown number of commits" in nightly.age(project, TODAY)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"commit": "abc"},
        {"date": "yesterday"},
        {"date": 3},
        {"seconds": "9"},
        {"counts": {}},
        {"counts": {"a": {"passed": "all"}}},
        {"more": 1},
    ],
)
def test_a_file_of_another_form_is_refused(
    nightly: ModuleType, project: Path, changed: dict[str, Any]
) -> None:
    stamp(nightly, project, "2026-11-20")
    path = project / nightly.STAMP
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(nightly.StampError, match="no stamp"):
        nightly.Stamp.read(path)


def test_counts_are_read_from_what_the_steps_write(nightly: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="5" skipped="2"/></testsuites>')
    assert nightly.tests_counted(report) == {"passed": 3, "skipped": 2}
    assert nightly.tests_counted(tmp_path) == {"passed": 3, "skipped": 2}
    record = tmp_path / "record.json"
    record.write_text(
        "".join(f'{{"status": "{s}"}}\n' for s in ["killed", "hangs", "survived", "moved"])
    )
    assert nightly.mutants_counted(record) == {"tried": 3, "died": 2}


def test_the_steps_name_paths_that_exist(nightly: ModuleType) -> None:
    paths: list[str] = []
    for each in nightly.STEPS:
        paths += [part for part in each.command if part.startswith(("tests/", "scripts/"))]
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert missing == []
    assert len(paths) > 20
