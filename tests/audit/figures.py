"""Audits every planted reward and prints which faults were named:
`python -m tests.audit.figures [first_half|second_half]`."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.audit.auditing import audit

HALVES = ("first_half", "second_half")
BUDGET_S = 120
REWARDS = Path(__file__).parent / "rewards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One planted reward and what its audit failed."""

    name: str
    causes: tuple[str, ...]
    """Findings that name the fault; () of a sound reward."""
    failed: tuple[str, ...]
    code: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether a broken one has the right cause among its failures, and a sound one none."""
        if self.causes:
            return bool(set(self.causes) & set(self.failed)) and self.code == 1
        return not self.failed and self.code == 0


def planted(half: str) -> dict[str, tuple[str, ...]]:
    """Return reward -> the findings that name its fault; () for a sound one."""
    module: Any = importlib.import_module(f"tests.audit.rewards.{half}")
    return module.CAUSES | dict.fromkeys(module.SOUND, ())


def outcome(half: str, name: str, out: Path, **settings: Any) -> Outcome:
    """Audit one planted reward. `settings`: keys of the section `audit`."""
    module: Any = importlib.import_module(f"tests.audit.rewards.{half}")
    words = [
        word.replace("HERE", str(REWARDS)) for word in getattr(module, "WORDS", {}).get(name, ())
    ]
    code, report = audit(f"{REWARDS / half}.py::{name}", out, *words, **settings)
    failed: list[str] = []
    for check in report["checks"].values():
        failed += [each["name"] for each in check["findings"] if each["verdict"] == "fail"]
    return Outcome(
        name=name,
        causes=planted(half)[name],
        failed=tuple(failed),
        code=code,
        seconds=report["seconds"],
    )


def outcomes(half: str) -> Iterator[Outcome]:
    """Audit all planted rewards of a half."""
    with tempfile.TemporaryDirectory() as folder:
        for name in planted(half):
            with contextlib.redirect_stdout(io.StringIO()):
                result = outcome(half, name, Path(folder) / name, budget_s=BUDGET_S)
            yield result


def main(halves: list[str]) -> None:
    """Print a line per reward, and the shares."""
    for half in halves or HALVES:
        seen: list[Outcome] = []
        for each in outcomes(half):
            seen.append(each)
            mark = "ok" if each.is_right else "MISSED"
            print(
                f"{mark:7} {each.name:28} {each.seconds:5.1f} s  {', '.join(each.failed)}",
                flush=True,
            )
        broken = [each for each in seen if each.causes]
        sound = [each for each in seen if not each.causes]
        print(
            f"{half}: {sum(each.is_right for each in broken)} of {len(broken)} broken named,"
            f" {sum(not each.is_right for each in sound)} of {len(sound)} sound failed, at most"
            f" {max(each.seconds for each in seen):.0f} s each",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
