"""Files that appear whole, and the lock that one process at a time holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmrl.files import LockedError, digest_of, lock, put_in_place, unlock, write_whole


def test_text_replaces_text_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "one")
    write_whole(tmp_path / "a.json", "zwei ü")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "zwei ü"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_file_takes_another_ones_place(tmp_path: Path) -> None:
    (tmp_path / "fresh").write_bytes(b"new")
    (tmp_path / "name").write_bytes(b"old")
    put_in_place(tmp_path / "fresh", tmp_path / "name")
    assert (tmp_path / "name").read_bytes() == b"new"
    assert not (tmp_path / "fresh").exists()


def test_digests_are_of_the_content(tmp_path: Path) -> None:
    for name, content in (
        ("a", b"x" * 3_000_000),
        ("b", b"x" * 3_000_000),
        ("c", b"x" * 2_999_999 + b"y"),
    ):
        (tmp_path / name).write_bytes(content)
    assert digest_of(tmp_path / "a") == digest_of(tmp_path / "b") != digest_of(tmp_path / "c")


def test_a_lock_is_held_by_one_and_names_it(tmp_path: Path) -> None:
    held = lock(tmp_path / ".lock")
    with pytest.raises(LockedError, match=rf"process {os.getpid()} on .* since \d{{4}}-"):
        lock(tmp_path / ".lock")
    unlock(held)
    unlock(held)
    unlock(lock(tmp_path / ".lock"))


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; from rmrl.files import lock; held ="
        f" lock(pathlib.Path({str(tmp_path / '.lock')!r})); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 9
    unlock(lock(tmp_path / ".lock"))


def test_a_lock_that_its_holder_removed_is_taken_anew(tmp_path: Path) -> None:
    held = lock(tmp_path / ".lock")
    (tmp_path / ".lock").unlink()
    other = lock(tmp_path / ".lock")
    assert (tmp_path / ".lock").exists()
    unlock(held)
    unlock(other)
