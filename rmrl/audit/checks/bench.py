"""A check, and everything it works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rmrl.audit.audit_rows import Row
from rmrl.audit.finding import Finding, Limits
from rmrl.audit.goldens import FORMS, Goldens, find_goldens
from rmrl.audit.laboratory import Laboratory
from rmrl.audit.made_rows import in_form
from rmrl.audit.subject import Subject
from rmrl.config.schema.audit import AuditSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A planted fault with which the check must fail."""

    code: str
    """A file with a reward function."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the section `audit`."""
    before: str = ""
    """The file at the time of an earlier audit."""


@dataclass(kw_only=True)
class Bench:
    """The reward, the rows, and what the checks before have found out."""

    settings: AuditSettings
    subject: Subject
    rows: Sequence[Row]
    all_rows: Sequence[Row]
    """Those in the file, beside the ones that each check is tried on."""
    limits: Limits
    laboratory: Laboratory | None = None
    made: bool = False
    """The rows are not the user's."""
    earlier: Mapping[str, Any] | None = None
    """The audit.json of an earlier audit."""
    out: Path = Path()
    _goldens: Goldens | None = None

    def seconds(self, share: float) -> float:
        """Return a share from the budget, at most what is left, at least a second."""
        budget = self.subject.budget
        return max(min(share * budget.seconds, budget.left_s), 1.0)

    async def goldens(self) -> Goldens:
        """Return right and wrong responses. The first call scores them. Made rows have their
        responses in the reward's form from then on."""
        if self._goldens is None:
            self._goldens = await find_goldens(self.subject, self.rows)
            if self.made and self._goldens.forms:
                self.rows = self.in_form(self.rows)
                self.all_rows = self.in_form(self.all_rows)
        return self._goldens

    def in_form(self, rows: Sequence[Row]) -> list[Row]:
        """Return made rows with responses in the goldens' form."""
        assert self._goldens is not None
        forms = self._goldens.forms
        return [
            replace(row, responses=in_form(row.responses, FORMS[forms[row.prompt.data_source]]))
            for row in rows
        ]


class Check(Protocol):
    """One question about a reward. To add one: a file here, and a line in `CHECKS`."""

    name: ClassVar[str]
    needs: ClassVar[str]
    """Rows that it needs, for the documentation."""
    responses_per_row: ClassVar[int]
    """Responses that it scores for each row, at most; for the plan."""
    probe: ClassVar[Probe]

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it. Raises OverBudgetError."""
        ...
