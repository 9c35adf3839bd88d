"""A command's shape: settings -> check -> run -> show."""

from __future__ import annotations

import argparse
import inspect
import logging
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from rmrl.columns import aligned
from rmrl.config.load import run_command, shipped
from rmrl.config.typed import Root
from rmrl.exit import exit_code
from rmrl.logs import begin_run
from rmrl.signals import ended_by_signals

_log = logging.getLogger(__name__)

Settings = TypeVar("Settings")
Checked = TypeVar("Checked")
Result = TypeVar("Result")

FUNCTIONS = shipped("reward_functions")
"""Folder of the reward functions that ship with rmrl."""
COLUMNS = "e.g. {prompt: question, reference: gold, response: answer, id: uid}"
MODEL_KEYS = {
    "reward.models": "names of rewards, e.g. [gsm8k,judge]",
    "reward.weights": "a weight each, e.g. [0.3,0.5]",
    "reward.specs.NAME.path": "folder or hub id of the model of a reward",
}
REWARD_KEYS = MODEL_KEYS | {
    "reward": "a file with the whole section: reward=path/to/section.yaml",
}
"""Keys of rewards that people use -> a line on each."""


class Command(Generic[Settings, Checked, Result]):
    """A console command. Errors of ours end each part with one message and their exit code.

    Import torch, Ray and the like inside the methods, so that a mistyped key is reported at once.
    """

    usage: ClassVar[str] = "[key=value ...]"
    """Words behind the name, in the first line."""
    examples: ClassVar[Sequence[str]]
    """Lines of the help. The docstring of the class stands below them."""
    keys: ClassVar[Mapping[str, str]] = {}
    """Keys that people use -> a line on each, for the help."""
    handles_signals = False
    """Whether `run` handles SIGTERM itself. Other commands clean up after SIGTERM and SIGHUP as
    after Ctrl-C."""

    def __init__(self, name: str, purpose: str) -> None:
        self.name = name
        self.purpose = purpose
        """One line, for the help."""

    def check(self, settings: Settings) -> Checked:
        """Find all that can be wrong before something is started or written."""
        raise NotImplementedError

    def run(self, checked: Checked) -> Result:
        """Do the work."""
        raise NotImplementedError

    def show(self, checked: Checked, result: Result) -> int | None:
        """Print the result, if there is one. Return an exit code other than 0 where the result is
        bad news."""

    def about(self) -> str:
        """Return the call with its purpose, the examples, the class docstring and the keys."""
        parts = [
            f"rmrl {self.name} {self.usage}: {self.purpose}",
            textwrap.indent("\n".join(self.examples), "    "),
            str(inspect.getdoc(type(self))),
            "\n".join(aligned(list(self.keys.items()))),
        ]
        return "\n\n".join(filter(None, parts))

    def start(self, words: Sequence[str]) -> int:
        """Read the settings from a command line's words and carry them out."""
        raise NotImplementedError

    def carry_out(self, settings: Settings) -> int:
        """Check, run and show. Return the exit code."""
        checked = self.check(settings)
        return self.show(checked, self.run(checked)) or 0

    def main(self, words: Sequence[str]) -> int:
        """Return the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall,
        6 data, 130 ended by a signal."""
        signals = nullcontext() if self.handles_signals else ended_by_signals()
        with exit_code() as code, signals:
            code.value = self.start(words)
        return code.value


class KeyCommand(Command[Root, Checked, Result]):
    """A command whose arguments are a configuration's keys."""

    root: ClassVar[Any]
    """Dataclass of the configuration."""
    checking: ClassVar[str]
    """What `check` looks at, for a line of the log."""

    def start(self, words: Sequence[str]) -> int:
        """Compose the configuration and carry it out, or do what flags ask for. Return the highest
        exit code among a sweep's jobs."""
        codes = [0]
        flags = [word for word in words if word.startswith("-")]
        if flags and flags[0] in ("-h", "--help"):
            print(self.help())
        else:
            run_command(words, lambda settings: codes.append(self.carry_out(settings)), self.root)
        return max(codes)

    def carry_out(self, settings: Root) -> int:
        """Open the log, then as every command."""
        begin_run(settings.trainer.log_level)
        _log.info(f"checking {self.checking}")
        return super().carry_out(settings)

    def help(self) -> str:
        """Return purpose, examples and keys, and where all keys are."""
        return (
            f"{self.about()}\n\nAll keys with their values: rmrl {self.name} --cfg job; explained:"
            " docs/configuration.md"
        )


class _Parser(argparse.ArgumentParser):
    """Lists words and flags below our own text. An error says what to type."""

    def __init__(self, *, example: str, **options: Any) -> None:
        """`example`: a whole command."""
        self._example = example
        formatter = partial(argparse.RawDescriptionHelpFormatter, width=100)
        super().__init__(usage=argparse.SUPPRESS, formatter_class=formatter, **options)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(
            2,
            f"{self.prog}: {message}; type for example {self._example}; {self.prog} --help lists"
            " words and flags\n",
        )


class FlagCommand(Command[argparse.Namespace, Checked, Result]):
    """A command with its own flags."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare words and flags."""
        raise NotImplementedError

    def parsed(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
        """Parse; flags may stand anywhere."""
        return parser.parse_intermixed_args(words)

    def parser(self) -> argparse.ArgumentParser:
        """Return the command line's parser."""
        parser = _Parser(
            prog=f"rmrl {self.name}", description=self.about(), example=self.examples[0]
        )
        self.add_arguments(parser)
        return parser

    def start(self, words: Sequence[str]) -> int:
        """Parse the words and carry them out. argparse prints helps and what is mistyped."""
        try:
            settings = self.parsed(self.parser(), words)
        except SystemExit as leaving:
            return int(leaving.code or 0)
        return self.carry_out(settings)


def count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of rows; give a whole number of at least 1"
        )
    return int(text)
