"""Hydra composes a command line into typed objects, with all problems reported at once.

Every command composes in one way, with and without the user's own files; Hydra's own entry, which
ends any error with a traceback and exit code 1, only prints (`--cfg job`).
"""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import hydra
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rmrl.config.bare_words import SCORED, TRAINED, keyed
from rmrl.config.command_line import (
    CommandLine,
    Setting,
    command_line,
    names_data,
)
from rmrl.config.compat import GROUPS, may_be_of_verl, own_arguments
from rmrl.config.hidden import hide_secrets
from rmrl.config.overrides import parse, read_override
from rmrl.config.schema import (
    CONFIG_NAMES,
    Config,
    EvalConfig,
    RewardTrainingConfig,
    ScoreConfig,
)
from rmrl.config.section import SECTION, is_section_file, read_section, section_path
from rmrl.config.typed import Root, annotation, is_free, takes_list, to_config, unknown_key
from rmrl.errors import ConfigError, Interrupted, Problems, RmrlError, SweepError, first_line
from rmrl.registry import did_you_mean

_log = logging.getLogger(__name__)

RECIPE = "recipe"
"""configs/recipe/<name>.yaml, the keys that make an algorithm: `+recipe=dapo`, several as
`+recipe=[dapo,tis]`. Later overrides win."""

_OF_FILE = "rmrl_section_of_a_file"
"""Name under which Hydra has the section of `reward=path/to/section.yaml`."""
_SWEEP = {"--multirun", "-m"}
_HELP = {"--help", "-h", "--hydra-help", "--version", "--shell-completion", "-sc"}
_PRINT = {"--cfg", "-c", "--info", "-i"}
_NO_LOG_FILES = ("hydra/job_logging=none", "hydra/hydra_logging=none")
_BROKEN = (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, UnicodeDecodeError)
"""What composing raises; of files of the user's own also what reading raises."""


