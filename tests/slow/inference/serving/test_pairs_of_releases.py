"""Pairs with token types are described as each release of vLLM describes its own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from rmrl.inference.vllm import compat
from tests.slow.inference.serving.test_transfer_of_releases import sources

__all__ = ["sources"]

FUNCTION = "compress_token_type_ids"


def compress(folder: Path) -> Any:
    """The release's own function, which imports nothing."""
    for file in sorted((folder / "vllm" / "entrypoints").rglob("utils.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
                names: dict[str, Any] = {}
                exec(compile(ast.Module([node], []), str(file), "exec"), names)
                return names[FUNCTION]
    raise AssertionError(f"{FUNCTION} is not in {folder}")


def version_of(folder: Path) -> Version:
    installed = compat.installed_version()
    if folder.name.startswith("0."):
        return Version(folder.name)
    assert installed is not None
    return installed


@pytest.mark.parametrize("types", [(0, 1), (0, 0, 0, 1, 1), (0, 1, 1, 1)])
def test_rmrl_describes_pairs_as_the_release_does(
    sources: Path, monkeypatch: pytest.MonkeyPatch, types: tuple[int, ...]
) -> None:
    version = version_of(sources)
    monkeypatch.setattr(compat, "installed_version", lambda: version)
    expected = {"compressed_token_type_ids": compress(sources)(list(types))}
    assert compat.pair_argument(types) == expected
