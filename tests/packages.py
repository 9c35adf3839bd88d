"""Machines that lack a package."""

from __future__ import annotations

import importlib.util

import pytest


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Have one package look as if it were not installed. transformers remembers what it has found,
    so that hiding all of them would take torch from every later test."""
    spec_of = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *of: None if name == package else spec_of(name, *of),
    )
