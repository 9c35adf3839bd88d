"""A checked configuration of `rmrl serve`."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema import ServerConfig
from rmrl.offline.check_scoring import CheckedScoring


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedServer:
    """A configuration without known problems."""

    settings: ServerConfig
    scoring: CheckedScoring
    token: bytes | None = field(default=None, repr=False)
    """None: every request is let in."""
