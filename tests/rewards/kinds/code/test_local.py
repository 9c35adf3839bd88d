"""The local sandbox: what it runs, its command line, and the sentences where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmrl.rewards.kinds.code import bubblewrap
from rmrl.rewards.kinds.code.bubblewrap import Bubblewrap, find_bubblewrap
from rmrl.rewards.kinds.code.local import local_sandbox, memory_of_family, run_locally
from rmrl.rewards.kinds.code.request import Program
from tests.patience import PATIENCE_S

# --- what is judged, in the real sandbox


# --- machines without it


@pytest.fixture
def fresh() -> Iterator[None]:
    """What was found on this machine is looked for again, before and after."""
    find_bubblewrap.cache_clear()
    local_sandbox.cache_clear()
    yield
    find_bubblewrap.cache_clear()
    local_sandbox.cache_clear()


def found(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", str(path))
    sentence = local_sandbox("")
    assert isinstance(sentence, str)
    return sentence


@pytest.mark.usefixtures("fresh")
def test_without_bubblewrap_the_sentence_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = found(tmp_path, monkeypatch)
    assert "bubblewrap (bwrap) is not installed" in sentence
    assert "apt-get install bubblewrap" in sentence
    assert "where: sandbox_fusion" in sentence


@pytest.mark.usefixtures("fresh")
def test_a_kernel_without_namespaces_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    sentence = found(tmp_path, monkeypatch)
    assert "bwrap: No permissions to create new namespace" in sentence
    assert "user.max_user_namespaces" in sentence


@pytest.mark.usefixtures("fresh")
def test_a_bwrap_that_only_runs_the_program_is_no_sandbox_of_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial runs both kinds of programs: one that drops their descriptors is refused."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 42\n")
    fake.chmod(0o755)
    assert "does not pass in bubblewrap here" in found(tmp_path, monkeypatch)


@pytest.mark.usefixtures("fresh")
def test_an_interpreter_that_cannot_be_run_is_refused() -> None:
    sentence = find_bubblewrap("/nowhere/python")
    assert isinstance(sentence, str)
    assert "/nowhere/python" in sentence or "not installed" in sentence


@pytest.mark.usefixtures("fresh")
def test_a_python_that_holds_the_home_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 42\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    home = tmp_path / "home" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(bubblewrap, "_prefixes", lambda _: (str(tmp_path / "home"),))
    sentence = find_bubblewrap("")
    assert isinstance(sentence, str)
    assert "holds the home folder" in sentence


# --- the command line


def test_the_command_line_isolates_and_drops_everything() -> None:
    made = Bubblewrap("/usr/bin/bwrap", "/opt/py/bin/python", ("/opt/py",), as_root=False)
    line = made.command("-c", "x")
    text = " ".join(line)
    for part in (
        "--die-with-parent", "--new-session", "--unshare-ipc", "--unshare-pid", "--unshare-net",
        "--unshare-uts", "--unshare-user --uid 65534 --gid 65534", "--cap-drop ALL",
        "--ro-bind /usr /usr", "--perms 0755 --dir /opt --ro-bind /opt/py /opt/py",
        "--tmpfs /tmp", "--remount-ro /dev --remount-ro /",
    ):  # fmt: skip
        assert part in text
    assert line[-5:] == ["/opt/py/bin/python", "-I", "-B", "-c", "x"]
    assert "--bind" not in line
    assert "--share-net" not in line
    assert "--cap-add" not in line
    with made.user() as uid:
        assert uid is None


def test_as_root_every_program_has_a_user_of_its_own() -> None:
    made = Bubblewrap("bwrap", "python3", (), as_root=True)
    line = made.command()
    assert "--unshare-user" not in line
    assert [line[i + 1] for i, word in enumerate(line) if word == "--cap-add"] == [
        "CAP_SETUID",
        "CAP_SETGID",
    ]
    with made.user() as first, made.user() as second:
        assert first is not None
        assert second is not None
        assert first != second


def test_two_processes_do_not_give_the_same_user_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the one that is left of two, and there is no third."""
    import subprocess
    import sys

    code = (
        "from rmrl.rewards.kinds.code import bubblewrap\n"
        "bubblewrap._uids = lambda: range(262_142, 262_144)\n"
        "made = bubblewrap.Bubblewrap('bwrap', 'python3', (), as_root=True)\n"
        "with made.user() as uid:\n"
        "    print(uid, flush=True)\n"
        "    input()\n"
    )
    monkeypatch.setattr(bubblewrap, "_uids", lambda: range(262_142, 262_144))
    made = Bubblewrap("bwrap", "python3", (), as_root=True)
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    uid = int(other.stdout.readline())
    with made.user() as mine:
        assert {uid, mine} == {262_142, 262_143}
        with pytest.raises(OSError, match="no user id"), made.user():
            pass
    other.communicate("\n", timeout=PATIENCE_S)


def test_memory_of_a_family_is_that_of_its_processes() -> None:
    import os

    block = bytearray(50 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
    assert memory_of_family(os.getpid()) > 50 * 2**20
    assert memory_of_family(2**22 + 1) == 0


async def test_a_sandbox_that_does_not_start_is_a_lost_worker(tmp_path: Path) -> None:
    broken = Bubblewrap(str(tmp_path / "bwrap"), "python3", (), as_root=False)
    outcome = await run_locally(Program(source="x"), broken, workers=1)
    assert outcome.failure == "worker_lost"
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no space' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    job = {"ready": "r", "wall_s": 1}
    for program in (Program(source="x"), Program(source="x", job=job)):
        outcome = await run_locally(program, broken, workers=1)
        assert outcome.failure == "worker_lost"
        assert "bwrap: no space" in outcome.detail
    json.dumps(job)
