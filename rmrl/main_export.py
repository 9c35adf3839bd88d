"""Entry of `rmrl export`: convert a training checkpoint to a Hugging Face folder.

    rmrl export checkpoint=<run>/checkpoints/step_000010 out=<folder> [role=actor|critic] \\
        [dtype=bfloat16] [base=<model>] [check=true]

It needs neither the machines nor the number of processes of the run, and no Ray. The written folder
is reloaded and compared with the checkpoint by the logits of a few tokens; base= names the folder
of the trained model's config if it has moved.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rmrl.errors import ConfigError, first_line
from rmrl.exit import ends_with_its_reader, exit_code
from rmrl.registry import did_you_mean

_log = logging.getLogger("rmrl.main_export")  # under python -m its __name__ is another


@dataclass(slots=True)
class ExportConfig:
    """The command line."""

    checkpoint: str = MISSING
    """A run's checkpoint, e.g. <run>/checkpoints/step_000010."""
    out: str = MISSING
    """Folder to write."""
    role: str = "actor"
    """Model of the checkpoint: actor or critic."""
    dtype: str = "bfloat16"
    """dtype of the written weights: bfloat16, float16 or float32."""
    base: str | None = None
    """Folder or hub id of the model that was trained; null: where training found it."""
    check: bool = True
    """Reload the written folder and compare."""
    overwrite: bool = False
    """Replace `out` if it exists."""


def run(config: ExportConfig) -> None:
    """Check the checkpoint's files, then write."""
    checkpoint = Path(config.checkpoint).expanduser()
    out = Path(config.out).expanduser()
    if out.exists() and not config.overwrite:
        raise ConfigError(
            f"out={out} exists already: give another folder, or overwrite=true to replace it"
        )

    # torch takes seconds to import, and a mistyped key is reported before
    from rmrl.backends.export import export, role_folder
    from rmrl.trainer.checkpoint import MANIFEST, verify

    for sealed in (checkpoint, checkpoint.parent):
        if (sealed / MANIFEST).is_file():
            verify(sealed)
            break
    folder = role_folder(checkpoint, config.role)
    _log.info(f"exporting the {config.role} of {checkpoint} in {config.dtype}")
    done = export(folder, out, dtype=config.dtype, base=config.base, check=config.check)
    checked = "not checked"
    if done.difference is not None:
        checked = f"reloaded, logits differ by at most {done.difference:.1g} of the largest"
    print(f"{out}: {done.parameters:,} parameters in {config.dtype}; {checked}")


def parse(arguments: Sequence[str]) -> ExportConfig:
    """Parse key=value arguments. Raises ConfigError with every unknown or missing key, or for a
    value of a wrong type."""
    names = [entry.name for entry in fields(ExportConfig)]
    problems: list[str] = []
    missing = {"checkpoint": None, "out": None}
    for text in arguments:
        key, equals, _ = text.partition("=")
        missing.pop(key, None)
        if key not in names:
            problems.append(f"{key}: rmrl export has no such key{did_you_mean(key, names)}")
        elif not equals:
            problems.append(f"{text}: give a value, {text}=<value>")
    for key in missing:
        problems.append(f"{key} is missing: give {key}=<folder>")
    if problems:
        raise ConfigError(problems)
    try:
        typed = OmegaConf.to_object(
            OmegaConf.merge(
                OmegaConf.structured(ExportConfig), OmegaConf.from_dotlist(list(arguments))
            )
        )
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from error
    assert isinstance(typed, ExportConfig)
    return typed


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 mistyped, or the trained model cannot be found, 6 the
    checkpoint cannot be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    with exit_code() as code:
        run(parse(given))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
