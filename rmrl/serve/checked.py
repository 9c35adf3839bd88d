"""A checked configuration of `rmrl serve`."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.api import CheckedScoring
from rmrl.config.schema import ServerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedServer:
    """A configuration without known problems."""

    settings: ServerConfig
    scoring: CheckedScoring
    token: bytes | None = field(default=None, repr=False)
    """None: every request is let in."""
