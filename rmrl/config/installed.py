"""Distributions that install an import package named `rmrl`: this one is `rmrl-toolkit`."""

from __future__ import annotations

import re
from importlib.metadata import packages_distributions

from rmrl.errors import ConfigError

OWN_DISTRIBUTION = "rmrl-toolkit"


def other_rmrl_problem() -> str:
    """Return a sentence where another distribution installs files into the import package `rmrl`,
    else "".

    The name `rmrl` of the public index is another program. Installed into one environment, the
    files of the two overwrite each other.
    """
    owners: set[str] = set()
    for name in packages_distributions().get("rmrl", []):
        normalised = re.sub(r"[-_.]+", "-", name).lower()
        owners.add(normalised)
    others = sorted(owners - {OWN_DISTRIBUTION})
    if not others:
        return ""
    names = ", ".join(others)
    return (
        f"the distribution {names}, another program, installs an import package named rmrl too,"
        f" and the files of the two mix; this one is {OWN_DISTRIBUTION}: pip uninstall"
        f" {' '.join(others)}, then pip install --force-reinstall --no-deps {OWN_DISTRIBUTION}"
    )


def refuse_other_rmrl() -> None:
    """Raise ConfigError with the sentence of `other_rmrl_problem`."""
    problem = other_rmrl_problem()
    if problem:
        raise ConfigError(problem)
