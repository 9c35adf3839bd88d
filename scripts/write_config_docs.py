"""Write docs/configuration.md from the dataclasses, so that the page cannot differ from the code.

    python scripts/write_config_docs.py

tests/test_docs.py fails while the page is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rmrl.config.schema import (
    AuditConfig,
    AuditSettings,
    BenchmarkConfig,
    CalibrateConfig,
    CalibrationConfig,
    CompareConfig,
    ComparisonConfig,
    Config,
    EvalConfig,
    EvalDataConfig,
    GateConfig,
    RewardDataConfig,
    RewardLossConfig,
    RewardTrainerConfig,
    RewardTrainingConfig,
    ScoreConfig,
    ScoreDataConfig,
    ScoreEngineConfig,
    ScoreTrainerConfig,
    ServeConfig,
    ServerConfig,
)
from rmrl.config.schema.fields import may_change, rule_of
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.values import sampling_of
from rmrl.types import Sampling
from scripts.wrap_prose import wrap

CHANGEABLE = " ↻"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

Every key with its default, written from the dataclasses in `rmrl/config/schema` by `scripts/write_config_docs.py`. Give keys on the
command line (`trainer.seed=3`, lists as `[a,b]`), a section in a file as `reward=path/to/section.yaml`, or several files of your own with `--config-dir` ([where to write it](rewards.md#where-to-write-it)).
`python -m rmrl.main_ppo --cfg job` prints the composed result, and each run writes it to `config.yaml` in its folder. Keys of verl
are translated, have no effect here (one line says so), or are refused with what to use instead ([coming from](coming-from.md)); the
older `reward_model.*` and `custom_reward_function.*` are translated. With `--multirun` a key that has several values, such as `1,2,3`, starts a job for each, one after
another; the sweep ends when all have ended, with the errors and overrides of those that failed and the exit code of the first. Give the jobs outputs of their own, e.g. `out='${trainer.seed}.jsonl'`.

A resumed run (or scoring job) may set the keys marked ↻ otherwise (a mark in the heading of a section stands for all of it);
any other key makes it another run.

All problems are reported at once, before Ray, a GPU or a model is touched, with exit code 2.
"""
OF_A_REWARD = """# Entries of one reward

Below `reward.specs.<name>`, besides those that every kind has ([rewards](rewards.md#where-to-write-it)); what they do is on the page of its
[kind](rewards/kinds.md)."""
OF_SCORING = """# Offline scoring

`python -m rmrl.main_score` (`rmrl score`, [scoring files](scoring.md)) has the sections `reward` and `ray_kwargs` and the older names as above, and these."""

OF_EVALUATION = """# Evaluation

`python -m rmrl.main_eval` (`rmrl eval`, [evaluation](evaluation.md)) has the sections `reward`, `ray_kwargs` and the `trainer` of scoring, and these."""

OF_CALIBRATION = """# Calibration

`python -m rmrl.main_calibrate` (`rmrl calibrate`, [calibration](calibration.md)) has the sections `reward`, `ray_kwargs` and the `data` and `trainer` of scoring, and these."""

OF_COMPARISONS = """# Comparisons

`python -m rmrl.main_compare` (`rmrl compare`, [comparing](comparing.md)) takes two files with a section `reward`, and has `ray_kwargs`, the `data` and `trainer` of scoring, and these."""

OF_AUDITS = """# Audits

`python -m rmrl.main_audit` (`rmrl audit`, [auditing](auditing.md)) has the sections `reward` and `ray_kwargs`, the `data` and `trainer` of scoring, and these."""

OF_SERVING = """# Serving

`python -m rmrl.main_serve` (`rmrl serve`, [serving](serving.md)) has the sections `reward` and `ray_kwargs` and the older names as above, the `data` and `trainer` of scoring, and these."""
OF_REWARD_TRAINING = """# Training of rewards

`python -m rmrl.main_rm` (`rmrl train-rm`, [training a reward model](training-rewards.md)) has these; its sections `model` and `fsdp_config` have the keys of
[`actor_rollout_ref.model`](#actor_rollout_refmodel) and [`actor_rollout_ref.actor.fsdp_config`](#actor_rollout_refactorfsdp_config), and `optim` those of
[`actor_rollout_ref.actor.optim`](#actor_rollout_refactoroptim) with `lr=1e-5`."""


