"""An audit's checks, a file each, cheap ones first."""

from __future__ import annotations

from rmrl.audit.checks.bench import Check
from rmrl.registry import Registry

_TABLE = {
    "contract": "rmrl.audit.checks.contract:Contract",
    "repeatability": "rmrl.audit.checks.repeatability:Repeatability",
    "golden": "rmrl.audit.checks.golden:GoldenAndNull",
    "mutations": "rmrl.audit.checks.mutations:Mutations",
    "shortcuts": "rmrl.audit.checks.shortcuts:Shortcuts",
    "agreement": "rmrl.audit.checks.agreement:Agreement",
    "pressure": "rmrl.audit.checks.pressure:Pressure",
    "cost": "rmrl.audit.checks.cost:Cost",
    "drift": "rmrl.audit.checks.drift:Drift",
}
IN_ORDER = tuple(_TABLE)
"""The last ones are those that a budget may not reach."""
CHECKS: Registry[type[Check]] = Registry("check", _TABLE)
