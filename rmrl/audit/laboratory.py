"""Calls a rule under conditions: the parent's side for `rmrl.audit.inside`."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rmrl.audit.subject import Case
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.pool import LOAD_TIMEOUT_S
from rmrl.rewards.kinds.rule.reward import call_of
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.specs.spec import RewardSpec

_PROGRAM = """import sys, json
sys.path[:] = json.loads(sys.argv[1])
from rmrl.audit.inside import main
main()"""

_LEAST_S = 1.0
_ENDING_S = 30.0
"""Seconds in which the process has to end once it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How rows are called."""

    name: str
    order: Sequence[int]
    """Positions in the rows, one per call."""
    alone: bool = True
    """Each row in its own fork, as if no row had been before it."""
    seed: int = 0
    """Set in `random` and numpy before each call."""
    shift_s: float = 0.0
    """Seconds by which the clock is wrong."""
    hash_seed: int = 0
    """PYTHONHASHSEED."""
    no_text: bool = False
    """None in the place of each response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One call's verdict, and what the rule did beside it."""

    status: str
    value: float | None
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Calls one rule in its own processes."""

    spec: RewardSpec
    source: FunctionSource

    @classmethod
    def of(cls, specs: Sequence[RewardSpec]) -> Laboratory | None:
        """Return the laboratory for the only reward, None where it is no rule."""
        if len(specs) != 1 or specs[0].function is None or specs[0].kind != "rule":
            return None
        return cls(specs[0], specs[0].function.frozen())

    def answers(
        self, cases: Sequence[Case], conditions: Sequence[Condition], *, timeout_s: float
    ) -> dict[str, list[Answer]]:
        """Return the answers under each condition, in its order. A process that dies leaves answers
        out, and so do calls for which no seconds are left."""
        payloads = [pickle.dumps(self._call(case)) for case in cases]
        answers: dict[str, list[Answer]] = {}
        ends = time.monotonic() + timeout_s
        parts: dict[tuple[bool, int], list[Condition]] = {}
        for each in conditions:
            # At another hour a process has to load the rule anew, so those come last.
            parts.setdefault((bool(each.shift_s), each.hash_seed), []).append(each)
        for (_, hash_seed), chosen in sorted(parts.items(), key=lambda part: part[0]):
            answers |= self._run(payloads, chosen, hash_seed, ends - time.monotonic())
        return answers

    def _call(self, case: Case) -> dict[str, Any]:
        row = ResponseRow(prompt=case.prompt, text=case.text, tokens=len(case.text.split()))
        return call_of(score_item(row, self.spec))

    def _run(
        self,
        payloads: Sequence[bytes],
        conditions: Sequence[Condition],
        hash_seed: int,
        timeout_s: float,
    ) -> dict[str, list[Answer]]:
        job = {
            "source": self.source,
            "payloads": payloads,
            "conditions": list(map(asdict, conditions)),
            "timeout_s": min(self.spec.timeout_s, max(timeout_s, _LEAST_S)),
            "load_s": LOAD_TIMEOUT_S,
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps(list(map(str, sys.path)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONHASHSEED": str(hash_seed)},
        )
        try:
            output, _ = process.communicate(pickle.dumps(job), max(timeout_s, _LEAST_S))
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends its forks
            try:
                output, _ = process.communicate(timeout=_ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
        answers: dict[str, list[Answer]] = {}
        for line in output.splitlines():
            name, rows = json.loads(line)
            if name != "failed":
                answers[name] = [
                    Answer(status=status, value=value, detail=detail, facts=facts)
                    for status, value, detail, facts in rows
                ]
        return answers
