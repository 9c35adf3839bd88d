"""Checkpoint folders: torn ones are passed over and named, the last good one always survives."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmrl.errors import CheckpointError, ConfigError
from rmrl.trainer import checkpoint
from rmrl.trainer.checkpoint import Checkpoint, newest_complete, prune, verify
from tests.patience import expires
from tests.trainer.saved import save


def fill(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "weights.bin").write_bytes(bytes(range(256)) * 16)
    (folder / "state.json").write_text('{"step": 1}')


def save_now(root: Path, step: int, write: checkpoint.Write = fill) -> Checkpoint:
    return asyncio.run(save(root, step, write, config_fingerprint="abc"))


def flip(folder: Path) -> None:
    path = folder / "model" / "weights.bin"
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)


def truncate(folder: Path) -> None:
    path = folder / "model" / "weights.bin"
    path.write_bytes(path.read_bytes()[:-1])


def alter_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"step": 2', '"step": 3'))


def cut_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:100])


TORN: list[tuple[Callable[[Path], None], str]] = [
    (flip, "weights.bin has other content than was written"),
    (truncate, "weights.bin has 4095 bytes where 4096 were written"),
    (lambda folder: (folder / "state.json").unlink(), "state.json is missing"),
    (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
    (alter_manifest, "manifest.json was altered"),
    (cut_manifest, "manifest.json cannot be read"),
]


@pytest.mark.usefixtures("nothing_logged")
def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    saved = save_now(tmp_path / "checkpoints", 10)
    assert saved.path == tmp_path / "checkpoints" / "step_000010"
    assert newest_complete(tmp_path / "checkpoints") == saved
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert (manifest["step"], manifest["config_fingerprint"]) == (10, "abc")
    # sha256 of the 11 bytes {"step": 1}
    assert manifest["files"]["state.json"] == {
        "bytes": 11,
        "sha256": hashlib.sha256(b'{"step": 1}').hexdigest(),
        "span": "all",
    }


@pytest.mark.parametrize(
    ("tear", "words"),
    TORN,
    ids=["flipped", "truncated", "deleted", "no-manifest", "altered", "cut-manifest"],
)
def test_a_torn_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, tear: Callable[[Path], None], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = save_now(tmp_path, 1), save_now(tmp_path, 2)
    tear(second.path)
    assert newest_complete(tmp_path) == first
    assert len(caplog.messages) == 1
    assert words in caplog.messages[0]
    assert "step_000002" in caplog.messages[0]
    with pytest.raises(CheckpointError, match="cannot be used"):
        verify(second.path)


def test_all_torn_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        flip(save_now(tmp_path, step).path)
    with pytest.raises(
        CheckpointError,
        match=(
            r"none of the 2 there can be used\. To start anew, remove .* trainer\.experiment_name"
        ),
    ):
        newest_complete(tmp_path)
    assert [
        name in notice
        for name, notice in zip(("step_000002", "step_000001"), caplog.messages, strict=True)
    ] == [True, True]


@pytest.mark.usefixtures("nothing_logged")
def test_none_was_ever_saved(tmp_path: Path) -> None:
    assert newest_complete(tmp_path) is None
    assert newest_complete(tmp_path / "nowhere") is None


def test_the_folder_above_is_pointed_down(tmp_path: Path) -> None:
    save_now(tmp_path / "checkpoints", 4)
    for folder in (tmp_path, tmp_path / "checkpoints"):
        with pytest.raises(
            CheckpointError,
            match=r"but it holds checkpoints: name one of them, e\.g\. .*step_000004",
        ):
            verify(folder)
    with pytest.raises(CheckpointError, match="there is no such folder"):
        verify(tmp_path / "nowhere")


@pytest.mark.usefixtures("nothing_logged")
def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 2):
        save_now(tmp_path, step)
    (tmp_path / "step_notes").mkdir()
    newest = newest_complete(tmp_path)
    assert newest is not None
    assert newest.step == 1_000_000


def test_big_files_are_digested_at_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "FULL_DIGEST_BYTES", 3 * 2**20)
    content = bytes(5 * 2**20)
    saved = save_now(tmp_path, 1, lambda folder: (folder / "w").write_bytes(content) and None)
    assert json.loads((saved.path / "manifest.json").read_text())["files"]["w"]["span"] == "ends"
    assert verify(saved.path) == saved
    (saved.path / "w").write_bytes(content[:-1] + b"x")
    with pytest.raises(CheckpointError, match="other content"):
        verify(saved.path)


@pytest.mark.usefixtures("nothing_logged")
def test_an_async_writer_that_fails_or_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    good = save_now(tmp_path, 1)

    async def breaks(folder: Path) -> None:
        fill(folder)
        raise RuntimeError("rank 3 died")

    async def hangs(folder: Path) -> None:
        fill(folder)
        await asyncio.sleep(600)

    with pytest.raises(RuntimeError, match="rank 3"):
        save_now(tmp_path, 2, breaks)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(save(tmp_path, 2, hangs), expires(0.1)))
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
    assert newest_complete(tmp_path) == good


@pytest.mark.usefixtures("nothing_logged")
def test_what_a_crash_left_behind_is_swept_and_never_used(tmp_path: Path) -> None:
    stale = tmp_path / ".tmp-step_000009-123"
    stale.mkdir()
    fill(stale)
    assert newest_complete(tmp_path) is None
    save_now(tmp_path, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000010"]


def test_the_same_step_again_replaces_a_torn_one(tmp_path: Path) -> None:
    flip(save_now(tmp_path, 5).path)
    again = save_now(tmp_path, 5)
    assert verify(again.path) == again


@pytest.mark.usefixtures("nothing_logged")
def test_a_full_disk_keeps_the_last_good_one(tmp_path: Path) -> None:
    good = save_now(tmp_path, 5)

    def write(folder: Path) -> None:
        (folder / "part").write_bytes(bytes(2**20))
        with Path("/dev/full").open(
            "wb"
        ) as full:  # every write to it fails with "No space left on device"
            full.write(b"x")

    with pytest.raises(
        CheckpointError, match=r"full: the checkpoint of step 6 .*1\.0 MiB.* step_000005, untouched"
    ):
        save_now(tmp_path, 6, write)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000005"]
    assert newest_complete(tmp_path) == good


def test_a_full_disk_is_known_by_its_words_and_other_errors_are_not(tmp_path: Path) -> None:
    def wrapped(_: Path) -> None:
        raise RuntimeError(
            "worker: SafetensorError: I/O error: No space left on device (os error 28)"
        )

    def denied(_: Path) -> None:
        raise OSError(errno.EACCES, "denied")

    with pytest.raises(CheckpointError, match="there is no earlier checkpoint"):
        save_now(tmp_path, 1, wrapped)
    with pytest.raises(PermissionError):
        save_now(tmp_path, 1, denied)


def test_prune_keeps_the_newest_whole_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save_now(tmp_path, step)
    (tmp_path / "step_000004" / "state.json").unlink()  # torn, so it does not count
    assert [path.name for path in prune(tmp_path, 2)] == ["step_000001"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step_000002",
        "step_000003",
        "step_000004",
    ]
    assert prune(tmp_path, None) == []
    with pytest.raises(ConfigError, match="max_actor_ckpt_to_keep=0"):
        prune(tmp_path, 0)
