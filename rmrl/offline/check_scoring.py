"""Checks of offline scoring before an engine is started or a file is written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from rmrl.assemble.gpu_shares import chosen_shares, open_engines, with_shares
from rmrl.assemble.memory import budget_of, budgets, prepare_engines, scoring_plan
from rmrl.assemble.preflight import reward_preflight
from rmrl.assemble.resolve import kind_of, resolve
from rmrl.assemble.rules_by_source import choose_rules_of, rules_are_needed
from rmrl.cluster.device_survey import find_devices
from rmrl.cluster.devices import Devices, cpu_devices, joined_address, local_devices
from rmrl.config.check_reward import reward_problems
from rmrl.config.compat import translate
from rmrl.config.plain_checks import field_problems
from rmrl.config.schema import RewardConfig, ScoreConfig
from rmrl.data.column_names import column_names
from rmrl.data.groups import GroupTable, group_columns
from rmrl.data.hub import SCHEME
from rmrl.data.responses import AnsweredRow, CountTokens, answered_rows, refusing_to_count
from rmrl.data.row_index import Shard, Survey, shard_numbers, survey
from rmrl.data.rows import file_list
from rmrl.data.table_writer import SUFFIXES
from rmrl.errors import ConfigError, DataError, Problems
from rmrl.inference.engine_facts import engine_facts
from rmrl.offline.manifest import (
    export_file,
    exports_of,
    output_file,
    parts_folder,
    quarantine_file,
)
from rmrl.offline.response_rows import response_rows
from rmrl.offline.score_columns import FURTHER
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Resolved
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.residency import Budget, EnginePlan
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms.chain import compared, reads_length

_log = logging.getLogger(__name__)

_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedScoring:
    """A configuration without known problems."""

    config: ScoreConfig
    device: str
    specs: tuple[RewardSpec, ...]
    """All rewards, with the parts of ensembles."""
    engines: tuple[EnginePlan, ...]
    budget: Budget
    whole_groups: bool
    """Whether all responses of a group must be scored together."""
    by_batch: bool
    """Whether some scores depend on the batch's other responses."""
    files: tuple[Path, ...] = ()
    out: Path | None = None
    survey: Survey | None = None
    """None without a file to write."""


def check_scoring(
    config: ScoreConfig,
    *,
    shipped_functions: Path,
    needs_out: bool = True,
    needs_files: bool = True,
) -> CheckedScoring:
    """Find all problems before an engine is started: in a first round without reading all rows,
    in a second one with them.

    Raises ConfigError with a round's every problem and all on the files to write, which hide no
    round. A single problem raises its own error (DataError, MemoryPlanError). Without `needs_out`
    only the first rows are read, and `out` may be left out. Without `needs_files` the rows come
    later, and `check_first_rows` checks them.
    """
    problems = Problems()
    _settle(config, problems)
    devices = cpu_devices()
    rewards = Resolved()
    with problems.collecting():
        devices, rewards = _rewards(config, shipped_functions, problems)
    device = devices.kind
    problems.add([*reward_problems(config), *rewards.problems])
    problems.add(_own_problems(config, rewards.specs, needs_out=needs_out, needs_files=needs_files))
    _first_round(config, rewards.specs, problems, device=device)
    if problems:
        _output(config, problems, needs_out=needs_out)
        problems.raise_any()
    engines: list[EnginePlan] = []
    budget = Budget({})
    tables: list[str] = []
    with problems.collecting():
        engines, budget, tables = _memory(config, rewards.specs, devices)
    whole_groups = needs_whole_groups(rewards.specs, config.reward)
    out = None
    surveyed = None
    _output(config, problems, needs_out=needs_out)
    if config.out and needs_out:
        with problems.collecting():
            out = output_file(config.out, _shard(config))
            surveyed = _survey(config, out, rewards.specs, whole_groups=whole_groups)
    problems.raise_any()
    for table in tables:
        _log.info(table)
    return CheckedScoring(
        config=config,
        device=device,
        specs=tuple(rewards.specs),
        engines=tuple(engines),
        budget=budget,
        whole_groups=whole_groups,
        by_batch=depends_on_batch(rewards.specs),
        files=tuple(file_list(config.data.files, "data.files")) if needs_files else (),
        out=out,
        survey=surveyed,
    )


