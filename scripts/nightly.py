"""The long checks before a release, and the stamp that says when they last passed.

    python scripts/nightly.py                  all steps; writes tests/nightly_stamp.json
    python scripts/nightly.py --only stalled   one step, or several; writes nothing
    python scripts/nightly.py --age            how old the stamp is; status 1 where it is too old

The mutants run beside the other steps. A step that fails, or a working tree with changes, leaves the
stamp as it is. The stamp is too old where its day lies before that of the last release: the newest
version of CHANGELOG.md that has a date, or the newest tag of a version.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAMP = "tests/nightly_stamp.json"
VERSION = r"v?\d+\.\d+\.\d+\S*"

Counts = dict[str, int]


class StampError(ValueError):
    """The stamp's file has not the form of one."""


# --- the stamp


@dataclass(frozen=True, slots=True)
class Stamp:
    """The last run in which every step passed."""

    commit: str
    date: datetime.date
    """Day in UTC."""
    seconds: int
    counts: Mapping[str, Counts]
    """Step -> what it counted."""

    @classmethod
    def read(cls, path: Path) -> Stamp:
        """Read a file. Raises StampError where it is not a stamp."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            date = datetime.date.fromisoformat(fields.pop("date"))
            stamp = cls(date=date, **fields)
            right = (
                re.fullmatch("[0-9a-f]{40}", stamp.commit) is not None
                and type(stamp.seconds) is int
                and stamp.seconds >= 0
                and len(stamp.counts) > 0
                and all(_is_counts(counts) for counts in stamp.counts.values())
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StampError(f"{path} is no stamp: {error!r}") from error
        if not right:
            raise StampError(f"{path} is no stamp: {fields}")
        return stamp

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        fields = {**asdict(self), "date": self.date.isoformat()}
        path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def _is_counts(counts: Any) -> bool:
    return isinstance(counts, dict) and all(type(count) is int for count in counts.values())


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints; None where it cannot say."""
    try:
        run = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None


# --- its age


def last_release(root: Path) -> tuple[str, datetime.date] | None:
    """Return the newest release and its day, from CHANGELOG.md and the tags; None where there is
    none yet."""
    releases: list[tuple[datetime.date, str]] = []
    changes = root / "CHANGELOG.md"
    text = changes.read_text(encoding="utf-8") if changes.is_file() else ""
    heading = rf"^## \[?({VERSION}?)\]?[^\n]*?(\d{{4}}-\d\d-\d\d)"
    tags = git(root, "for-each-ref", "--format=%(refname:short) %(creatordate:short)", "refs/tags")
    tag = rf"^({VERSION}) (\d{{4}}-\d\d-\d\d)$"
    for version, day in re.findall(heading, text, re.M) + re.findall(tag, tags or "", re.M):
        releases.append((datetime.date.fromisoformat(day), version))
    if not releases:
        return None
    day, version = max(releases)
    return version, day


def age(root: Path, today: datetime.date) -> tuple[str, bool]:
    """Return a sentence on the stamp's age, and whether it is recent enough."""
    release = last_release(root)
    since = f"the last release, {release[0]}, is of {release[1]}" if release else "no release yet"
    path = root / STAMP
    if not path.is_file():
        return f"nightly: no run is recorded; {since}: make test-nightly", release is None
    stamp = Stamp.read(path)
    days = (today - stamp.date).days
    commits = git(root, "rev-list", "--count", f"{stamp.commit}..HEAD")
    behind = f"{commits} commits" if commits is not None else "an unknown number of commits"
    sentence = f"nightly: passed at {stamp.commit[:10]} on {stamp.date}, {days} days and {behind} ago; {since}"
    if release is not None and stamp.date < release[1]:
        return f"{sentence}: make test-nightly is due", False
    return sentence, True


