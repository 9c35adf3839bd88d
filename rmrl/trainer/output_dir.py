"""Ownership of the output folder: one run per folder, one process at a time, nothing overwritten.

<folder>/run.json      what makes the run this run: its configuration without the keys that may
  change (and what files its rewards had: `reward_files`), when and by which command it started
<folder>/config.yaml   the resolved configuration; config.2.yaml, ... of resumes that changed
  something
<folder>/.lock         locked while a run writes here
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import rmrl
from rmrl.config import identity as config_identity
from rmrl.config.hidden import hide_secrets
from rmrl.config.identity import changeable_keys
from rmrl.config.schema import Config, RewardTrainingConfig
from rmrl.errors import OutputDirError
from rmrl.files import LockedError, lock, unlock, write_whole

RUN_FILE = "run.json"
LOCK_FILE = ".lock"
LOG_FILE = "run.log"
RESULT_FILES = ("metrics.jsonl", "samples.jsonl", "val_samples.jsonl")
"""A folder with one of these not empty, or with a checkpoint, holds a run's results."""

MAY_CHANGE = changeable_keys(Config()) | changeable_keys(RewardTrainingConfig())
"""Keys (a section's name stands for all below it) that a resumed run may set otherwise. Any other
key makes it another run."""

_SHOWN = 12
_REMEDY = (
    "choose another trainer.experiment_name or trainer.default_local_dir, or"
    " continue that run with trainer.resume_mode=auto and its configuration, or remove the folder"
)


@dataclass(slots=True, kw_only=True)
class Claim:
    """The right to write into `path`, until closed."""

    path: Path
    mode: Literal["new", "resume"]
    config_fingerprint: str
    _lock: TextIO

    def close(self) -> None:
        """Release the folder. A second call has no effect."""
        unlock(self._lock)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def claim(path: Path, *, config: object, config_text: str, resume_mode: str) -> Claim:
    """Take the folder for a run with `config` (a dataclass or nested mapping); `config_text` is its
    resolved YAML.

    "new": the folder was missing or empty. "resume": it holds the same run. OutputDirError: it
    holds something else, or another process writes there, or resume_mode=disable and it is used.
    The folder is then as it was.
    """
    _check_before_touching(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
    except OSError as error:
        raise OutputDirError(
            f"the output folder {path} cannot be written ({error}); choose another"
            " trainer.default_local_dir"
        ) from error
    try:
        mode = refuse_other_run(path, config=config, resume_mode=resume_mode)
        if mode == "new":
            for attempt in path.glob("config*.yaml"):
                attempt.unlink()
            run = {
                "rmrl_version": rmrl.__version__,
                "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "command": command_line(),
                "config": identify(config),
            }
            write_whole(path / RUN_FILE, json.dumps(run, indent=1, ensure_ascii=False) + "\n")
        number = 1
        latest = None
        while (file := path / ("config.yaml" if number == 1 else f"config.{number}.yaml")).exists():
            latest = file
            number = number + 1
        if latest is None or latest.read_text(encoding="utf-8") != config_text:
            write_whole(file, config_text)
    except BaseException:
        lock.close()
        raise
    return Claim(path=path, mode=mode, config_fingerprint=fingerprint(config), _lock=lock)


def command_line() -> str:
    """Return the command that started this process, as a shell reads it, without the folder of its
    program and without secrets."""
    program = Path(sys.argv[0])
    words = [program.name, *sys.argv[1:]]
    if program.suffix == ".py":
        words[:1] = ["python", "-m", f"rmrl.{program.stem}"]
    return shlex.join(hide_secrets(words))


def refuse_other_run(path: Path, *, config: object, resume_mode: str) -> Literal["new", "resume"]:
    """Return the mode that `claim` would find, without writing anything. Raises OutputDirError as
    it does, apart from the lock.

    A run that ended before its first result (a model that could not be loaded, a reward that
    raised) does not bind the folder.
    """
    _check_before_touching(path)
    file = path / RUN_FILE
    if not file.exists():
        return "new"
    try:
        earlier = json.loads(file.read_bytes())
        earlier["config"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputDirError(
            f"{file} cannot be read ({type(error).__name__}: {error}), so it is unknown whose"
            f" folder it is; {_REMEDY}"
        ) from error
    identity = identify(config)
    files = [path / name for name in RESULT_FILES]
    has_results = any(file.is_file() and file.stat().st_size for file in files)
    if not has_results and not any(path.glob("checkpoints/step_*")):
        if not differences(earlier["config"], identity):
            return "resume"
        return "new"
    started = earlier.get("started", "at an unknown time")
    whose = f"the output folder {path} holds a run started {started}"
    different = differences(earlier["config"], identity)
    if different:
        more = [f"and {len(different) - _SHOWN} more"] if len(different) > _SHOWN else []
        listed = "\n    ".join(different[:_SHOWN] + more)
        raise OutputDirError(f"{whose} with another configuration:\n    {listed}\n  {_REMEDY}")
    if resume_mode == "disable":
        raise OutputDirError(
            f"{whose}, and trainer.resume_mode=disable refuses a used folder; {_REMEDY}"
        )
    return "resume"


def identify(config: object) -> dict[str, Any]:
    """Return the configuration as {"data.train_files": ...}, without the keys that may change."""
    return config_identity.identify(config, MAY_CHANGE)


def fingerprint(config: object) -> str:
    """Return 16 hex digits. The same for all configurations that may resume one another."""
    return config_identity.fingerprint(identify(config))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return lines such as "data.seed: 1 there, 2 here", for keys that may not change."""
    return config_identity.differences(before, now, MAY_CHANGE)


def _check_before_touching(path: Path) -> None:
    """Refuse a path that is no folder, and a folder with files that no run of rmrl wrote."""
    if path.exists() and not path.is_dir():
        raise OutputDirError(
            f"the output folder {path} is a file; choose another trainer.default_local_dir"
        )
    if not path.exists() or (path / RUN_FILE).exists():
        return
    # A shell's `> folder/train.log` and Hydra's own folder come first and are nobody's results.
    allowed = (LOCK_FILE, f".{RUN_FILE}.tmp", ".hydra")
    entries = [entry for entry in path.iterdir() if entry.suffix != ".log"]
    foreign = sorted(entry.name for entry in entries if entry.name not in allowed)
    if foreign:
        some = ", ".join(foreign[:5]) + (", ..." if len(foreign) > 5 else "")
        raise OutputDirError(
            f"the output folder {path} is not empty and has no {RUN_FILE}, so it is not of an rmrl"
            f" run (it holds {some}); choose another trainer.experiment_name or"
            " trainer.default_local_dir, or remove the folder"
        )


def _lock(path: Path) -> TextIO:
    try:
        return lock(path / LOCK_FILE)
    except LockedError as error:
        raise OutputDirError(
            f"the output folder {path} is in use by another run ({error}); wait for it or stop it,"
            " or choose another trainer.experiment_name"
        ) from error