def check_first_rows(checked: CheckedScoring, rows: Sequence[AnsweredRow]) -> None:
    """Check rows in memory as `check_scoring` checks files' first rows. Raises ConfigError with
    every problem."""
    problems = Problems()
    columns = dict.fromkeys(chain.from_iterable(map(attrgetter("fields"), rows[:_FIRST_ROWS])))
    first = response_rows(rows[:_FIRST_ROWS])
    checking = reward_preflight(checked.specs, first, device=checked.device, columns=tuple(columns))
    problems.add(checking)
    problems.raise_any()


def _settle(config: ScoreConfig, problems: Problems) -> None:
    """Translate older names and choose rules, in place."""
    with problems.collecting():
        lines = translate(config, kind_of=kind_of)
        if rules_are_needed(config) and config.data.files:
            sources = (row.prompt.data_source for row in answered_rows(config.data))
            lines += choose_rules_of(config, sources)
        for line in lines:
            _log.info(line)


def _rewards(
    config: ScoreConfig, shipped_functions: Path, problems: Problems
) -> tuple[Devices, Resolved]:
    """Return the devices and the rewards on them, without rewards where there are problems already.

    A cluster is joined only for rewards that need an engine: rules run in this machine's processes.
    A reward with a problem may need one, and the problem may be this machine's lack of GPUs.
    """
    device = config.trainer.device
    ray_init = config.ray_kwargs.ray_init
    joins = joined_address(ray_init) is not None
    devices = cpu_devices()
    if problems:
        return devices, Resolved()
    if not joins:
        # Names of rewards are looked up even where there is no such device.
        with problems.collecting():
            devices = local_devices(device)

    def resolved() -> Resolved:
        return resolve(
            config.reward,
            device=devices.kind,
            shipped_functions=shipped_functions,
            trust_remote_code=config.trainer.trust_remote_code,
        )

    rewards = resolved()
    if joins and (rewards.problems or any(spec.engines for spec in rewards.specs)):
        devices = find_devices(device, ray_init)
        rewards = resolved()
    return devices, rewards


def _first_round(
    config: ScoreConfig,
    specs: list[RewardSpec],
    problems: Problems,
    *,
    device: str,
) -> None:
    """Add every problem in the checkpoints' headers and the first rows."""
    rows: list[ResponseRow] = []
    columns: dict[str, None] = {}
    if config.data.files is not None:
        with problems.collecting():
            counting = without_tokenizer(config, specs)
            if config.data.tokenizer is not None:
                counting = len  # trials need any number, and a tokenizer takes seconds to load
            answered = list(islice(answered_rows(config.data, count_tokens=counting), _FIRST_ROWS))
            columns |= dict.fromkeys(chain.from_iterable(map(attrgetter("fields"), answered)))
            rows = response_rows(answered)
    problems.add(reward_preflight(specs, rows, device=device, columns=tuple(columns)))


def _output(config: ScoreConfig, problems: Problems, *, needs_out: bool) -> None:
    """Add problems with the files to write."""
    if config.out and needs_out:
        with problems.collecting():
            out = output_file(config.out, _shard(config))
            problems.add(_overwritten_inputs(config, out))
            # An unfinished job may have written its output and some of its exports.
            if not parts_folder(out).exists():
                refuse_existing(out, overwrite=config.overwrite)
            own_exports = exports_of(parts_folder(out))
            for kind in (config.select, config.export):
                if kind is not None and export_file(out, kind).name not in own_exports:
                    refuse_existing(export_file(out, kind), overwrite=config.overwrite)


