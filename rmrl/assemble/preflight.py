"""Try the rewards on the data's first rows, before an engine is started.

Reported: packages that are not installed, servers that do not answer, a sandbox that this machine
lacks, rows without the reference that a reward compares with, and rules that raise or return no
number. Each rule is called on two rows, and on more if it raises on both, in a worker process with
its own deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from rmrl.config.installed import install_line
from rmrl.errors import RewardFunctionError
from rmrl.inference.reward_engines import ENGINES
from rmrl.registry import missing_package, version_problem
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.rule.pool import LOAD_TIMEOUT_S, RulePool
from rmrl.rewards.kinds.rule.reward import call_of
from rmrl.rewards.kinds.shared.own_time import HELD_UP_LIMIT_S
from rmrl.rewards.remote.reach import unreachable
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.response_part import part_item
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreResult

_log = logging.getLogger(__name__)

TRIAL_ROWS = 2
"""Number of rows on which a rule is tried."""
_MORE_TRIAL_ROWS = 14
"""Number of further rows if the rule raised on the first ones, so that two malformed rows do not
condemn a rule."""
_TRIAL_DEADLINE_S = 10.0
_FAILED = ("user_error", "timeout", "worker_lost")
_EXTRAS = {"sentence_transformers": "similarity"}
"""Package -> rmrl extra that installs it. vLLM's extra is named like the device."""


def reward_preflight(
    specs: Sequence[RewardSpec],
    rows: Sequence[ResponseRow],
    *,
    device: str,
    columns: Sequence[str] = (),
) -> list[str]:
    """Return problems as full sentences. `rows`: the data's first rows, with any responses. Without
    rows no rule is called. `columns`: the data's columns, for a missing reference.

    A rule that failed on only some trial rows is logged as a warning.
    """
    problems = [
        *_package_problems(specs, device=device),
        *_server_problems(specs),
        *_machine_problems(specs),
        *_reference_problems(specs, rows),
    ]
    advice = "correct the function before the run"
    references = set(map(attrgetter("prompt.ground_truth"), rows))
    if columns and references == {None}:
        advice = (
            f"no row here has a reference; the columns are {', '.join(columns)}: if one of them"
            " holds it, name it, data.columns.reference=..., else correct the function"
        )
    return [*problems, *_trial_problems(specs, rows, advice=advice)]


def package_problem(key: str, name: str, part: object, *, device: str) -> str:
    """Return a sentence where the package that `part` needs is not installed or too old, else "".
    `key`=`name` requested the part."""
    package = missing_package(part)
    if not package:
        problem = version_problem(part)
        return f"{key}={name}: {problem}" if problem else ""
    extra = device if package == "vllm" else _EXTRAS.get(package)
    command = install_line(extra) if extra else f"pip install {package}"
    return f"{key}={name} needs the package {package}, which is not installed: {command}"


def _package_problems(specs: Sequence[RewardSpec], *, device: str) -> list[str]:
    problems: dict[str, str] = {}
    for spec in specs:
        for engine in spec.engines.values():
            if "base_url" in engine.kwargs:
                continue  # a running server has its own packages
            problem = package_problem(
                "reward.engine.name", engine.name, ENGINES[engine.name], device=device
            )
            problems.setdefault(engine.name, problem)
    return list(filter(None, problems.values()))


def _server_problems(specs: Sequence[RewardSpec]) -> Iterator[str]:
    urls: dict[str, str] = {}
    for spec in specs:
        if spec.remote is not None:
            urls.setdefault(spec.remote.url, spec.name)
        for engine in spec.engines.values():
            if "base_url" in engine.kwargs:
                urls.setdefault(str(engine.kwargs["base_url"]), spec.name)
    for url, reason in unreachable(urls).items():
        yield (
            f"reward '{urls[url]}': no server answers at {url} ({reason}); start the server, or"
            " correct the url"
        )


def _machine_problems(specs: Sequence[RewardSpec]) -> Iterator[str]:
    """Yield what this machine lacks for each reward. Log what the other rewards run in."""
    for spec in specs:
        kind = REWARD_KINDS[spec.kind]
        if problem := kind.machine_problem(spec):
            yield f"reward '{spec.name}': {problem}"
        elif report := kind.machine_report(spec):
            _log.info(f"reward '{spec.name}': {report}")


def _reference_problems(specs: Sequence[RewardSpec], rows: Sequence[ResponseRow]) -> Iterator[str]:
    """Yield rewards for which no row holds what the response is compared with."""
    for spec in specs:
        if spec.dropin is not None:
            continue
        kind = REWARD_KINDS[spec.kind]
        items = [score_item(row, spec) for row in _rows_of(spec, rows)]
        details = kind.missing_references(spec, items)
        if details and all(details):
            yield (
                f"reward '{spec.name}': {details[0]}; the same holds for the first {len(details)}"
                " rows"
            )


def _rows_of(spec: RewardSpec, rows: Sequence[ResponseRow]) -> list[ResponseRow]:
    return [row for row in rows if spec.sources is None or row.prompt.data_source in spec.sources]


def _trial_problems(
    specs: Sequence[RewardSpec], rows: Sequence[ResponseRow], *, advice: str
) -> list[str]:
    """`advice`: what to do where a rule fails on all its trial rows."""
    rules = [
        spec for spec in specs if REWARD_KINDS[spec.kind].calls_function and _rows_of(spec, rows)
    ]
    if not rules:
        return []
    problems: list[str] = []
    with RulePool(min(2, len(rules))) as pool:
        for spec in rules:
            if getattr(spec.options, "tokenizer", ""):
                continue  # rows of text get the token ids for it later, from its tokenizer
            try:
                own_rows = _rows_of(spec, rows)
                first = own_rows[:TRIAL_ROWS]
                trial = list(zip(first, _call(spec, first, pool), strict=True))
                further = own_rows[TRIAL_ROWS : TRIAL_ROWS + _MORE_TRIAL_ROWS]
                if further and all(result.status == "user_error" for _, result in trial):
                    trial += zip(further, _call(spec, further, pool), strict=True)
            except RewardFunctionError as error:
                problems.append(f"reward '{spec.name}': {error}")
                continue
            failures = [(row, result) for row, result in trial if result.status in _FAILED]
            if not failures:
                continue
            row, result = failures[0]
            sentence = (
                f"reward '{spec.name}' gave no verdict on {len(failures)} of {len(trial)} trial"
                f" responses ({result.status}): {result.detail} (row {row.prompt.id}, reference"
                f" {row.prompt.ground_truth!r:.80}, response {row.text!r:.80})"
            )
            if len(failures) == len(trial):
                problems.append(f"{sentence}; {advice}")
            else:
                _log.warning(f"{sentence}; such rows have no reward from it")
    return problems


def _call(spec: RewardSpec, rows: Sequence[ResponseRow], pool: RulePool) -> list[ScoreResult]:
    assert spec.function is not None
    calls: list[dict[str, Any]] = [
        call_of(part_item(score_item(row, spec), spec.reads), token_ids=True) for row in rows
    ]
    deadline = min(spec.timeout_s, _TRIAL_DEADLINE_S)
    return pool.submit(spec.function.frozen(), calls, deadline, spec.name).result(
        timeout=2 * LOAD_TIMEOUT_S + (deadline + HELD_UP_LIMIT_S) * len(rows)
    )
