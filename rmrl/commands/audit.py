"""`rmrl audit`: is this reward any good, before anything is trained on it?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmrl.commands.command import FUNCTIONS, REWARD_KEYS, KeyCommand
from rmrl.config.schema.audit import AuditConfig
from rmrl.errors import ConfigError
from rmrl.interrupt import INTERRUPTED

if TYPE_CHECKING:
    from rmrl.audit.check_audit import CheckedAudit
    from rmrl.audit.run_audit import Result

_SHORT = ("label", "against")
_COULD_NOT_RUN = 2
_FAILED = 1


class Audit(KeyCommand[AuditConfig, "CheckedAudit", "Result"]):
    """A reward in the section `reward`, or a function: FILE.py::NAME, package.module:NAME. Without
    data.files it is tried on word problems that are made here. The exit code is 0 where no check
    failed, 1 where one did, 2 where the audit could not run."""

    examples = (
        "rmrl audit my_reward.py::compute_score",
        "rmrl audit my_reward.py::compute_score data.files=rows.jsonl label=human out=runs/audit",
        "python -m rmrl.main_audit reward.models=[math_verify] data.files=a.jsonl",
    )
    root = AuditConfig
    checking = "the configuration, the rows and the rewards"
    keys = REWARD_KEYS | {
        "data.files": "rows with responses, with or without references and labels",
        "audit.label": "column with people's labels; label=... for short",
        "audit.budget_s": "seconds that the checks may take",
        "audit.checks": "checks to run, e.g. [contract,golden]; all without it",
        "audit.require": "checks that must pass, and not only not fail",
        "out": "folder of audit.html, audit.json and reward.yaml",
    }

    def main(self, words: Sequence[str]) -> int:
        """Return the exit code: 0 nothing failed, 1 a check failed, 2 it could not run."""
        code = super().main(words)
        return code if code in (0, _FAILED, INTERRUPTED) else _COULD_NOT_RUN

    def start(self, words: Sequence[str]) -> int:
        """Put the keys where their short forms stood."""
        return super().start(key_words(words))

    def check(self, settings: AuditConfig) -> CheckedAudit:
        """Read or make the rows, and check the rewards without starting an engine."""
        from rmrl.audit.check_audit import check_audit

        return check_audit(settings, shipped_functions=FUNCTIONS)

    def run(self, checked: CheckedAudit) -> Result:
        """Run the checks, and write the files."""
        from rmrl.audit.run_audit import run_audit
        from rmrl.audit.written import write

        result = run_audit(checked, clock=time.monotonic)
        write(checked, result)
        return result

    def show(self, checked: CheckedAudit, result: Result) -> int:
        """Print the table."""
        from rmrl.audit.tables import console

        print(console(result), flush=True)
        return _FAILED if result.failed(checked.config.audit.require) else 0


def key_words(words: Sequence[str]) -> list[str]:
    """Return the words with keys where they had FILE.py::NAME, label= and against=. Raises
    ConfigError for a second function."""
    keys: list[str] = []
    functions: list[str] = []
    for word in words:
        key, equals, _ = word.partition("=")
        if key in _SHORT and equals:
            keys.append(f"audit.{word}")
        elif equals or word.startswith("-") or (":" not in word and not word.endswith(".py")):
            keys.append(word)
        else:
            functions.append(word)
    if len(functions) > 1:
        raise ConfigError(f"saw {' and '.join(functions)}: give one function to audit")
    return [*(f"reward.models=['{function}']" for function in functions), *keys]
