"""Facts that a preset states about its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Licence:
    """The weights' terms."""

    name: str
    notice: str = ""
    """Restriction by the terms, as a sentence that is logged where the preset is used. "": only
    attribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One family: models that are asked and read in the same way."""

    title: str
    models: Mapping[str, str]
    """Preset -> hub id."""
    licence: Licence
    licences: Mapping[str, Licence] = field(default_factory=dict[str, Licence])
    """Preset -> its licence, of those that differ from `licence`."""
    reads: str
    """The model's input and answer, and the score that comes of it."""
    trained: str
    """What it learned from, in a few words after its paper."""
    paper: str
    source: str
    """Origin of the prompt and of the answer's form."""
    tried: str
    """The trials of the preset, and those that were not made."""
    remote_code: bool = False
    """Its head is code of the checkpoint's own, which runs only where the user trusts it."""
