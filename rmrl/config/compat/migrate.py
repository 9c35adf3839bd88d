"""Translate a shell script that starts verl into an rmrl command, with a line on each setting that
changes."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rmrl.config.compat import own_arguments
from rmrl.config.compat.apply import Applied, apply
from rmrl.config.compat.shell import read_script
from rmrl.config.load import normalise
from rmrl.config.overrides import parse
from rmrl.errors import ConfigError

_TRAINS = re.compile(r"((verl|recipe|rmrl)[\w.]*\.main_\w+|\S*main_\w+\.py)")
_OVERRIDE = re.compile(r"[+~]{0,2}[\w.@/]+=")
_OTHER_PROGRAMS = (
    "main_generation",
    "main_generation_server",
    "main_eval",
    "fsdp_sft_trainer",
    "sft_trainer",
)
_OWN_ALGORITHMS = {
    "main_prime": (
        "PRIME trains its reward model along with the policy, and reward models are not trained"
        " here: use reward.specs.<name>.kind=process with a trained one"
    ),
    "main_spin": "SPIN is not supported; the nearest is a reward with algorithm.adv_estimator=grpo",
    "main_sppo": "SPPO is not supported; the nearest is a reward with algorithm.adv_estimator=grpo",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """One command in a script."""

    program: str
    """The program, e.g. verl.trainer.main_ppo, "" for a plain list of overrides."""
    flags: tuple[str, ...]
    applied: Applied
    refused: tuple[str, ...]
    """Sentences on settings that are not in `overrides`."""
    overrides: tuple[str, ...]
    """Overrides of the rmrl command."""
    notes: tuple[str, ...]


def migrate(text: str) -> list[Migrated]:
    """Translate every command in the script that trains. A text without one lists overrides.
    Nothing in it is run.

    Raises ConfigError where there is neither.
    """
    script = read_script(text)
    notes: list[str] = []
    outside = [f"${name}" for name, command in script.unknown.items() if not command]
    if outside:
        notes.append(f"not set in the script: {', '.join(outside)}")
    if script.unsure:
        notes.append(
            "set inside an if, case or loop, the last assignment is taken:"
            f" {', '.join(sorted(script.unsure))}"
        )
    if script.passes_arguments:
        notes.append('the script passes its own arguments on ("$@"): put them behind the command')
    commands: list[Migrated] = []
    for words in script.statements:
        for place in range(1, len(words)):
            word = words[place]
            if _TRAINS.fullmatch(word) and (words[place - 1] == "-m" or word.endswith(".py")):
                commands.append(_migrate_command(word, words[place + 1 :], tuple(notes)))
                break
    if commands:
        return commands
    every_word = itertools.chain.from_iterable(script.statements)
    words = [word for word in every_word if not word.startswith("-")]
    if not words or not all(map(_OVERRIDE.match, words)):
        raise ConfigError(
            "no line that starts verl (python3 -m verl.trainer.main_ppo ...) and no list of"
            " overrides (section.key=value ...): give a script with one of them"
        )
    return [_migrate_command("", words, tuple(notes))]


def to_script(migrated: Migrated, *, preamble: Sequence[str] = ()) -> str:
    """Format the command, then the differences as comments, as a script. `preamble`: assignments
    that it may need."""
    words = [*migrated.flags, *migrated.overrides]
    variables = set(re.findall(r"\$(\w+)", "\n".join(words)))
    needed = [line for line in preamble if line.partition("=")[0] in variables]
    command = " \\\n    ".join(["rmrl train", *map(_quote, words)])
    lines = [*needed, command, ""]
    records = migrated.applied.records
    unchanged = sum(
        1
        for record in records
        if record.fate == "same" and set(record.becomes) <= set(migrated.overrides)
    )
    program = migrated.program or "the list"
    lines.append(f"# {len(records)} settings of {program}: {unchanged} kept as they are")
    for note in migrated.notes:
        lines.append(f"# note: {note}")
    for record in records:
        if record.fate in ("renamed", "converted"):
            becomes = " ".join(record.becomes) or "other keys of the line"
            lines.append(f"# {record.fate}: {record.setting.text.lstrip('+')} -> {becomes}")
    for record in records:
        if record.fate == "no effect":
            why = record.why or "always the case"
            lines.append(f"# no effect: {record.setting.text.lstrip('+')} ({why})")
    for sentence in migrated.refused:
        lines.append(f"# refused: {sentence}")
    return "\n".join(lines)


def preamble(text: str) -> list[str]:
    """Return the variable assignments that replace the script's expansions."""
    return [f"{name}={command}" for name, command in read_script(text).unknown.items() if command]


def _migrate_command(program: str, words: Sequence[str], notes: Sequence[str]) -> Migrated:
    name = program.removesuffix(".py").rpartition(".")[2].rpartition("/")[2]
    refused = [f"{program}: {_OWN_ALGORITHMS[name]}"] if name in _OWN_ALGORITHMS else []
    if name in _OTHER_PROGRAMS:
        refused.append(
            f"{program} does not train by rewards; use rmrl score to score responses of another"
            " program"
        )
    try:
        arguments = own_arguments(words)
    except ConfigError as error:
        refused += error.problems
        arguments = [word for word in words if not word.startswith("--config-")]
    settings, malformed = parse(arguments)
    applied = apply(settings)
    texts = list(applied.converted)
    for record in applied.records:
        if record.fate in ("same", "renamed"):
            texts += record.becomes
    overrides: list[str] = []
    for text in texts:
        try:
            normalise([text])
        except ConfigError as error:
            refused.append(error.problems[0])
        else:
            overrides.append(text)
    return Migrated(
        program=program,
        flags=tuple(word for word in arguments if word.startswith("-")),
        applied=applied,
        refused=tuple(dict.fromkeys([*refused, *malformed, *applied.problems])),
        overrides=tuple(overrides),
        notes=tuple(notes),
    )


def _quote(word: str) -> str:
    """Quote a word for a shell; variables in it stay variables."""
    if "$" not in word or "${" in word:
        return shlex.quote(word)
    if re.fullmatch(r"[\w=./:$,@%+-]+", word):
        return word
    return '"' + re.sub(r'([\\"`])', r"\\\1", word) + '"'
