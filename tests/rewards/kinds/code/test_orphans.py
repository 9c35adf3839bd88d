"""Who takes the exit status of processes whose parent has ended."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmrl.rewards.kinds.code import orphans


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in the place of /proc/1/status; afterwards orphans go to process 1 again."""
    path = tmp_path / "status"
    monkeypatch.setattr(orphans, "_STATUS", path)
    yield path
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


def masks(**fields: int) -> str:
    numbers = {"SigBlk": 0, "SigIgn": 0, "SigCgt": 0, **fields}
    return "Name:\tinit\n" + "".join(f"{name}:\t{mask:016x}\n" for name, mask in numbers.items())


@pytest.mark.parametrize("name", ["SigBlk", "SigIgn", "SigCgt"])
def test_an_init_keeps_its_work(status: Path, name: str) -> None:
    status.write_text(masks(**{name: 1 << (signal.SIGCHLD - 1)}))
    assert not orphans.adopt()


def test_without_an_init_an_orphan_is_taken_from_the_table(status: Path) -> None:
    status.write_text(masks(SigCgt=1 << (signal.SIGTERM - 1)))
    assert orphans.adopt()
    command = ["sh", "-c", "sleep 0.5 >&- 2>&- & echo $!"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    orphan = int(done.stdout)
    descriptor = os.pidfd_open(orphan)
    try:
        orphans.reap(descriptor)  # it runs: nothing to take
        assert select.select([descriptor], [], [], 10)[0]
        assert "State:\tZ" in Path(f"/proc/{orphan}/status").read_text()
        orphans.reap(descriptor)
        assert not Path(f"/proc/{orphan}").exists()
        orphans.reap(descriptor)  # it is no child any more
    finally:
        os.close(descriptor)
