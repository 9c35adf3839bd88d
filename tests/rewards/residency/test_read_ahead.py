"""Weight files are read once, in order, within the memory there is, until told to stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmrl.rewards.residency.read_ahead import ReadAhead, available_bytes, weight_files
from tests.patience import PATIENCE_S

MIB = 2**20


def write(folder: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        (folder / name.replace("__", ".")).write_bytes(bytes(size))


def test_every_weight_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    write(
        tmp_path, model_1__safetensors=9 * MIB, model_2__safetensors=5, config__json=7, old__bin=11
    )
    reading = ReadAhead(str(tmp_path))
    assert not reading.done
    reading.start()
    reading.join(PATIENCE_S)
    assert reading.done
    assert reading.bytes_read == 9 * MIB + 5
    assert reading.seconds > 0


def test_bin_files_where_there_are_no_others(tmp_path: Path) -> None:
    write(tmp_path, b__bin=1, a__bin=1, vocab__txt=1)
    assert [file.name for file in weight_files(str(tmp_path))] == ["a.bin", "b.bin"]


def test_a_hub_id_is_nothing_to_read() -> None:
    reading = ReadAhead("org/name")
    reading.start()
    reading.join(PATIENCE_S)
    assert (reading.done, reading.bytes_read) == (True, 0)


def test_never_more_than_is_free(tmp_path: Path) -> None:
    write(tmp_path, model__safetensors=40 * MIB)
    reading = ReadAhead(
        str(tmp_path), free_bytes=lambda: (512 + 20) * MIB
    )  # 512 MiB are left alone: two chunks of 8 fit into 20
    reading.start()
    reading.join(PATIENCE_S)
    assert reading.bytes_read == 16 * MIB


def test_stops_when_memory_becomes_scarce(tmp_path: Path) -> None:
    write(tmp_path, model__safetensors=40 * MIB)
    answers = iter(
        [10_000 * MIB, 10_000 * MIB, 10_000 * MIB, 400 * MIB]
    )  # the limit, chunk 1, chunk 2, then too little
    reading = ReadAhead(str(tmp_path), free_bytes=lambda: next(answers))
    reading.start()
    reading.join(PATIENCE_S)
    assert reading.bytes_read == 16 * MIB


def test_stops_when_told(tmp_path: Path) -> None:
    write(tmp_path, model__safetensors=40 * MIB)
    reading: ReadAhead
    asked = 0

    def free() -> int:
        nonlocal asked
        asked += 1
        if asked == 3:  # while the second chunk is prepared
            reading.stop()
        return 10_000 * MIB

    reading = ReadAhead(str(tmp_path), free_bytes=free)
    reading.start()
    reading.join(PATIENCE_S)
    assert reading.bytes_read == 16 * MIB


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_left_to_the_loader(tmp_path: Path) -> None:
    write(tmp_path, model__safetensors=10)
    (tmp_path / "model.safetensors").chmod(0)
    reading = ReadAhead(str(tmp_path))
    reading.start()
    reading.join(PATIENCE_S)
    assert (reading.done, reading.bytes_read) == (True, 0)


def test_a_folder_named_like_a_weight_file_is_left_to_the_loader(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    reading = ReadAhead(str(tmp_path))
    reading.start()
    reading.join(PATIENCE_S)
    assert (reading.done, reading.bytes_read) == (True, 0)


def test_available_memory_is_asked_of_the_machine() -> None:
    assert available_bytes() > 100 * MIB
