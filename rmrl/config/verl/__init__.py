"""Command lines of verl: what each of its keys becomes here, as one table, and the conversions that
take several keys at once."""

from __future__ import annotations

from rmrl.config.verl.apply import Applied, apply
from rmrl.config.verl.files import own_arguments
from rmrl.config.verl.key_rules import Fate, KeyFate, fate_of
from rmrl.config.verl.setting import Setting
from rmrl.config.verl.table import TABLE

__all__ = ["TABLE", "Applied", "Fate", "KeyFate", "Setting", "apply", "fate_of", "own_arguments"]
