"""Entry of comparisons: two reward sections on the same rows.

    rmrl compare a.yaml b.yaml data=responses.jsonl out=runs/compare
    rmrl compare a.yaml runs/rmrl/demo/config.yaml data=labelled.jsonl compare.label=good out=runs/c

Each YAML file holds a section `reward`, alone or among others. What both sections have a model
compute is computed once; a comparison that ended early goes on with the same command.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from rmrl.config.command_line import add_file_flags, command_line, file_flags
from rmrl.config.load import compose_config, shipped
from rmrl.config.schema import CompareConfig
from rmrl.config.section import SECTION, section_path
from rmrl.errors import ConfigError
from rmrl.exit import ended_by_signals, ends_with_its_reader, exit_code
from rmrl.logs import begin_run

_log = logging.getLogger("rmrl.main_compare")  # under python -m its __name__ is another

_DATA = "data="


def run(given: Sequence[str], flags: Sequence[str] = ()) -> None:
    """Check everything cheap, then score what is left to score, compare and report. `flags`:
    --config-dir and --config-name."""
    names, overrides = sorted_arguments(given)
    folder = command_line(flags).folder
    sections = [section_path(name, folder) for name in names]
    config = compose_config([*flags, *overrides], CompareConfig)
    begin_run(config.trainer.log_level)
    _log.info("checking the configuration, the data and the rewards of both sections")
    from rmrl.evaluation.compare.check import check_comparison
    from rmrl.evaluation.compare.run import run_compare
    from rmrl.evaluation.compare.table import console

    checked = check_comparison(config, sections, shipped_functions=shipped("reward_functions"))
    print(console(run_compare(checked)), flush=True)


def sorted_arguments(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the two sections and the overrides; data=FILE is short for data.files=FILE, and
    reward=FILE is a section as well. Raises ConfigError for another number of sections."""
    sections: list[str] = []
    overrides: list[str] = []
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            sections.append(text)
        elif key == SECTION:
            sections.append(value)
        elif text.startswith(_DATA):
            overrides.append(f"data.files={text.removeprefix(_DATA)}")
        else:
            overrides.append(text)
    if len(sections) != 2:
        listed = ", ".join(sections) or "none"
        raise ConfigError(
            f"saw {len(sections)} files of reward sections ({listed}); give two, e.g. rmrl compare"
            " a.yaml b.yaml data=responses.jsonl out=runs/compare"
        )
    return sections, overrides


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 configuration, 3 rewards, 4 infrastructure, 5 stall, 6 data,
    130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="rmrl compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE | key=value",
        help="the two files, and the keys of docs/configuration.md#comparisons",
    )
    add_file_flags(parser)
    given = parser.parse_intermixed_args(sys.argv[1:] if arguments is None else list(arguments))
    with exit_code() as code, ended_by_signals():
        run(given.words, file_flags(given))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
