"""What is wrong with the installed packages: another program named `rmrl`, parts that were left
out, and builds that do not go together."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from rmrl.errors import ConfigError

OWN_DISTRIBUTION = "rmrl-toolkit"
LEFT_OUT = ("torch", "transformers", "ray", "datasets", "tensorboard")
"""Packages of the extra `train`, which the core does without."""
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""Packages compiled for one build of torch, which transformers and vLLM import where they are
installed."""
COMPANIONS_CURE = f"pip uninstall {' '.join(COMPANIONS)} (text models need none of them)"
_TORCH_FOR_CPUS = "https://download.pytorch.org/whl/cpu"


def install_line(extra: str) -> str:
    """Return the command that adds an extra to an environment that has rmrl-toolkit: pip looks for
    the extra's parts alone, and not for rmrl-toolkit, which no index has."""
    if extra == "cpu":  # vLLM's CPU build requires a torch that the public index lacks
        return f'pip install --extra-index-url {_TORCH_FOR_CPUS} "{OWN_DISTRIBUTION}[cpu]"'
    return f'pip install "{OWN_DISTRIBUTION}[{extra}]"'


def other_rmrl_problem() -> str:
    """Return a sentence where another distribution installs files into the import package `rmrl`,
    else "".

    On the public index `rmrl` is another program. Installed into one environment, their files
    overwrite each other.
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
    """Raise ConfigError with `other_rmrl_problem`'s sentence."""
    problem = other_rmrl_problem()
    if problem:
        raise ConfigError(problem)


def left_out_problem(error: ModuleNotFoundError) -> str:
    """Return a sentence where a module is missing that the core does without, else ""."""
    package = (error.name or "").partition(".")[0]
    if package not in LEFT_OUT:
        return ""
    return (
        f"this needs {package}, which is not installed: the core of {OWN_DISTRIBUTION} has rules,"
        " servers, evaluation and reports; models and training come with the extra cuda, on a CPU"
        f" {install_line('cpu')} (without vLLM: {install_line('train')})"
    )


def companion_problem(error: BaseException | str) -> str:
    """Return a sentence where an import failed because of torch's companion, such as "operator
    torchvision::nms does not exist", else "". Causes behind the error count."""
    if isinstance(error, BaseException):
        texts: list[str] = []
        cause: BaseException | None = error
        while cause is not None and len(texts) < 20:
            texts.append(str(cause))
            cause = cause.__cause__ or cause.__context__
        text = "\n".join(texts)
    else:
        text = error
    for name in COMPANIONS:
        release = _version_or_dash(name)
        if name in text and release != "-":
            return (
                f"{name} {release} is of another build than torch {_version_or_dash('torch')}, and"
                f" transformers and vLLM cannot be imported beside it: {COMPANIONS_CURE}, or take"
                " the build from the index of torch's"
            )
    return ""


def _version_or_dash(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"