def page() -> str:
    """The whole page."""
    training = [
        _table(_title(prefix) + mark, type(section), given=section, note=note)
        for prefix, section, note, mark in _sections("", Config())
    ]
    entries = [_table(f"kind `{kind}`", REWARD_KINDS[kind].Options) for kind in REWARD_KINDS]
    of_a_reward = [
        OF_A_REWARD,
        *entries,
        _table("`sampling` of judges", Sampling, given=sampling_of({}, "")),
    ]
    scoring = [
        OF_SCORING,
        _table("the output", ScoreConfig, leave_out=("reward_model", "custom_reward_function")),
    ]
    scoring += [
        _table("`data` of scoring", ScoreDataConfig),
        _table("`score`", ScoreEngineConfig),
        _table("`trainer` of scoring", ScoreTrainerConfig),
    ]
    older = ("reward_model", "custom_reward_function")
    evaluation = [
        OF_EVALUATION,
        _table("the report", EvalConfig, leave_out=older),
        _table("`data` of evaluation", EvalDataConfig),
        _table("`eval`", BenchmarkConfig),
    ]
    calibration = [
        OF_CALIBRATION,
        _table("the maps", CalibrateConfig),
        _table("`calibrate`", CalibrationConfig),
    ]
    comparisons = [
        OF_COMPARISONS,
        _table("the comparison", CompareConfig),
        _table("`compare`", ComparisonConfig),
    ]
    audits = [
        OF_AUDITS,
        _table("the audit", AuditConfig),
        _table("`audit`", AuditSettings),
    ]
    serving = [
        OF_SERVING,
        _table("the server", ServeConfig, leave_out=older),
        _table("`serve`", ServerConfig),
    ]
    rewards = [
        OF_REWARD_TRAINING,
        _table("the run", RewardTrainingConfig),
        _table("`data` of reward training", RewardDataConfig),
        _table("`loss`", RewardLossConfig),
        _table("`trainer` of reward training", RewardTrainerConfig),
        _table("`gate`", GateConfig),
    ]
    parts = [
        *training,
        *of_a_reward,
        *scoring,
        *evaluation,
        *calibration,
        *comparisons,
        *audits,
        *serving,
        *rewards,
    ]
    sections = [section for section in parts if section]
    return wrap(HEAD + "\n" + "\n\n".join(sections))


def _title(prefix: str) -> str:
    return f"`{prefix.rstrip('.')}`" if prefix else "Older names"


def _sections(
    prefix: str, section: Any, note: str = "", mark: str = ""
) -> Iterator[tuple[str, Any, str, str]]:
    """Yield for a section and those below it: dotted prefix, an instance with the defaults that
    hold there, the note below its field in the class above, and the mark of changeable keys."""
    yield prefix, section, note, mark
    notes = _notes(type(section))
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            below = CHANGEABLE if may_change(field) else ""
            note = notes.get(field.name, "")
            yield from _sections(f"{prefix}{field.name}.", value, note, below)


def _table(
    title: str, cls: type, *, leave_out: Sequence[str] = (), given: Any = None, note: str = ""
) -> str:
    """`given`: an instance whose values are the defaults; None: the fields' own. `note`: what is
    said above the table."""
    notes = _notes(cls)
    hints = typing.get_type_hints(cls)
    fields = [
        field
        for field in dataclasses.fields(cls)
        if field.name not in leave_out and not dataclasses.is_dataclass(hints[field.name])
    ]
    values = {
        field.name: _default(field) if given is None else getattr(given, field.name)
        for field in fields
    }
    rows: list[str] = []
    for field in fields:
        name = field.name
        mark = CHANGEABLE if may_change(field) else ""
        default = _shown(values[name])
        rows.append(f"| `{name}`{mark} | `{default}` | {_range(field)} | {notes.get(name, '')} |")
    head = [
        f"## {title}",
        "",
        *([note, ""] if note else []),
        "| key | default | values | |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) if rows else ""


def _range(field: dataclasses.Field[Any]) -> str:
    rule = rule_of(field)
    return "" if rule is None else _plain(rule.text)


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default is not dataclasses.MISSING else field.default_factory()  # type: ignore[misc]


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value).replace("\n", "\\n") or "''"


def _notes(cls: type) -> dict[str, str]:
    """Field name -> the docstring line under it, those of the classes it inherits from included."""
    inherited = [_notes(base) for base in reversed(cls.__bases__) if dataclasses.is_dataclass(base)]
    return {name: note for notes in (*inherited, _own_notes(cls)) for name, note in notes.items()}


def _own_notes(cls: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                notes[field.target.id] = _plain(" ".join(value.value.split()))
    return notes


def _plain(text: str) -> str:
    """What a table cell would read as a border or, outside code, as a tag."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if i % 2 else part.replace("<", "\\<") for i, part in enumerate(parts))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