def shipped(folder: str) -> Path:
    """Return a folder that ships with rmrl ("configs", "reward_functions"): beside the package in a
    checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped" / folder
    return inside if inside.is_dir() else package.parent / folder


class _OwnFiles(SearchPathPlugin):
    """Hydra's way to further configuration folders: --config-dir's, after ours."""

    folder: ClassVar[Path | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.folder is not None:
            search_path.append("command-line", f"file://{self.folder.resolve()}")


@lru_cache(maxsize=1)
def register() -> None:
    """Register the dataclasses with Hydra under the names that the files in configs/ start from.

    Once per process: Hydra copies its stored nodes, and reading the dataclasses takes longer than
    composing.
    """
    for root, name in CONFIG_NAMES.items():
        start = "rmrl_defaults" if root is Config else f"rmrl_{name}_defaults"
        ConfigStore.instance().store(name=start, node=root)
    Plugins.instance().register(_OwnFiles)


@contextmanager
def _initialised(folder: Path | None) -> Iterator[None]:
    """Have Hydra find our files and `folder`'s in the block. Raises ConfigError where there is no
    such folder."""
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            f"--config-dir={folder}: no such folder; give one with YAML files of your own, or a"
            " section alone, reward=path/to/section.yaml"
        )
    register()
    GlobalHydra.instance().clear()
    _OwnFiles.folder = folder
    try:
        with initialize_config_dir(str(shipped("configs")), version_base="1.3", job_name="rmrl"):
            yield
    finally:
        _OwnFiles.folder = None


def compose_config(arguments: Sequence[str], root: type[Root] = Config) -> Root:
    """Compose a typed configuration from a command line: Hydra overrides such as "trainer.seed=3",
    a section in a file, "reward=path/to/section.yaml", and --config-dir with --config-name. Keys
    without effect are logged, one line per reason.

    Raises ConfigError with every problem: unknown keys (with the nearest known one), refused keys
    (with what to use), wrong types, and files that are missing or broken.
    """
    line = _prepared(arguments, root)
    with _initialised(line.folder):
        return _composed(line, root)


def starts_training(arguments: Sequence[str]) -> bool:
    """Return whether --config-name's file is a training configuration, False without one. Raises
    ConfigError where it cannot be composed."""
    line = command_line(own_arguments(arguments))
    if line.name is None:
        return False
    with _initialised(line.folder):
        return OmegaConf.get_type(_raw(line.name, [], line.folder)) is Config


def _prepared(arguments: Sequence[str], root: type) -> CommandLine:
    """Return the command line with overrides as Hydra takes them. A file's section is among them,
    under our own name. Raises ConfigError with all problems that show before composing.
    """
    if root is Config:
        arguments = own_arguments(arguments)
    line = command_line(arguments)
    problems = Problems()
    overrides: list[str] = []
    words = list(line.overrides)
    for data_key in (SCORED, TRAINED):
        if unknown_key(root, data_key) is None:
            words = keyed(words, data_key)
    section: dict[str, Any] | None = None
    for text in words:
        file = _section_file(text, line.folder)
        if file is None:
            overrides.append(text)
            continue
        with problems.collecting():
            if section is not None:
                raise ConfigError(
                    f"{text}: there is a section of rewards already; give one, or the rewards of"
                    " several as reward.models=[a,rules.py]"
                )
            section = read_section(file)
    with problems.collecting():
        overrides = normalise(overrides, root)
    problems.raise_any()
    if line.name is None:  # else the file may have the section in its defaults, which + adds to
        overrides = [_added(text, root) for text in overrides]
    if section is not None:
        ConfigStore.instance().store(group=SECTION, name=_OF_FILE, node=section)
        overrides.insert(0, f"+{SECTION}={_OF_FILE}")
    return dataclasses.replace(line, overrides=overrides)


def _section_file(text: str, folder: Path | None) -> Path | None:
    """Return the file in `reward=path/to/section.yaml`, None for any other word."""
    key, _, value = text.partition("=")
    value = value.strip("'\"")
    if key.lstrip("+") == SECTION and is_section_file(value):
        return section_path(value, folder)
    return None


def _added(text: str, root: type) -> str:
    """Return `reward=name` as `+reward=name`: a section's file is added to all that are
    composed."""
    override, _ = read_override(text)
    if override is None or text.startswith(("+", "~")) or "." in override.key_or_group:
        return text
    is_name = override.is_sweep_override() or isinstance(override.value(), str)
    known = override.package is None and unknown_key(root, override.key_or_group) is None
    if is_name and known and dataclasses.is_dataclass(annotation(root, override.key_or_group)):
        return f"+{text}"
    return text


def _composed(line: CommandLine, root: type[Root]) -> Root:
    name = line.name or CONFIG_NAMES[root]
    if line.name is not None:
        kind: Any = OmegaConf.get_type(_raw(name, [], line.folder))
        if kind is not root:
            start = CONFIG_NAMES.get(kind, "none of rmrl's configurations")
            raise ConfigError(
                f"--config-name={name} starts from {start}; this command needs a file with the"
                f" line defaults: [{CONFIG_NAMES[root]}, _self_]"
            )
    return to_config(_raw(name, line.overrides, line.folder), root)


def _raw(name: str, overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """Compose the file `name` and overrides. Raises ConfigError with a sentence for each override
    that cannot be composed by itself, else for the whole."""
    try:
        return compose(name, overrides=list(overrides))
    except _BROKEN as error:
        texts = overrides if overrides and not _value_problem(None, name, folder) else ()
        problems = [_value_problem(text, name, folder) for text in texts]
        problems = list(filter(None, problems)) or [_sentence(error, name, folder)]
        raise ConfigError(problems) from error


def normalise(overrides: Sequence[str], root: type = Config) -> list[str]:
    """Return overrides in the form that Hydra requires: verl's keys replaced by rmrl's, free-form
    sections' entries with "++".

    Raises ConfigError with every unknown, refused or malformed one. Flags ("--cfg") pass through.
    Keys without effect are logged.
    """
    settings, problems = parse(overrides)
    of_verl = [setting for setting in settings if _may_be_of_verl(setting, root)]
    becomes = {setting.origin: [setting.text] for setting in settings}
    normalised: list[str] = []
    notices: list[str] = []
    if any(map(may_be_of_verl, of_verl)):
        from rmrl.config.compat.apply import apply

        applied = apply(of_verl)
        problems += applied.problems
        notices = applied.notices
        becomes |= {setting.origin: applied.passed_on(setting.origin) for setting in of_verl}
        for text in applied.converted:
            normalised += _check_override(text, root, problems)
    for origin, text in enumerate(overrides):
        if origin not in becomes:
            normalised.append(text)  # a flag
        for override in becomes.get(origin, ()):
            normalised += _check_override(override, root, problems)
    if problems:
        raise ConfigError(problems)
    for line in notices:
        _log.info(line)
    return normalised


def run_command(
    arguments: Sequence[str], run: Callable[[Root], object], root: type[Root] = Config
) -> None:
    """Call `run` with a command line's configuration, which may have Hydra's own flags: --cfg job
    prints the configuration, --help the keys, --multirun sweeps. Errors as `compose_config`, and
    `run`'s."""
    line = _prepared(arguments, root)
    flags = line.flags
    if flags & _SWEEP:
        _sweep(line, run, root)
    elif flags & _HELP:
        _print(line, root)
    elif flags and not flags & _PRINT:
        raise ConfigError(
            f"{' '.join(sorted(flags))}: no flag of this command; keys are given as"
            " section.key=value, e.g. data.files=rows.jsonl, and files as --config-dir=DIR"
        )
    else:
        with _initialised(line.folder):
            config = _composed(line.without_flags(), root)
        if flags:
            _print(line, root)
        else:
            run(config)


