"""A container's limit counts, in both forms that it is written in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rmrl.cluster.devices import (
    container_free_bytes,
    cores,
    free_bytes,
    resolve_device,
    total_bytes,
)
from rmrl.errors import ConfigError


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text, encoding="ascii")


def test_version_2_counts_pages_of_files_as_free(tmp_path: Path) -> None:
    write(
        tmp_path,
        memory__max="1000\n",
        memory__current="700\n",
        memory__stat="anon 300\ninactive_file 250\n",
    )
    assert container_free_bytes(tmp_path, default=9) == 1000 - 700 + 250


def test_no_limit_is_the_machine(tmp_path: Path) -> None:
    assert container_free_bytes(tmp_path, default=9) == 9
    write(
        tmp_path, memory__max="max\n", memory__current="700\n", memory__stat="inactive_file 250\n"
    )
    assert container_free_bytes(tmp_path, default=9) == 9


def test_version_1_and_more_used_than_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    write(
        folder,
        memory__limit_in_bytes="1000",
        memory__usage_in_bytes="900",
        memory__stat="total_inactive_file 50",
    )
    assert container_free_bytes(tmp_path, default=9) == 150
    write(folder, memory__usage_in_bytes="1100")
    assert container_free_bytes(tmp_path, default=9) == 0


def test_this_machine() -> None:
    assert 0 < free_bytes("cpu") <= total_bytes("cpu")
    assert cores() >= 1
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"trainer\.device=cuda, and torch .* sees no CUDA device: use trainer\.device=auto"
            r" or cpu"
        ),
    ):
        resolve_device("cuda")
