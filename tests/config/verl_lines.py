"""What becomes of the command lines of real training scripts, override by override and as a whole.

    python -m tests.config.verl_lines [FILE.json]

FILE.json: {script: [word, ...]}; the words behind `python3`. Prints how many overrides are
accepted, how many scripts whole, and what is refused how often.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rmrl.config.check import config_problems
from rmrl.config.compat import own_arguments, translate
from rmrl.config.compat.apply import apply
from rmrl.config.load import compose_config, normalise
from rmrl.config.overrides import parse
from rmrl.config.schema import Config
from rmrl.errors import ConfigError

SCRIPTS = (
    Path(__file__).resolve().parents[2].parent / "shared" / "data" / "scripts" / "overrides.json"
)
"""Real ones, where they are at hand."""
OTHER_ENTRIES = ("main_generation", "main_generation_server", "main_eval")
"""Programs that do not train."""
_NOT_FOR_ONE = ("reward.models is empty",)
"""What a line is right about that names no reward: the rule of the rows' data_source scores them,
which needs the rows."""


@dataclass(slots=True)
class Measured:
    fates: Counter[str] = field(default_factory=Counter[str])
    """Fate -> overrides."""
    refused: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Key -> sentence -> overrides."""
    whole: list[str] = field(default_factory=list[str])
    broken: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Script -> problems of its whole line."""

    @property
    def share(self) -> float:
        """Of the overrides that are accepted."""
        total = self.fates.total()
        return 1 - (self.fates["refused"] + self.fates["unknown"]) / total if total else 1.0


def scripts(path: Path = SCRIPTS) -> dict[str, list[str]]:
    """Training scripts and the words behind the module's name."""
    lines: Mapping[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    named = {
        name: words
        for name, words in lines.items()
        if words[1].rpartition(".")[2] not in OTHER_ENTRIES
    }
    return {name: [word for word in words[2:] if word.strip()] for name, words in named.items()}


def measure_overrides(lines: Mapping[str, Sequence[str]]) -> Measured:
    """Each override in the light of its line."""
    measured = Measured()
    for words in lines.values():
        _count([word for word in words if not word.startswith("-")], measured)
    return measured


def measure(lines: Mapping[str, Sequence[str]]) -> Measured:
    """Each override, and each line as a whole."""
    measured = measure_overrides(lines)
    for name, words in lines.items():
        problems = line_problems(words)
        if problems:
            measured.broken[name] = problems
        else:
            measured.whole.append(name)
    return measured


def line_problems(words: Sequence[str]) -> list[str]:
    """All that is wrong with a whole command line, found without opening a file or a device."""
    from rmrl.trainer.check_strategy import strategy_problems  # imports torch

    try:
        config = compose_config(own_arguments(words))
        translate(config)
    except ConfigError as error:
        return error.problems
    problems = [*config_problems(config), *strategy_problems(config, device="cuda")]
    return [problem for problem in problems if not problem.startswith(_NOT_FOR_ONE)]


def _count(overrides: Sequence[str], measured: Measured) -> None:
    given, malformed = parse(overrides)
    for problem in malformed:
        _refuse(measured, "malformed", problem)
    for record in apply(given).records:
        if record.fate in ("same", "renamed", "converted"):
            for text in record.becomes or (record.setting.text,):
                problem = _problem(text)
                if problem:
                    _refuse(measured, record.setting.key, problem)
                    break
            else:
                measured.fates[record.fate] += 1
        elif record.fate == "refused":
            _refuse(measured, record.setting.key, record.why)
        else:
            measured.fates[record.fate] += 1


@cache
def _problem(text: str) -> str:
    """What is wrong with an override of ours, "" if nothing."""
    try:
        normalise([text], Config)
    except ConfigError as error:
        return error.problems[0]
    return ""


def _refuse(measured: Measured, key: str, sentence: str) -> None:
    measured.fates["refused"] += 1
    measured.refused.setdefault(key, Counter())[sentence] += 1


def main(path: Path) -> None:
    """Print the measurement."""
    lines = scripts(path)
    measured = measure(lines)
    total = measured.fates.total()
    print(f"{len(lines)} scripts, {len(measured.whole)} of them whole")
    print(f"{total} overrides, {measured.share:.2%} accepted: {dict(measured.fates)}")
    for key, sentences in sorted(measured.refused.items(), key=lambda item: -item[1].total()):
        print(sentences.total(), key, "|", sentences.most_common(1)[0][0])
    for name, problems in measured.broken.items():
        print(f"\n{name}")
        for problem in problems:
            print(f"  - {problem}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SCRIPTS)
