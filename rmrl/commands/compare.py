"""`rmrl compare`: two reward sections on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmrl.commands.command import COLUMNS, FUNCTIONS, KeyCommand
from rmrl.config.command_line import command_line, is_flag
from rmrl.config.schema import CompareConfig
from rmrl.config.section import SECTION, section_path
from rmrl.errors import ConfigError
from rmrl.files import DATA_SUFFIXES

if TYPE_CHECKING:
    from rmrl.evaluation.compare.check_comparison import CheckedComparison


class Compare(KeyCommand[CompareConfig, "CheckedComparison", Mapping[str, Any]]):
    """Each YAML file holds a section `reward`, alone or among others. A function, rules.py or
    rules.py:name, is a section too, and so is a reward's name. What both sections have a model
    compute is computed once. A comparison that ended early goes on with the same command."""

    usage = "A.yaml B.yaml [key=value ...]"
    examples = (
        "rmrl compare a.yaml b.yaml data=responses.jsonl out=runs/compare",
        "rmrl compare a.yaml runs/rmrl/demo/config.yaml data=labelled.jsonl compare.label=good \\",
        "    out=runs/c",
        "rmrl compare rules.py rules.py:stricter data=responses.jsonl out=runs/rules",
    )
    root = CompareConfig
    checking = "the configuration, the data and the rewards of both sections"
    keys = {
        "data": "rows with responses; short for data.files",
        "data.columns": COLUMNS,
        "data.sample": "number of rows, drawn at random; left out: all",
        "compare.label": "column with people's labels, if the rows have one",
        "compare.good_from": "least label that is good, where labels are numbers",
        "compare.figure": "pairs, accuracy or mean; auto: what the labels allow",
        "compare.rows": "responses to list on which the two disagree most",
        "out": "folder of the report",
        "overwrite": "true: replace what another command left in out",
        "trainer.device": "auto, cuda or cpu",
    }
    _sections: Sequence[Path] = ()

    def start(self, words: Sequence[str]) -> int:
        """Take the two sections from the words."""
        if {"-h", "--help"}.isdisjoint(words):
            line = command_line(words)
            names, overrides = sorted_arguments(line.overrides)
            self._sections = [section_path(name, line.folder) for name in names]
            words = line.with_files(overrides)
        return super().start(words)

    def check(self, settings: CompareConfig) -> CheckedComparison:
        """Check both sections without starting an engine."""
        from rmrl.evaluation.compare.check_comparison import check_comparison

        return check_comparison(settings, self._sections, shipped_functions=FUNCTIONS)

    def run(self, checked: CheckedComparison) -> Mapping[str, Any]:
        """Score what is left to score, compare, and write the report."""
        from rmrl.evaluation.compare.run_compare import run_compare

        return run_compare(checked)

    def show(self, checked: CheckedComparison, result: Mapping[str, Any]) -> None:
        """Print the tables, and the responses on which the sections disagree most."""
        from rmrl.evaluation.compare.comparison_tables import console

        print(console(result), flush=True)


def sorted_arguments(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the two sections and the overrides; reward=FILE is a section as well. Raises
    ConfigError unless there are two."""
    sections: list[str] = []
    overrides: list[str] = []
    for before, text in zip(["", *given], given, strict=False):
        key, equals, value = text.partition("=")
        if is_flag(text, before) or (not equals and text.endswith(DATA_SUFFIXES)):
            overrides.append(text)
        elif not equals:
            sections.append(text)
        elif key == SECTION:
            sections.append(value)
        else:
            overrides.append(text)
    if len(sections) != 2:
        listed = ", ".join(sections) or "none"
        raise ConfigError(
            f"saw {len(sections)} files of reward sections ({listed}); give two, e.g. rmrl compare"
            " a.yaml b.yaml data=responses.jsonl out=runs/compare"
        )
    return sections, overrides
