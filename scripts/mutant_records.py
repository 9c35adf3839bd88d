"""Records of mutants: what became of each, and the same mutants in another version of the sources.

A record is a file of JSON lines, one per mutant. A mutant is found again by its function, its code
and its fault, wherever the lines have gone; one whose code has changed is reported as moved.
"""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutant_sites import Site, sites_of

DIED = ("killed", "hangs")
MET = (*DIED, "survived")
"""What a mutant that met a test came to."""


@dataclass(frozen=True, slots=True)
class Place:
    """A site without its line number."""

    path: str
    function: str
    fault: str
    """Sort of node, fault and number: Compare:opposite:0."""
    text: str
    """The code at the site."""
    nth: int
    """Position among the sites of the function that are equal in all of this."""


@dataclass(slots=True, kw_only=True)
class Result:
    """Fate of one mutant."""

    folder: str
    key: str
    """Site with its line in the recorded version."""
    place: Place
    seed: int
    status: str = "skipped"
    """killed, survived, hangs, uncovered (no test runs its line), skipped (`strict=` of zip, or no
    function of that name is loaded) or moved (the code of the record is not in the sources)."""
    change: str = ""
    tests: int = 0
    """Tests it met, of `covering`."""
    covering: int = 0
    killer: str = ""


def places_of(sites: Iterable[Site]) -> list[Place]:
    """Return the place of each site of one file, in order."""
    seen: Counter[tuple[str, ...]] = Counter()
    places: list[Place] = []
    for site in sites:
        fault = f"{type(site.node).__name__}:{site.fault}:{site.number}"
        parts = (site.path, site.function, fault, ast.unparse(site.node))
        places.append(Place(*parts, nth=seen[parts]))
        seen[parts] += 1
    return places


class Sources:
    """Sites of the files, each parsed when it is first asked for."""

    def __init__(self, parse: Callable[[str], tuple[ast.Module, list[Site]]] = sites_of) -> None:
        self._parse = parse
        self._numbers: dict[str, dict[Place, int]] = {}

    def numbers(self, path: str) -> Mapping[Place, int]:
        """Return place -> position in `sites_of(path)`; empty for a file that is gone."""
        if path not in self._numbers:
            try:
                sites = self._parse(path)[1]
            except FileNotFoundError:
                sites = []
            self._numbers[path] = {place: i for i, place in enumerate(places_of(sites))}
        return self._numbers[path]


def load(path: Path) -> list[Result]:
    """Read a record; an unfinished last line is left out."""
    results: list[Result] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            fields: dict[str, Any] = json.loads(line)
            results.append(Result(**{**fields, "place": Place(**fields["place"])}))
    return results


def to_line(result: Result) -> str:
    """Return the line of a record."""
    return json.dumps(asdict(result)) + "\n"


# --- what is printed


def describe(result: Result) -> str:
    """Return a mutant in two lines."""
    met = f"{result.tests} of {result.covering} tests"
    return f"{result.key} ({met})\n    {result.change}"


def share_died(results: Sequence[Result]) -> float:
    """Return the share of the mutants that met a test; 1 where none did."""
    statuses = [result.status for result in results if result.status in MET]
    return sum(status in DIED for status in statuses) / len(statuses) if statuses else 1.0


def report(results: Sequence[Result]) -> None:
    """Print the survivors, and the counts of each folder."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        counts[result.folder][result.status] += 1
        if result.status == "survived":
            print(describe(result))
    for folder, statuses in counts.items():
        print(folder, ", ".join(f"{count} {status}" for status, count in statuses.most_common()))
    total = Counter(result.status for result in results)
    died = sum(total[status] for status in DIED)
    print(f"{died} of {died + total['survived']} mutants that met a test died")


def compare(before: Sequence[Result], after: Sequence[Result]) -> int:
    """Print what became of the mutants of a record. Returns how many died then and live now."""
    now = {result.key: result for result in after}
    died = Counter[str]()
    gained = 0
    lost: list[Result] = []
    for old in before:
        new = now.get(old.key)
        status = "not tried" if new is None else new.status
        if old.status in DIED:
            died[status] += 1
            if new is not None and status == "moved":
                print(f"moved: {old.key} ({old.status} then)\n    {old.change}")
            elif new is not None and status not in DIED:
                lost.append(new)
                print(f"{status} now: {describe(new)}\n    {old.status} then by {old.killer}")
        else:
            gained += status in DIED
    told = ", ".join(f"{count} {status}" for status, count in died.most_common())
    print(f"{died.total()} mutants died then; now: {told}")
    print(f"{gained} that lived then die now")
    return len(lost)