def _overwritten_inputs(config: ScoreConfig, out: Path) -> list[str]:
    """Return a problem for each file to write that is also in `data.files`, which are read again
    after it is written."""
    files: Any = config.data.files
    if not isinstance(files, list | tuple):
        files = [files]
    # Those of the hub stand in its cache. Asking for them again takes as long as the first time.
    files = [name for name in files if not str(name).startswith(SCHEME)]
    try:
        inputs = {path.resolve() for path in file_list(files, "data.files")}
    except (ConfigError, DataError):
        return []  # reported with the first rows
    further: dict[str, Path] = {
        f"{key}={kind}": export_file(out, kind)
        for key, kind in (("select", config.select), ("export", config.export))
        if kind is not None
    }
    if config.data.on_bad_row == "quarantine":
        further["data.on_bad_row=quarantine"] = quarantine_file(out)
    outputs = dict(further)
    if further:
        outputs["out"] = out
    problems: list[str] = [
        f"{key} would replace {file}, which data.files names and which is read again for"
        f" {', '.join(further)}: give another out="
        for key, file in outputs.items()
        if file.resolve() in inputs
    ]
    return problems


def needs_whole_groups(specs: Sequence[RewardSpec], settings: RewardConfig) -> bool:
    """Return whether the responses to one prompt are compared with each other."""
    for spec in specs:
        if spec.whole_groups or REWARD_KINDS[spec.kind].whole_groups:
            return True
        if "group" in compared(spec.transforms):
            return True
    return settings.combine == "lexicographic"


def depends_on_batch(specs: Sequence[RewardSpec]) -> bool:
    """Return whether a transform depends on the whole batch or on earlier ones. A user's own
    transform may."""
    return any(compared(spec.transforms) & {"batch", "running", "unknown"} for spec in specs)


def _memory(
    config: ScoreConfig, specs: Sequence[RewardSpec], devices: Devices
) -> tuple[list[EnginePlan], Budget, list[str]]:
    """Return the engines, their memory budget, and both as tables. Raises MemoryPlanError."""
    engines = prepare_engines(specs, config.trainer, devices)
    budget = budgets(config.trainer, devices)
    gpu_bytes = devices.total_bytes()
    shares = chosen_shares(
        scoring_plan(engines, **budget), open_engines(engines, gpu_bytes), gpu_bytes
    )
    engines = with_shares(engines, shares)
    plan = scoring_plan(engines, **budget)
    plan.check()
    tables = [reward_table(specs), *(share.line for share in shares.values())]
    if engines:
        tables.append(plan.table())
    return engines, budget_of(plan), tables


def _shard(config: ScoreConfig) -> tuple[int, int] | None:
    """Return i and n from shard=i/n. Raises ConfigError for any other form."""
    return None if config.shard is None else shard_numbers(config.shard)


def without_tokenizer(config: ScoreConfig, specs: Sequence[RewardSpec]) -> CountTokens | None:
    """Return what refuses rows whose tokens would have to be counted, where some transform depends
    on them and there is no data.tokenizer; None elsewhere."""
    by_length = [spec.name for spec in specs if reads_length(spec.transforms)]
    if config.data.tokenizer is not None or not by_length:
        return None
    return refusing_to_count(f"the transforms of {', '.join(by_length)} depend on them")


def _survey(
    config: ScoreConfig, out: Path, specs: Sequence[RewardSpec], *, whole_groups: bool
) -> Survey:
    by_group = whole_groups or config.select is not None or config.export == "dpo"
    number, count = _shard(config) or (1, 1)
    surveyed = survey(
        config.data,
        for_parquet=out.suffix == ".parquet",
        by_group=by_group,
        shard=Shard(number=number, count=count, by_group=by_group and count > 1),
        count_tokens=without_tokenizer(config, specs),
    )
    _log.info(f"{surveyed.rows} rows with {surveyed.responses} responses to score")
    if whole_groups and surveyed.groups is not None:
        _report_groups(surveyed.groups)
    return surveyed


