"""Another distribution with an import package named rmrl is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.installed import refuse_other_rmrl
from rmrl.errors import ConfigError
from rmrl.main_check import main


def install(folder: Path, distribution: str) -> None:
    """Write what pip leaves of a distribution that has an import package named rmrl."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"rmrl/__init__.py,,\n{info.name}/METADATA,,\n")


def test_this_distribution_alone_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(tmp_path, "rmrl_toolkit")
    monkeypatch.syspath_prepend(str(tmp_path))
    refuse_other_rmrl()


def test_another_distribution_is_named_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install(tmp_path, "rmrl-toolkit")
    install(tmp_path, "rmrl")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="pip uninstall rmrl, then pip install"):
        refuse_other_rmrl()


def test_rmrl_check_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    install(tmp_path, "rmrl")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["reward.models=[gsm8k]"]) == 2
    assert "another program" in capsys.readouterr().err
