"""hf://name/split in the place of a file: a folder, a hub that is played, and what goes wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import DataConfig, ScoreConfig
from rmrl.data import hub
from rmrl.data.dataset import iterate_rows
from rmrl.data.hub import HubSplit
from rmrl.data.responses import answered_rows
from rmrl.data.rows import file_list, read_rows
from rmrl.errors import ConfigError, DataError
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench, bench

__all__ = ["bench"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rmrl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set of two splits."""
    path = tmp_path / "sums"
    path.mkdir()
    for split, count in (("train", 7), ("test", 3)):
        rows = []
        for i in range(count):
            rows.append({"prompt": f"{split} {i}", "response": "x" * i, "extra_info": {"i": i}})
        write_lines(path / f"{split}.jsonl", rows)
    return path


class Hub:
    """Plays the hub; `asked` has what it was asked for."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.asked: list[tuple[Any, ...]] = []

    def load_dataset(
        self, name: str, configuration: str | None, *, split: str, streaming: bool
    ) -> Iterator[dict[str, Any]]:
        self.asked.append((name, configuration, split, streaming))
        yield from self.rows


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Hub:
    played = Hub([{"prompt": "q", "response": "a \ud83d", "when": 3}])
    monkeypatch.setattr("datasets.load_dataset", played.load_dataset)
    return played


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(path)]


def test_a_split_of_a_folder_is_read_like_a_file(folder: Path, cache: Path) -> None:
    config = compose_config([f"data.files=hf://{folder}/test"], ScoreConfig)
    *_, third = answered_rows(config.data)
    assert third.number == 2
    assert third.prompt.messages[0]["content"] == "test 2"
    assert third.texts == ("xx",)
    assert third.fields["extra_info"] == {"i": 2}
    training = DataConfig(train_files=[f"hf://{folder}/train"])
    assert len(list(iterate_rows(training, split="train"))) == 7
    assert len(list(cache.iterdir())) == 2


def test_the_rows_are_read_once_until_the_folder_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = file_list(f"hf://{folder}/test", "data.files")
    with monkeypatch.context() as patched:
        patched.setattr(HubSplit, "rows", lambda _: pytest.fail("read again"))
        assert file_list(f"hf://{folder}/test", "data.files") == [first]
    write_lines(folder / "test.jsonl", [{"prompt": "new", "response": "b"}])
    (second,) = file_list(f"hf://{folder}/test", "data.files")
    (row,) = rows_in(second)
    assert row["prompt"] == "new"


def test_a_sample_of_a_split_is_scored(bench: Bench, folder: Path) -> None:
    checked = bench.checked(
        f"data.files=hf://{folder}/train", f"out={bench.folder}/s.jsonl", "data.sample=2"
    )
    bench.score(checked)
    first, second = read_lines(bench.folder / "s.jsonl")
    # random.Random(1).sample(range(7), 2) is 1 and 4
    assert (first["prompt"], first["reward"]) == ("train 1", 0.1)
    assert (second["prompt"], second["reward"]) == ("train 4", 0.4)


def test_a_data_set_that_cannot_be_had_is_asked_for_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []

    def absent(address: str, key: str) -> Path:
        addresses.append(address)
        raise DataError(f"{key}: no connection")

    monkeypatch.setattr(hub, "hub_file", absent)
    with pytest.raises(DataError, match=r"data\.files: no connection"):
        bench.checked("data.files=hf://owner/sums/test", f"out={bench.folder}/s.jsonl")
    assert addresses == ["hf://owner/sums/test"]


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("hf://squad/train", ("squad", None, "train", True)),
        ("hf://owner/sums/test", ("owner/sums", None, "test", True)),
        ("hf://owner/sums/main/test", ("owner/sums", "main", "test", True)),
    ],
)
def test_an_address_names_data_set_configuration_and_split(
    played: Hub, cache: Path, address: str, asked: tuple[Any, ...]
) -> None:
    (path,) = file_list([address], "data.files")
    assert played.asked == [asked]
    assert path.parent == cache
    assert rows_in(path) == played.rows
    assert list(cache.iterdir()) == [path]


@pytest.mark.parametrize(
    "address", ["hf://", "hf://squad", "hf://a//b", "hf://a/b/c/d/e", "hf://datasets/a/b/c.parquet"]
)
def test_an_address_without_a_split_is_answered_with_the_forms(address: str) -> None:
    words = "names no split of a data set; need hf://owner/name/split, or"
    with pytest.raises(ConfigError, match=words):
        file_list(address, "data.files")


def test_an_unknown_split_is_answered_with_those_there_are(folder: Path, cache: Path) -> None:
    with pytest.raises(DataError, match=r"Bad split: val. Available splits: \['train', 'test'\]"):
        file_list(f"hf://{folder}/val", "data.files")
    assert list(cache.iterdir()) == []


def test_an_unknown_name_says_whether_a_connection_was_tried(
    monkeypatch: pytest.MonkeyPatch, played: Hub
) -> None:
    def unreachable(*_: Any, **__: Any) -> Any:
        raise ConnectionError("Couldn't reach 'a/b' on the Hub")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="HF_HUB_OFFLINE is set, so nothing is downloaded: unset"):
        file_list("hf://a/b/train", "data.files")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with pytest.raises(DataError, match=r"data\.files: hf://a/b/train cannot be read \(Connection"):
        file_list("hf://a/b/train", "data.files")


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match="pip install datasets"):
        file_list("hf://a/b/train", "data.files")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: Hub) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be kept in .*HF_DATASETS_CACHE"):
        file_list("hf://a/b/train", "data.files")
    assert played.asked == []
