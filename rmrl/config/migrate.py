"""A shell script that starts verl -> the command here, and what became of each of its settings."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmrl.config.load import normalise, parse
from rmrl.config.verl import Applied, apply, own_arguments
from rmrl.config.verl.apply import Record
from rmrl.config.verl.shell import Script, read_script
from rmrl.errors import ConfigError

_TRAINS = re.compile(r"((verl|recipe|rmrl)[\w.]*\.main_\w+|\S*main_\w+\.py)")
_OTHER_PROGRAMS = (
    "main_generation",
    "main_generation_server",
    "main_eval",
    "fsdp_sft_trainer",
    "sft_trainer",
)
_OWN_ALGORITHMS = {
    "main_prime": (
        "PRIME trains its reward model along; reward models are not trained here:"
        " reward.specs.<name>.kind=process reads steps"
    ),
    "main_spin": "SPIN is not there; rewards with algorithm.adv_estimator=grpo come next to it",
    "main_sppo": "SPPO is not there; rewards with algorithm.adv_estimator=grpo come next to it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """One command of a script."""

    program: str
    """What it ran, e.g. verl.trainer.main_ppo; "" for a plain list of overrides."""
    flags: tuple[str, ...]
    applied: Applied
    refused: tuple[str, ...]
    """Sentences; what they are about is not in `overrides`."""
    overrides: tuple[str, ...]
    """Of the command here."""
    notes: tuple[str, ...]


def migrate(text: str) -> list[Migrated]:
    """Every command of the script that trains; a text without one is a list of overrides. Nothing
    of it is run.

    Raises ConfigError where there is neither.
    """
    script = read_script(text)
    commands = [command for words in script.statements if (command := _command(words)) is not None]
    notes = tuple(_notes(script))
    if not commands:
        every_word = itertools.chain.from_iterable(script.statements)
        words = [word for word in every_word if not word.startswith("-")]
        if not words or not all(re.match(r"[+~]{0,2}[\w.@/]+=", word) for word in words):
            raise ConfigError(
                "no line that starts verl (python3 -m verl.trainer.main_ppo ...) and no list of"
                " overrides (section.key=value ...): give a script with one of them"
            )
        commands = [("", words)]
    return [_migrated(program, words, notes) for program, words in commands]


def shown(migrated: Migrated, *, preamble: Sequence[str] = ()) -> str:
    """The command, then the differences as comments, so that the text is a script. `preamble`:
    assignments it may need."""
    words = [*migrated.flags, *migrated.overrides]
    needed = [
        line
        for line in preamble
        if any(re.search(rf"\${line.partition('=')[0]}\b", word) for word in words)
    ]
    command = " \\\n    ".join(["rmrl train", *map(_quoted, words)])
    return "\n".join([*needed, command, "", *_table(migrated)])


def preamble(text: str) -> list[str]:
    """Assignments of the variables that stand for commands in the script."""
    return [f"{name}={command}" for name, command in read_script(text).unknown.items() if command]


def _command(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """(program, its arguments) of a statement that starts a trainer."""
    for number, word in enumerate(words):
        if (
            _TRAINS.fullmatch(word)
            and number
            and (words[number - 1] == "-m" or word.endswith(".py"))
        ):
            return word, list(words[number + 1 :])
    return None


def _migrated(program: str, words: Sequence[str], notes: Sequence[str]) -> Migrated:
    name = program.removesuffix(".py").rpartition(".")[2].rpartition("/")[2]
    refused = [f"{program}: {_OWN_ALGORITHMS[name]}"] if name in _OWN_ALGORITHMS else []
    if name in _OTHER_PROGRAMS:
        refused.append(
            f"{program} does not train by rewards; rmrl score scores what another program wrote"
        )
    try:
        arguments = own_arguments(words)
    except ConfigError as error:
        refused += error.problems
        arguments = [word for word in words if not word.startswith("--config-")]
    given, malformed = parse(arguments)
    applied = apply(given)
    flags = tuple(word for word in arguments if word.startswith("-"))
    texts = [*applied.converted, *itertools.chain.from_iterable(map(_passed_on, applied.records))]
    kept: list[str] = []
    for text in texts:
        problem = _unknown(text)
        refused += [problem] if problem else []
        kept += [] if problem else [text]
    return Migrated(
        program=program,
        flags=flags,
        applied=applied,
        refused=tuple(dict.fromkeys([*refused, *malformed, *applied.problems])),
        overrides=tuple(kept),
        notes=tuple(notes),
    )


def _passed_on(record: Record) -> tuple[str, ...]:
    """What of an override is passed on under its own or a new name."""
    return record.becomes if record.fate in ("same", "renamed") else ()


def _unknown(text: str) -> str:
    try:
        normalise([text])
    except ConfigError as error:
        return error.problems[0]
    return ""


def _notes(script: Script) -> Iterator[str]:
    outside = [f"${name}" for name, command in script.unknown.items() if not command]
    if outside:
        yield f"not set in the script: {', '.join(outside)}"
    if script.unsure:
        yield (
            "set inside an if, case or loop, the last assignment is taken:"
            f" {', '.join(sorted(script.unsure))}"
        )
    if script.passes_arguments:
        yield 'the script passes its own arguments on ("$@"): put them behind the command'


def _table(migrated: Migrated) -> Iterator[str]:
    """Lines of comments: what is not simply kept."""
    records = migrated.applied.records
    kept = sum(
        record.fate == "same" and set(record.becomes) <= set(migrated.overrides)
        for record in records
    )
    yield f"# {len(records)} settings of {migrated.program or 'the list'}: {kept} kept as they are"
    for note in migrated.notes:
        yield f"# note: {note}"
    for record in records:
        if record.fate in ("renamed", "converted"):
            yield (
                f"# {record.fate}: {record.given.text.lstrip('+')} ->"
                f" {' '.join(record.becomes) or 'other keys of the line'}"
            )
    for record in records:
        if record.fate == "no effect":
            yield f"# no effect: {record.given.text.lstrip('+')}" + (
                f" ({record.why})" if record.why else " (always so)"
            )
    for sentence in migrated.refused:
        yield f"# refused: {sentence}"


def _quoted(word: str) -> str:
    """For a shell; variables in it stay variables."""
    if "$" not in word or "${" in word:
        return shlex.quote(word)
    if re.fullmatch(r"[\w=./:$,@%+-]+", word):
        return word
    return '"' + re.sub(r'([\\"`])', r"\\\1", word) + '"'
