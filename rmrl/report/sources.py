"""A report's sources: a training run's folder, or a scored file."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.api import summary_file
from rmrl.config.hidden import hide_secrets
from rmrl.config.yaml_file import read_yaml
from rmrl.data.column_names import DEFAULT_NAMES, ColumnNames
from rmrl.errors import ConfigError, DataError
from rmrl.files import DATA_SUFFIXES
from rmrl.telemetry.hints import HINTS_FILE
from rmrl.telemetry.transcripts import SAMPLES_FILE

METRICS_FILE = "metrics.jsonl"
_RUN_FILE = "run.json"
_CONFIG_FILES = "config*.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run's files, or one scored file."""

    label: str
    """Short name, different for each source of a report."""
    samples: Path
    metrics: Path | None = None
    """Metrics by step, where it is a run."""
    hints: Path | None = None
    """Lines that the run's monitor wrote."""
    summary: Path | None = None
    """Statistics that `rmrl score` wrote beside a scored file."""
    reward: Mapping[str, Any]
    """The section `reward` of the configuration, {} where it is not known."""
    names: ColumnNames = DEFAULT_NAMES
    """Of the columns of `samples`, before those that the file has itself."""
    about: Mapping[str, str] = field(default_factory=dict)
    """What the run was: model, date, command, as far as its folder says it."""


def sources(
    paths: Sequence[Path], *, config: Path | None = None, names: ColumnNames = DEFAULT_NAMES
) -> list[Source]:
    """Return one source per path. `config`: a YAML file with the section `reward` for paths that
    have none; `names`: of the columns of scored files.

    Raises DataError where a path is neither a run nor a scored file, ConfigError where a
    configuration cannot be read.
    """
    reward: Mapping[str, Any] = {}
    if config is not None:
        reward = _reward_section(config)
    chosen: list[Source] = [
        source_of(path, label, reward, names=names)
        for path, label in zip(paths, labels_of(paths), strict=True)
    ]
    return chosen


def source_of(
    path: Path, label: str, reward: Mapping[str, Any], *, names: ColumnNames = DEFAULT_NAMES
) -> Source:
    """Return the source at a path. `reward`: the section `reward`. {}: the run's newest
    configuration's. `names` and errors: as in `sources`."""
    if path.is_file():
        if not path.name.endswith(DATA_SUFFIXES):
            raise DataError(
                f"{path} ends in '{path.suffix}'; need the folder of a run, or a file of"
                f" {', '.join(DATA_SUFFIXES)} that rmrl score wrote"
            )
        if path.name != SAMPLES_FILE:
            written = time.localtime(path.stat().st_mtime)
            facts = {"written": time.strftime("%Y-%m-%d %H:%M", written)}
            source = Source(label=label, samples=path, reward=reward, names=names, about=facts)
            if summary_file(path).is_file():
                return dataclasses.replace(source, summary=summary_file(path))
            return source
        path = path.parent
    samples = path / SAMPLES_FILE
    if not samples.is_file():
        state = f"holds no {SAMPLES_FILE}" if path.exists() else "does not exist"
        raise DataError(
            f"{path} {state}; need the folder of a run "
            "(runs/<project>/<experiment>) or a file that rmrl score wrote"
        )
    configs = sorted(path.glob(_CONFIG_FILES), key=lambda file: file.stat().st_mtime)
    facts: dict[str, str] = {}
    if configs:
        if not reward:
            reward = _reward_section(configs[-1])
        facts |= _model(read_yaml(configs[-1]))
    facts |= _start(path / _RUN_FILE)
    return Source(
        label=label,
        samples=samples,
        metrics=_present(path / METRICS_FILE),
        hints=_present(path / HINTS_FILE),
        reward=reward,
        about=facts,
    )


def _present(path: Path) -> Path | None:
    return path if path.is_file() else None


def _reward_section(path: Path) -> Mapping[str, Any]:
    content = read_yaml(path)
    section = content.get("reward", content)
    if not isinstance(section, Mapping):
        raise ConfigError(f"{path}: `reward` is {type(section).__name__}; need a section")
    return section


def _model(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the policy in a run's configuration, {} where it names none."""
    section: Any = config
    for key in ("actor_rollout_ref", "model", "path"):
        section = section.get(key) if isinstance(section, Mapping) else None
    if not section:
        return {}
    return {"model": str(section)}


def _start(path: Path) -> dict[str, str]:
    """Return when and by which command a run started, as far as its file says it."""
    try:
        run = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    facts: dict[str, str] = {
        key: str(run[key])
        for key in ("started", "command")
        if isinstance(run, dict) and run.get(key)
    }
    if "command" in facts:  # earlier releases recorded it as it was typed
        with suppress(ValueError):
            facts["command"] = shlex.join(hide_secrets(shlex.split(facts["command"])))
    return facts


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Return each path's last part, with as many parents as make them differ; numbered where two
    paths are the same."""
    parts: list[tuple[str, ...]] = []
    for path in paths:
        folder = path.resolve()
        if folder.name == SAMPLES_FILE:
            folder = folder.parent
        parts.append(folder.parts)
    for count in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(names[-count:]) for names in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{names[-1]} ({number})" for number, names in enumerate(parts, start=1)]