def _print(line: CommandLine, root: type) -> None:
    """Have Hydra print what its flags ask for. It ends the process where it cannot."""

    @hydra.main(
        version_base="1.3", config_path=str(shipped("configs")), config_name=CONFIG_NAMES[root]
    )
    def command(composed: DictConfig) -> None:
        del composed

    register()
    before = sys.argv
    sys.argv = [before[0], *line.with_files(line.overrides)]
    try:
        command()
    except _BROKEN as error:
        raise ConfigError(_cause(error)) from error
    finally:
        sys.argv = before


def _sweep(line: CommandLine, run: Callable[[Root], object], root: type[Root]) -> None:
    """Call `run` for each --multirun job. Raises SweepError at the end where some failed."""
    overrides = line.without_flags().overrides
    constant = {setting.key for setting in parse(overrides)[0] if setting.plain}
    jobs: list[str] = []
    failed: list[tuple[str, RmrlError]] = []

    def job(composed: DictConfig) -> None:
        swept: list[str] = [
            word
            for word in HydraConfig.get().overrides.task
            if word.lstrip("+").partition("=")[0] not in constant
        ]
        jobs.append(" ".join(hide_secrets(swept)) or "without keys of its own")
        _log.info(f"job {len(jobs)} of the sweep: {jobs[-1]}")
        try:
            run(to_config(composed, root))
        except Interrupted as error:
            raise KeyboardInterrupt(str(error)) from error  # the jobs behind it are not started
        except RmrlError as error:
            _log.warning(f"job {len(jobs)} failed, the sweep goes on: {first_line(error)}")
            failed.append((jobs[-1], error))

    name = line.name or CONFIG_NAMES[root]
    with _initialised(line.folder), TemporaryDirectory() as notes:
        words = [*_NO_LOG_FILES, *overrides]
        if line.name is None and not any("hydra" in word for word in overrides):
            words.append(f"hydra.sweep.dir={notes}")  # jobs have folders and notes of their own
        of_hydra = GlobalHydra.instance().hydra
        assert of_hydra is not None
        try:
            of_hydra.multirun(name, job, words)
        except _BROKEN as error:
            raise ConfigError(_sentence(error, name, line.folder)) from error
    if failed:
        raise SweepError(failed, len(jobs)) from failed[0][1]


