"""Measure what the fast tests notice: small faults (mutants) in a random sample of places.

    python scripts/mutants.py rewards/combine=80 trainer=120 --tests tests/rewards tests/trainer

Each argument is a folder of rmrl/ and the number of mutants to try there. The tests run once under
`coverage`, so that a mutant meets only tests that
run its line: those of its own folder first, quick ones before slow ones, until one fails or their
time is up. mutant_sites.py has the faults; `strict=` of zip stays. A mutated function is put into a
fork of the process that has collected the tests: nothing is written to the sources, and code that
runs in a worker process runs there unmutated.

The same seed, sources and counts give the same sample. Results are appended to --record as JSON
lines, one per mutant, and a second run goes on from there.

    python scripts/mutants.py --replay RECORD --record NEW --tests tests/rewards tests/trainer

puts the mutants of a record into these sources and says which died then and live now; a mutant whose
code has changed since is reported as moved.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import mmap
import os
import pickle
import random
import shutil
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mutant_records import (
    MET,
    Result,
    Sources,
    compare,
    load,
    places_of,
    report,
    share_died,
    to_line,
)
from mutant_sites import ROOT, Site, mutate, only_checks, sites_of

TESTS_S = 6.0
"""Seconds of tests, as measured under coverage, that one mutant meets at most."""
REPLAYED_S = 30.0
"""The same for one that died in the record that is replayed."""
LONGEST_TEST_S = 5.0
SILENCE_S = 15.0
"""A mutant under which no test ends for so long hangs, and is noticed."""


@dataclass(slots=True)
class Coverage:
    """One run of all tests without a mutant."""

    seconds: dict[str, float]
    failed: set[str]
    tests_of_line: dict[str, dict[int, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mutant to be tried: site `number` of the file `path`."""

    path: str
    number: int
    old: Result | None = None
    """From the record that is replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Mutants of a folder, of which `count` are to meet a test."""

    folder: str
    count: int
    candidates: Sequence[Candidate]


