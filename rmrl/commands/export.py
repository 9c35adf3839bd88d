"""`rmrl export`: a training checkpoint, or another trainer's reward model, as a Hugging Face
folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rmrl.commands.command import Command
from rmrl.errors import ConfigError, first_line
from rmrl.registry import did_you_mean

if TYPE_CHECKING:
    from rmrl.backends.export import Exported

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ExportConfig:
    """The command line; `Export.keys` explains it."""

    checkpoint: str | None = None
    out: str = MISSING
    reward_model: str | None = None
    role: str = "actor"
    dtype: str = "bfloat16"
    base: str | None = None
    check: bool = True
    overwrite: bool = False


class Export(Command[ExportConfig, ExportConfig, "Exported"]):
    """It needs neither the machines nor as many processes as the run, and no Ray. The written
    folder is reloaded and compared with the checkpoint by a few tokens' logits."""

    examples = (
        "rmrl export checkpoint=runs/demo/smollm2/checkpoints/step_000010 out=exported",
        "rmrl export checkpoint=runs/demo/smollm2/checkpoints/step_000010 out=critic role=critic",
        "rmrl export reward_model=openrlhf_rm out=classifier",
    )
    keys: ClassVar[Mapping[str, str]] = {
        "checkpoint": "a checkpoint of a run, e.g. <run>/checkpoints/step_000010",
        "reward_model": (
            "in place of checkpoint: a reward model of OpenRLHF, or one with a value head, to write"
            " as a classifier"
        ),
        "out": "folder to write",
        "role": "model of the checkpoint: actor (default) or critic",
        "dtype": "of the written weights: bfloat16 (default), float16 or float32",
        "base": "folder or hub id of the trained model, where it has moved since",
        "check": "false: do not reload and compare what was written",
        "overwrite": "true: replace out if it exists",
    }

    def start(self, words: Sequence[str]) -> int:
        """Read key=value words."""
        if not words or not {"-h", "--help"}.isdisjoint(words):
            print(self.about())
            return 0
        return self.carry_out(parse(words))

    def check(self, settings: ExportConfig) -> ExportConfig:
        """Check the checkpoint's files."""
        out = Path(settings.out).expanduser()
        if out.exists() and not settings.overwrite:
            raise ConfigError(
                f"out={out} exists already: give another folder, or overwrite=true to replace it"
            )
        from rmrl.models.checkpoint_inspect import local_checkpoint

        for key in ("reward_model", "base"):
            if getattr(settings, key) is not None:
                local_checkpoint(getattr(settings, key), key)
        if settings.reward_model is not None:
            return settings
        from rmrl.trainer.checkpoint import MANIFEST, verify

        checkpoint = Path(settings.checkpoint or "").expanduser()
        for sealed in (checkpoint, checkpoint.parent):
            if (sealed / MANIFEST).is_file():
                verify(sealed)
                break
        return settings

    def run(self, checked: ExportConfig) -> Exported:
        """Write the folder."""
        if checked.reward_model is not None:
            from rmrl.backends.classifier_export import export_classifier

            return export_classifier(
                checked.reward_model,
                Path(checked.out).expanduser(),
                dtype=checked.dtype,
                check=checked.check,
            )
        from rmrl.backends.export import export, role_folder

        checkpoint = Path(checked.checkpoint or "").expanduser()
        folder = role_folder(checkpoint, checked.role)
        _log.info(f"exporting the {checked.role} of {checkpoint} in {checked.dtype}")
        return export(
            folder,
            Path(checked.out).expanduser(),
            dtype=checked.dtype,
            base=checked.base,
            check=checked.check,
        )

    def show(self, checked: ExportConfig, result: Exported) -> None:
        """Print what was written and how far it differs."""
        difference = "not checked"
        if result.difference is not None:
            difference = (
                f"reloaded, logits differ by at most {result.difference:.1g} of the largest"
            )
        out = Path(checked.out).expanduser()
        print(f"{out}: {result.parameters:,} parameters in {checked.dtype}; {difference}")
        if result.transform:
            print(f"its trainer gave these scores on another scale: {result.transform} does too")


def parse(arguments: Sequence[str]) -> ExportConfig:
    """Parse key=value arguments. Raises ConfigError with every unknown or missing key, or for a
    value with a wrong type."""
    names = [entry.name for entry in fields(ExportConfig)]
    problems: list[str] = []
    given: set[str] = set()
    for text in arguments:
        key, equals, _ = text.partition("=")
        given.add(key)
        if key not in names:
            problems.append(f"{key}: rmrl export has no such key{did_you_mean(key, names)}")
        elif not equals:
            problems.append(f"{text}: give a value, {text}=<value>")
    if given.isdisjoint(("checkpoint", "reward_model")):
        problems.append("checkpoint is missing: give checkpoint=<folder>, or reward_model=<folder>")
    if "out" not in given:
        problems.append("out is missing: give out=<folder>")
    if "reward_model" in given:
        useless = given & {"checkpoint", "role", "base"}
        problems += [
            f"{key} has no effect beside reward_model: leave one of them out"
            for key in sorted(useless)
        ]
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