def _report_groups(groups: GroupTable) -> None:
    """Log facts about the groups that matter where responses are compared."""
    if groups.singles:
        _log.warning(
            f"{groups.singles} of {groups.groups} groups hold one response, which has nothing to be"
            " compared with (standardize and a group judge give it no contrast); responses are"
            " compared within groups: rows with the same data.group_key, else step and prompt_id,"
            " else prompt"
        )
    if groups.over_files:
        _log.warning(
            f"{groups.over_files} of {groups.groups} groups have rows in several files and are"
            " compared across them; if these are different groups, add a column that distinguishes"
            " them and name it: data.group_key=[run,prompt_id]"
        )
    if groups.scattered:
        _log.info(
            f"the rows of some of the {groups.groups} groups are not consecutive: they are scored"
            " group after group and written in the order of the files"
        )


def refuse_existing(out: Path, *, overwrite: bool) -> None:
    """Raise DataError where `out` may not be written."""
    if out.is_dir():
        raise DataError(
            f"out={out} is a folder; give a file in it, e.g. out={out / 'scored.parquet'}"
        )
    if out.exists() and not overwrite:
        raise DataError(
            f"out={out} exists already and was left alone; give another name, or overwrite=true to"
            " replace it"
        )


def _problems_on_cluster(config: ScoreConfig, specs: Sequence[RewardSpec]) -> list[str]:
    """Return why a cluster's actors cannot score these rewards one batch at a time."""
    key = "score.engine=ray_data"
    problems: list[str] = []
    if depends_on_batch(specs) or needs_whole_groups(specs, config.reward):
        problems.append(
            f"{key} scores batches apart from each other, and here responses are compared with"
            " others (a transform by group, batch or running, a group judge, lexicographic): use"
            " score.engine=local"
        )
    for spec in specs:
        for engine in spec.engines.values():
            if not engine_facts(engine.name).single_process and "base_url" not in engine.kwargs:
                problems.append(
                    f"{key}: reward '{spec.name}' runs on the engine {engine.name}, whose processes"
                    " rmrl places itself: use score.engine=local, which takes machines from"
                    " trainer.nnodes, an engine of one process (hf), or a server"
                )
    return problems


def _own_problems(
    config: ScoreConfig, specs: list[RewardSpec], *, needs_out: bool, needs_files: bool
) -> list[str]:
    problems = []
    if needs_files and config.data.files is None:
        problems.append(
            "data.files is empty: give a parquet, jsonl or csv file of rows with responses, e.g."
            " data.files=responses.parquet"
        )
    if needs_out and not config.out:
        problems.append("out is empty: give the file to write, e.g. out=scored.parquet")
    if needs_out and config.out and Path(config.out).suffix not in SUFFIXES:
        problems.append(
            f"out={config.out}: need a file that ends in {', '.join(SUFFIXES)}, e.g."
            " out=scored.parquet"
        )
    problems += field_problems(config)
    unknown = [name for name in config.columns if name not in FURTHER]
    if unknown or len(set(config.columns)) < len(config.columns):
        problems.append(
            f"columns={config.columns}: give some of {', '.join(FURTHER)}, each once, e.g."
            f" columns=[{','.join(FURTHER)}]"
        )
    try:
        group_columns(config.data.group_key)
        column_names(config.data)
    except ConfigError as error:
        problems += error.problems
    if config.shard is not None and depends_on_batch(specs):
        problems.append(
            f"shard={config.shard}: some transforms depend on the other rows of a batch (by: batch"
            " or running), and a shard has other batches than the whole file: score the file as a"
            " whole, or compare by group"
        )
    if config.score.engine == "ray_data":
        problems += _problems_on_cluster(config, specs)
    if config.reward.weight_schedules:
        problems.append(
            "reward.weight_schedules follow the steps of training: give reward.weights here"
        )
    return problems