def to_yaml(config: Config | ScoreConfig | EvalConfig | RewardTrainingConfig) -> str:
    """Return the resolved configuration as YAML, every key with its value."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _value_problem(override: str | None, config_name: str, folder: Path | None) -> str:
    """Return a sentence on an override, or on the file alone, that cannot be composed by itself; ""
    where it can."""
    try:
        compose(config_name, overrides=list(filter(None, [override])))
    except _BROKEN as error:
        if override is None:
            return _sentence(error, config_name, folder)
        shown = override.lstrip("+")
        key, _, name = shown.partition("=")
        if key == SECTION:
            return f"{shown}: {_section_problem(name, folder, error)}"
        if isinstance(error, MissingConfigException):
            return f"{shown}: {_nothing_named(error, folder)}"
        return f"{shown}: {_cause(error)}"
    return ""


def _section_problem(name: str, folder: Path | None, error: Exception) -> str:
    """Return what is wrong with the section that `reward=name` names in a folder."""
    path = section_path(name, folder)
    if not path.is_file():
        names = _stems((folder or shipped("configs")) / SECTION)
        return (
            f"nothing named '{name}'{did_you_mean(name, names)}; give a file,"
            f" {SECTION}=path/to/section.yaml, or a folder with {SECTION}/{name}.yaml in it,"
            " --config-dir=DIR"
        )
    try:
        read_section(path)
    except ConfigError as of_file:
        return "\n  ".join(of_file.problems)
    return _cause(error)


def _sentence(error: Exception, config_name: str, folder: Path | None) -> str:
    """Return a sentence on a composing error that no single override is to blame for."""
    if not isinstance(error, MissingConfigException):
        return f"{config_name}.yaml: {_cause(error)}"
    if error.missing_cfg_file != config_name:
        return f"{config_name}.yaml: {_nothing_named(error, folder)}"
    if folder is None:
        return f"--config-name={config_name} needs the folder of the file, --config-dir=DIR"
    hint = did_you_mean(config_name, _stems(folder))
    return f"--config-name={config_name}: no such file in {folder}{hint}"


def _nothing_named(error: MissingConfigException, folder: Path | None) -> str:
    missing = Path(str(error.missing_cfg_file))
    names = list(error.options or ()) + _stems(shipped("configs") / missing.parent)
    if folder is not None:
        names += _stems(folder / missing.parent)
    return f"nothing named '{missing.name}'{did_you_mean(missing.name, list(dict.fromkeys(names)))}"


def _stems(folder: Path) -> list[str]:
    return [file.stem for file in sorted(folder.glob("*.yaml"))]


def _cause(error: Exception) -> str:
    """Return what is wrong in one line: where Hydra's first line says what it did, the second says
    why that failed."""
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].endswith("raised while composing config:"):
        return f"{lines[0].rpartition(': ')[0]}: {lines[1].strip()}"
    text = first_line(error.__cause__ or error)
    if text.startswith("Ambiguous value"):
        return (
            "several values are a sweep, which needs --multirun; a list is [a,b], and a text with"
            " commas stands in quotes, 'a,b', inside those of the shell"
        )
    section = re.search("An item is already at '(.+)'", text)
    if section:
        return (
            f"'{section[1]}' is a section; give its keys, {section[1]}.<key>=..., or the name of a"
            f" file in DIR/{section[1]} with --config-dir=DIR"
        )
    return text


def _may_be_of_verl(setting: Setting, root: type) -> bool:
    """Return whether to look the key up in verl's key table: for commands other than training only
    a key that their own configuration lacks."""
    if setting.key == RECIPE or re.split(r"[/.]", setting.key)[0] == "hydra":
        return False
    return root is Config or unknown_key(root, setting.key) is not None


def _check_override(text: str, root: type, problems: list[str]) -> list[str]:
    """Return the override to pass on, [] where `problems` gets a sentence on it instead."""
    override, problem = read_override(text)
    if override is None:
        problems.append(problem)
        return []
    key = override.key_or_group
    if key == RECIPE and root is Config:
        return [text if text.startswith(("+", "~")) else f"+{text}"]
    if key == "hydra" or key.startswith(("hydra.", "hydra/")):
        return [text]
    if override.package is not None:
        if key in GROUPS:
            problems.append(
                f"{text}: verl's groups of configuration files do not exist here; give the keys"
                " that the group sets"
            )
            return []
        return [text]
    problem = unknown_key(root, key, override.value())
    if problem:
        problems.append(problem)
        return []
    annotated = annotation(root, key)
    value = override.value()
    is_section = dataclasses.is_dataclass(annotated)
    for files in ("files", "train_files"):
        if is_section and hasattr(annotated, files) and names_data(value):
            return [f"{key}.{files}={text.partition('=')[2]}"]
    free = is_free(annotated)
    if not free and not is_section:
        text = text.lstrip("+")  # verl adds keys that the schema has here
    if (
        takes_list(annotated)
        and not override.is_sweep_override()
        and value is not None
        and not isinstance(value, list)
    ):
        text = f"{text.partition('=')[0]}=[{text.partition('=')[2]}]"
    return ["++" + text if text.startswith(key) and free else text]
