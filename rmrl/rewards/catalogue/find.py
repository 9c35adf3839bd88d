"""Presets by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rmrl.config.yaml_file import read_yaml
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean
from rmrl.rewards.catalogue import families
from rmrl.rewards.catalogue.card import Card, Licence

PREFIX = "preset:"
"""Before a preset's name in reward.models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One model in a family."""

    name: str
    path: str
    """Hub id of its checkpoint."""
    card: Card
    spec: Mapping[str, Any]
    """Entries of `reward.specs.<name>`, without `path`."""
    file: Path
    """The family's drop-in, else its table."""
    is_dropin: bool
    """Whether `file` renders the model's input and reads its answer."""

    @property
    def licence(self) -> Licence:
        """Its weights' terms."""
        return self.card.licences.get(self.name, self.card.licence)


@cache
def presets() -> dict[str, Preset]:
    """All presets, family by family."""
    found: dict[str, Preset] = {}
    for table in sorted(Path(families.__path__[0]).glob("*.yaml")):
        entries = dict(read_yaml(table))
        spec = entries.pop("spec")
        licences = {name: Licence(**terms) for name, terms in entries.pop("licences", {}).items()}
        licence = Licence(**entries.pop("licence"))
        card = Card(**entries, licence=licence, licences=licences)
        dropin = table.with_suffix(".py")
        for name, path in card.models.items():
            found[name] = Preset(
                name=name,
                path=path,
                card=card,
                spec=spec,
                file=dropin if dropin.exists() else table,
                is_dropin=dropin.exists(),
            )
    return found


def preset_of(name: str) -> Preset:
    """The preset with that name. Raises ConfigError for an unknown one."""
    known = presets()
    if name not in known:
        raise ConfigError(
            f"'{name}' is no preset{did_you_mean(name, list(known))}; rmrl show presets lists them"
        )
    return known[name]