def random_sample(folder: str, count: int, seed: int) -> Sample:
    """Return all sites of a folder in an order that depends on the seed."""
    candidates: list[Candidate] = []
    for path in sorted((ROOT / "rmrl" / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for number in range(len(sites_of(name)[1])):
            candidates.append(Candidate(path=name, number=number))
    random.Random(f"{seed}:{folder}").shuffle(candidates)
    return Sample(folder=folder, count=count, candidates=candidates)


def recorded_samples(record: Sequence[Result]) -> tuple[list[Sample], list[Result]]:
    """Look up the mutants of a record that met a test. Returns them, and those that moved."""
    sources = Sources()
    by_folder: defaultdict[str, list[Candidate]] = defaultdict(list)
    moved: list[Result] = []
    for old in record:
        if old.status not in MET:
            continue
        number = sources.numbers(old.place.path).get(old.place)
        if number is None:
            moved.append(replace(old, status="moved", tests=0, covering=0, killer=""))
        else:
            candidate = Candidate(path=old.place.path, number=number, old=old)
            by_folder[old.folder].append(candidate)
    samples: list[Sample] = []
    for folder, candidates in by_folder.items():
        samples.append(Sample(folder=folder, count=len(candidates), candidates=candidates))
    return samples, moved


class Mutation:
    """A pytest plugin that runs mutants in place of the collected tests."""

    def __init__(self, samples: Sequence[Sample], *, seed: int, out: Path) -> None:
        self.samples = samples
        self.seed = seed
        self.out = out
        self.failures: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        cache = self.out.with_suffix(".coverage")
        if not cache.is_file():
            self._fork(session, cache)
        coverage: Coverage = pickle.loads(cache.read_bytes())
        print(f"{len(coverage.seconds)} tests, {sum(coverage.seconds.values()):.0f} s")
        for name in sorted(coverage.failed):
            print(f"left out, it fails without a mutant: {name}")
        known: dict[str, Result] = {}
        if self.out.is_file():
            known = {result.key: result for result in load(self.out)}
        for sample in self.samples:
            for path in {candidate.path for candidate in sample.candidates}:
                importlib.import_module(path.removesuffix(".py").replace("/", "."))
        functions = functions_by_name()
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        with self.out.open("a", encoding="utf-8") as file:
            for sample in self.samples:
                for result in self._tried(sample, items, coverage, functions, known):
                    file.write(to_line(result))
                    file.flush()
        return True

    def _fork(self, session: pytest.Session, cache: Path) -> None:
        child = os.fork()
        if not child:
            try:
                cache.write_bytes(pickle.dumps(self._covered(session)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def _covered(self, session: pytest.Session) -> Coverage:
        from coverage import Coverage as Recorder

        folders = [f"{ROOT}/rmrl/{sample.folder}/*" for sample in self.samples]
        recorder = Recorder(data_file=None, include=folders, config_file=False)
        seconds: dict[str, float] = {}
        failed: set[str] = set()
        recorder.start()
        for item, following in pairs(session.items):
            recorder.switch_context(item.nodeid)
            started = time.perf_counter()
            self.failures.clear()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.perf_counter() - started
            if self.failures:
                failed.add(item.nodeid)
        recorder.stop()
        data = recorder.get_data()
        tests_of_line: dict[str, dict[int, list[str]]] = {}
        for file in data.measured_files():
            tests_of_line[str(Path(file).relative_to(ROOT))] = data.contexts_by_lineno(file)
        return Coverage(seconds, failed, tests_of_line)

    def _tried(
        self,
        sample: Sample,
        items: Mapping[str, pytest.Item],
        coverage: Coverage,
        functions: Functions,
        known: Mapping[str, Result],
    ) -> Iterator[Result]:
        """Run mutants until `count` of them met a test. Yields those that are not known yet."""
        met = 0
        for candidate in sample.candidates:
            if met == sample.count:
                return
            tree, sites = sites_of(candidate.path)
            site = sites[candidate.number]
            key = candidate.old.key if candidate.old else site.key
            if key in known:
                met += known[key].status in MET
                continue
            place = places_of(sites)[candidate.number]
            result = Result(folder=sample.folder, key=key, place=place, seed=self.seed)
            tests = tests_for(site, coverage)
            result.covering = len(tests)
            if not tests:
                result.status = "uncovered"
            elif not only_checks(site):
                result.change = mutate(tree, site)
                codes = mutated_codes(tree, site, functions)
                if codes:
                    chosen = chosen_tests(tests, coverage, candidate.old)
                    self._run([items[test] for test in chosen], codes, result)
            met += result.status in MET
            yield result

    def _run(
        self,
        items: Sequence[pytest.Item],
        codes: Sequence[tuple[types.FunctionType, types.CodeType]],
        result: Result,
    ) -> None:
        """Run the tests in a fork with the mutated code, until one fails."""
        result.tests = len(items)
        shared = mmap.mmap(-1, 4)
        child = os.fork()
        if not child:
            status = 1
            try:
                os.setsid()
                status = self._child(items, codes, shared)
            finally:
                os._exit(status)
        ended = 0
        last_count = b""
        last_time = time.monotonic()
        result.status = "hangs"
        while not ended and time.monotonic() - last_time < SILENCE_S:
            time.sleep(0.02)
            ended, code = os.waitpid(child, os.WNOHANG)
            if ended:
                result.status = "killed" if code else "survived"
            elif shared[:4] != last_count:
                last_count = shared[:4]
                last_time = time.monotonic()
        end_group(child)
        if not ended:
            os.waitpid(child, 0)
        if result.status == "killed":
            number = int.from_bytes(shared[:4], "big")
            result.killer = items[min(number, len(items) - 1)].nodeid

    def _child(
        self,
        items: Sequence[pytest.Item],
        codes: Sequence[tuple[types.FunctionType, types.CodeType]],
        shared: mmap.mmap,
    ) -> int:
        config: Any = items[0].config
        config.pluginmanager.unregister(name="terminalreporter")
        folder = Path(f"/tmp/mutants-{os.getppid()}")
        shutil.rmtree(folder, ignore_errors=True)
        config._tmp_path_factory._given_basetemp = folder
        config._tmp_path_factory._basetemp = None
        for function, code in codes:
            function.__code__ = code
        self.failures.clear()
        for number, (item, following) in enumerate(pairs(items)):
            shared[:4] = number.to_bytes(4, "big")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failures:
                return 1
        return 0


def end_group(leader: int) -> None:
    """End a fork and the workers that its tests started."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each test with the one after it, as pytest's protocol wants them."""
    return zip(items, [*items[1:], None], strict=True)


def tests_for(site: Site, coverage: Coverage) -> list[str]:
    """Return the tests that run the site's line (its statement's, where no code is on its own):
    those of its module first, then those of its folder, quick ones before slow ones."""
    lines = coverage.tests_of_line.get(site.path, {})
    line = site.node.lineno  # type: ignore[attr-defined]
    folder = "tests/" + "/".join(site.path.split("/")[1:-1])
    module = f"{folder}/test_{Path(site.path).stem}.py"
    tests: list[str] = []
    for test in lines.get(line) or lines.get(site.statement) or []:
        if test not in coverage.failed and coverage.seconds.get(test, 1e9) < LONGEST_TEST_S:
            tests.append(test)

    def rank(test: str) -> tuple[bool, bool, float]:
        return (not test.startswith(module), not test.startswith(folder), coverage.seconds[test])

    return sorted(tests, key=rank)


def chosen_tests(tests: Sequence[str], coverage: Coverage, old: Result | None) -> list[str]:
    """Return the tests that a mutant meets. One that died before meets the test that noticed it
    first, and has more time."""
    if old is None or old.status == "survived":
        return within(tests, coverage, TESTS_S)
    return within(sorted(tests, key=lambda test: test != old.killer), coverage, REPLAYED_S)


def within(tests: Sequence[str], coverage: Coverage, limit_s: float) -> list[str]:
    """Return the first tests that take `limit_s` together, at least one."""
    chosen: list[str] = []
    seconds = 0.0
    for test in tests:
        if seconds > limit_s:
            break
        seconds += coverage.seconds[test]
        chosen.append(test)
    return chosen


Functions = Mapping[tuple[str, str, int], Sequence[types.FunctionType]]
"""(path, qualified name, first line) -> the loaded functions."""


def functions_by_name() -> Functions:
    """Return all loaded functions of the package."""
    functions: defaultdict[tuple[str, str, int], list[types.FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType):
            code = each.__code__
            if code.co_filename.startswith(f"{ROOT}/rmrl/"):
                path = str(Path(code.co_filename).relative_to(ROOT))
                functions[path, code.co_qualname, code.co_firstlineno].append(each)
    return functions


def mutated_codes(
    tree: ast.Module, site: Site, functions: Functions
) -> list[tuple[types.FunctionType, types.CodeType]]:
    """Compile the mutated file. Returns each loaded function of the site with its new code."""
    try:
        module = compile(tree, str(ROOT / site.path), "exec")
    except (SyntaxError, ValueError):
        return []
    codes: list[tuple[types.FunctionType, types.CodeType]] = []
    for code in nested_codes(module):
        for function in functions.get((site.path, site.function, code.co_firstlineno), ()):
            same_cells = len(function.__code__.co_freevars) == len(code.co_freevars)
            if code.co_qualname == site.function and same_cells:
                codes.append((function, code))
    return codes


def nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested_codes(constant)


# --- the command


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folders", nargs="*", help="folder of rmrl/ = number of mutants")
    parser.add_argument("--tests", nargs="+", default=["tests"])
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument(
        "--record", "--out", type=Path, default=Path("mutants.jsonl"), help="file of the results"
    )
    parser.add_argument("--replay", type=Path, help="record whose mutants are tried again")
    parser.add_argument("--least", type=float, default=0.0, help="share that has to die")
    arguments = parser.parse_args()
    if bool(arguments.folders) == bool(arguments.replay):
        parser.error("name folders or a record to replay")
    return arguments


def main() -> int:
    """Run the command. Returns the exit status of pytest."""
    arguments = parsed()
    out: Path = arguments.record.resolve()
    before: list[Result] = []
    if arguments.replay:
        before = [result for result in load(arguments.replay) if result.status in MET]
    samples, moved = recorded_samples(before)
    for each in arguments.folders:
        folder, _, count = each.partition("=")
        samples.append(random_sample(folder, int(count or 50), arguments.seed))
    os.chdir(ROOT)
    # One thread per process: a fork of a process whose threads work may hang.
    os.environ["OMP_NUM_THREADS"] = "1"
    plugin = Mutation(samples, seed=arguments.seed, out=out)
    options = ["-q", "-m", "not slow and not nightly", "-p", "no:cacheprovider", "-o", "timeout=0"]
    status = pytest.main([*options, *arguments.tests], plugins=[plugin])
    if not out.is_file():
        return int(status)
    after = load(out)
    if before:
        return int(status) or compare(before, [*after, *moved]) > 0
    report(after)
    return int(status) or share_died(after) < arguments.least


if __name__ == "__main__":
    sys.exit(main())