# --- the steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command. `{out}` in it is the file, or folder, that `counts` reads."""

    name: str
    command: Sequence[str]
    counts: Callable[[Path], Counts]
    beside: bool = False
    """Whether it runs beside the steps that follow."""
    may_skip: bool = True
    """Whether tests may be skipped."""


def tests_counted(path: Path) -> Counts:
    """Count the tests of a JUnit file, or of a folder of them."""
    counts = {"passed": 0, "skipped": 0}
    for file in [path] if path.is_file() else path.glob("*.xml"):
        for suite in ElementTree.parse(file).getroot().iter("testsuite"):
            skipped = int(suite.get("skipped", 0))
            counts["passed"] += int(suite.get("tests", 0)) - skipped
            counts["skipped"] += skipped
    return counts


def mutants_counted(path: Path) -> Counts:
    """Count the mutants of a record that met a test, and those that died."""
    statuses = [json.loads(line)["status"] for line in path.read_text().splitlines()]
    died = statuses.count("killed") + statuses.count("hangs")
    return {"tried": died + statuses.count("survived"), "died": died}


def lines_counted(path: Path) -> Counts:
    """Count lines."""
    return {"measured": len(path.read_text(encoding="utf-8").splitlines())}


def releases_counted(path: Path) -> Counts:
    """Count the releases of vLLM that were compared, and the uses that were looked up in them."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return {"releases": len(found), "uses": sum(each["uses"] for each in found.values())}


PYTEST = (sys.executable, "-m", "pytest", "-q", "--junitxml={out}")
FRESH = "RMRL_TESTS_FRESH=1"
"""Programs import everything themselves, where the slow tests of CI fork most of them."""
STALLED_FAST = (
    *("tests/rewards/kinds", "tests/rewards/dropins", "tests/rewards/session", "tests/serve"),
    *("tests/cluster", "tests/inference/rollout", "tests/offline"),
)
STALLED_SLOW = (
    *("tests/slow/offline/test_killed.py", "tests/slow/cluster/test_processes.py"),
    *(
        "tests/slow/rewards/kinds/code/test_hostile.py",
        "tests/slow/inference/rollout/test_answers.py",
    ),
)
FRESH_JOBS = (
    *("tests/slow/reward_training", "tests/slow/trainer", "tests/slow/offline"),
    *("tests/slow/adapters", "tests/slow/config", "tests/slow/rewards", "tests/slow/faults"),
    "tests/slow/test_main_score.py",
)
MUTANTS = (
    *("config=30", "data=20", "evaluation=30", "offline=30", "trainer=45", "rewards=75"),
    *("serve=20", "telemetry=20", "inference=20", "cluster=10"),
)
MUTANT_TESTS = (
    *("config", "data", "evaluation", "offline", "trainer", "rewards", "serve", "telemetry"),
    *("inference", "cluster", "assemble", "contracts", "faults", "reward_functions"),
)
STEPS = (
    Step(
        name="mutants",
        command=[
            *(sys.executable, "scripts/mutants.py", *MUTANTS, "--seed", "24", "--least", "0.75"),
            *("--record", "{out}", "--tests", *(f"tests/{folder}" for folder in MUTANT_TESTS)),
        ],
        counts=mutants_counted,
        beside=True,
    ),
    Step(
        name="vllm contract",
        command=[sys.executable, "scripts/vllm_contract.py", "--newest", "--record", "{out}"],
        counts=releases_counted,
    ),
    Step(
        name="long forms",
        command=["env", FRESH, "REPORTS={out}", "scripts/test_slow.sh", "nightly"],
        counts=tests_counted,
    ),
    Step(
        name="browser",
        command=[*PYTEST, "tests/slow/report/test_browser.py"],
        counts=tests_counted,
        may_skip=False,
    ),
    Step(
        name="stalled",
        command=[
            *(sys.executable, "scripts/stall.py", "--seed", "7", *PYTEST),
            *("-m", "not nightly and not alone and not slow", *STALLED_FAST),
        ],
        counts=tests_counted,
    ),
    Step(
        name="stalled jobs",
        command=[
            *("env", FRESH, sys.executable, "scripts/stall.py", "--seed", "8", *PYTEST),
            *("-m", "slow and not nightly and not alone", *STALLED_SLOW),
        ],
        counts=tests_counted,
    ),
    Step(
        name="fresh jobs",
        command=[
            *("env", FRESH, "REPORTS={out}", f"TESTS={' '.join(FRESH_JOBS)}"),
            *("scripts/test_slow.sh", "slow and not nightly and not fresh"),
        ],
        counts=tests_counted,
    ),
    Step(
        name="bounds",
        command=[sys.executable, "-m", "benchmarks.bounds", "--record", "{out}"],
        counts=lines_counted,
    ),
)


def start(step: Step, root: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start a step's command."""
    command = [part.replace("{out}", str(out)) for part in step.command]
    print(f"nightly: {step.name}: {' '.join(command)}", flush=True)
    # A record of an earlier run would be gone on with.
    for path in out.parent.glob(f"{out.stem}.*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return subprocess.Popen(command, cwd=root)


def run(steps: Sequence[Step], root: Path) -> dict[str, Counts] | None:
    """Run the steps. Returns what each counted; None where one failed."""
    folder = root / "build" / "nightly"
    folder.mkdir(parents=True, exist_ok=True)
    outs: dict[str, Path] = {}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    started = time.monotonic()
    failed: list[str] = []
    try:
        for step in steps:
            outs[step.name] = folder / f"{step.name.replace(' ', '_')}.out"
            processes[step.name] = start(step, root, outs[step.name])
            if not step.beside:
                processes[step.name].wait()
                print(f"nightly: {step.name}: {time.monotonic() - started:.0f} s", flush=True)
        for name, process in processes.items():
            if process.wait() != 0:
                failed.append(name)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
    counts = {step.name: step.counts(outs[step.name]) for step in steps if step.name not in failed}
    for step in steps:
        if not step.may_skip and counts.get(step.name, {}).get("skipped"):
            failed.append(f"{step.name} (skipped)")
    if failed:
        print(f"nightly: failed: {', '.join(failed)}", flush=True)
        return None
    return counts


def run_and_stamp(steps: Sequence[Step], root: Path, *, partial: bool) -> int:
    """Run the steps, and write the stamp after a whole run. Returns the exit status."""
    before = _clean_commit(root)
    started = time.monotonic()
    counts = run(steps, root)
    if counts is None:
        return 1
    for name, each in counts.items():
        print(f"nightly: {name}: {each}")
    if partial:
        print("nightly: a part of the steps writes no stamp")
        return 0
    if before is None or before != _clean_commit(root):
        print("nightly: no stamp: the working tree has changes that are not committed")
        return 1
    seconds = round(time.monotonic() - started)
    Stamp(before, datetime.datetime.now(datetime.UTC).date(), seconds, counts).write(root / STAMP)
    print(f"nightly: all passed; commit {STAMP}")
    return 0


def _clean_commit(root: Path) -> str | None:
    """Return the commit of the working tree; None where files differ from it."""
    changes = git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", f":!{STAMP}")
    return git(root, "rev-parse", "HEAD") if changes == "" else None


def main() -> int:
    """Run the command. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    names = [step.name for step in STEPS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="STEP", help=", ".join(names))
    parser.add_argument("--age", action="store_true", help="say how old the stamp is")
    arguments = parser.parse_args()
    if arguments.age:
        sentence, recent = age(ROOT, datetime.datetime.now(datetime.UTC).date())
        print(sentence)
        return 0 if recent else 1
    steps = [step for step in STEPS if not arguments.only or step.name in arguments.only]
    return run_and_stamp(steps, ROOT, partial=bool(arguments.only))


if __name__ == "__main__":
    sys.exit(main())
