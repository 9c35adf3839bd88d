"""Everything about an audit that can be found wrong before a reward is asked anything."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmrl.audit.audit_rows import Row, read_rows
from rmrl.audit.checks import CHECKS, IN_ORDER
from rmrl.audit.made_rows import made_rows
from rmrl.config.plain_checks import confidence_problems, field_problems
from rmrl.config.schema import ScoreConfig
from rmrl.config.schema.audit import AuditConfig
from rmrl.errors import ConfigError, DataError, Problems
from rmrl.offline.check_scoring import CheckedScoring, check_scoring
from rmrl.offline.open_scorer import token_counter

_log = logging.getLogger(__name__)

REPORT = "audit.json"
MADE = "rows.jsonl"
_LABEL = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAudit:
    """An audit without known problems."""

    config: AuditConfig
    out: Path
    scoring: CheckedScoring
    rows: list[Row]
    checks: tuple[str, ...]
    made: bool
    """The rows were made here."""
    earlier: Mapping[str, Any] | None = None
    """The audit.json of `audit.against`."""


def check_audit(config: AuditConfig, *, shipped_functions: Path) -> CheckedAudit:
    """Check the configuration, read or make the rows, and check the rewards as `rmrl score` does.

    Raises ConfigError with a round's every problem, DataError for rows and labels that cannot be
    read, and what `check_scoring` does.
    """
    problems = Problems()
    problems.add(config_problems(config))
    problems.raise_any()
    out = Path(config.out or f"runs/audit/{'+'.join(config.reward.models)}").expanduser()
    earlier = _earlier(config.audit.against)
    made = config.data.files is None
    if made:
        _make_rows(config, out, chat=False)
    try:
        scoring = _scoring(config, shipped_functions)
    except ConfigError:
        if not made:
            raise
        # Functions of TRL's own take conversations, and raise on texts.
        _make_rows(config, out, chat=True)
        scoring = _scoring(config, shipped_functions)
    rows = read_rows(config, token_counter(scoring))
    if not rows:
        raise DataError("data.files has no row that can be read, so there is nothing to audit with")
    return CheckedAudit(
        config=config,
        out=out,
        scoring=scoring,
        rows=rows,
        checks=tuple(config.audit.checks or IN_ORDER),
        made=made,
        earlier=earlier,
    )


def _scoring(config: AuditConfig, shipped_functions: Path) -> CheckedScoring:
    """Check the rewards, without their cache: every verdict is to be a new one."""
    reward = replace(config.reward, cache=replace(config.reward.cache, path=None))
    scored = ScoreConfig(
        data=config.data, reward=reward, trainer=config.trainer, ray_kwargs=config.ray_kwargs
    )
    return check_scoring(scored, shipped_functions=shipped_functions, needs_out=False)


def config_problems(config: AuditConfig) -> Iterator[str]:
    """Yield a sentence for each wrong value, before any file is read."""
    if not config.reward.models:
        yield (
            "reward.models is empty: name a reward, e.g. reward.models=[gsm8k], or a function, e.g."
            " rmrl audit my_reward.py::compute_score"
        )
    for key in ("checks", "require"):
        for name in getattr(config.audit, key):
            yield from CHECKS.problems(name, f"audit.{key}")
    yield from confidence_problems("audit.confidence", config.audit.confidence)
    if config.audit.label and config.data.files is None:
        yield f"audit.label={config.audit.label}: rows that are made here have no people's labels"
    yield from field_problems(config)


def _earlier(against: str | None) -> Mapping[str, Any] | None:
    if against is None:
        return None
    path = Path(against).expanduser()
    if path.is_dir():
        path = path / REPORT
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if "scores" not in earlier:
            raise KeyError("scores")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"audit.against={against}: saw no audit there ({error}); give the {REPORT} that an"
            " earlier rmrl audit wrote, or its folder"
        ) from error
    return earlier


def _make_rows(config: AuditConfig, out: Path, *, chat: bool) -> None:
    """Write made rows to `out` and name them in the configuration. `chat`: prompts are message
    lists."""
    rows = made_rows(config.audit.seed)
    if chat:
        for row in rows:
            row["prompt"] = [{"role": "user", "content": row["prompt"]}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path = out / MADE
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error}); give another out=") from error
    config.data.files = str(path)
    config.audit.label = _LABEL
    if chat:
        _log.info("the function takes conversations: the prompts are messages now")
    else:
        _log.info(f"no data.files: made {len(lines)} word problems with responses, {path}")
