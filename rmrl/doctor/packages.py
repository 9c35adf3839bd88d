"""The versions that rmrl, Python and the required packages have."""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from rmrl.config.installed import (
    COMPANIONS,
    OWN_DISTRIBUTION,
    companion_problem,
    other_rmrl_problem,
)
from rmrl.doctor import child
from rmrl.doctor.finding import Finding, ok
from rmrl.errors import RmrlError

_DISPLAYED = ("torch", "transformers", "ray", "datasets", "pyarrow", "math-verify")
_IMPORT_DEADLINE_S = 120.0
_USER_EXTRAS = ("train", "similarity", "megatron", "lora", "trackers", "multinode")
"""Extras that a user chooses; those of the inference engine are the engines' own findings."""


def check_packages() -> list[Finding]:
    """Compare what is installed with what the distribution requires."""
    findings: list[Finding] = []
    clash = other_rmrl_problem()
    if clash:
        findings.append(Finding("problem", clash))
    try:
        own = version(OWN_DISTRIBUTION)
        lines = requires(OWN_DISTRIBUTION) or []
    except PackageNotFoundError:
        findings.append(
            Finding(
                "note",
                f"{OWN_DISTRIBUTION} is not installed; its files are imported from a folder",
                "pip install -e .",
            )
        )
        return findings
    python = ".".join(map(str, sys.version_info[:3]))
    displayed = ", ".join(f"{name} {version_or_none(name) or '-'}" for name in _DISPLAYED)
    findings.append(ok(f"{OWN_DISTRIBUTION} {own} on Python {python}; {displayed}"))
    requirements = [Requirement(line) for line in lines]
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            problem = unmet(requirement)
            if problem:
                findings.append(Finding("problem", problem, f"pip install '{requirement}'"))
    findings += _extras(requirements)
    return findings + companion_findings()


def companion_findings() -> list[Finding]:
    """Import what is compiled for one torch build, each in its own process."""
    findings: list[Finding] = []
    for name in COMPANIONS:
        installed = version_or_none(name)
        if installed is None:
            continue
        try:
            child.run(
                "rmrl.doctor.packages:imported", name, deadline_s=_IMPORT_DEADLINE_S, environment={}
            )
        except RmrlError as error:
            advice = companion_problem(f"{name}: {error}")
            text = f"{name} {installed} cannot be imported: {error}"
            findings.append(Finding("problem", text, advice))
    return findings


def imported(name: str) -> dict[str, str]:
    """Import a package; in its own process, since another build's may crash."""
    importlib.import_module(name)
    return {"package": name}


def version_or_none(name: str) -> str | None:
    """Return a distribution's installed version."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def unmet(requirement: Requirement) -> str:
    """Return a sentence where the requirement does not hold, else ""."""
    installed = version_or_none(requirement.name)
    if installed is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(installed, prereleases=True):
        return f"{requirement.name} {installed} is installed; need {requirement.specifier}"
    return ""


def _extras(requirements: list[Requirement]) -> list[Finding]:
    """Name the extras that are not installed, and installed ones with wrong versions."""
    problems: defaultdict[str, list[str]] = defaultdict(list)
    for requirement in requirements:
        if requirement.marker is None:
            continue
        for extra in _USER_EXTRAS:
            applies = requirement.marker.evaluate({"extra": extra})
            if applies and not requirement.marker.evaluate({"extra": ""}):
                problems[extra] += filter(None, [unmet(requirement)])
    findings: list[Finding] = [
        Finding(
            "note",
            f"extra {extra}: {', '.join(texts)}",
            f'where you need it: pip install "{OWN_DISTRIBUTION}[{extra}]"',
        )
        for extra, texts in problems.items()
        if texts
    ]
    return findings
