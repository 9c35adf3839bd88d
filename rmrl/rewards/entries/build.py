"""Build one reward's `RewardSpec` from its section. Every entry is checked here against the kind's
options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError, RewardError
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.precision import check_batch_invariant, resolve_dtype
from rmrl.inference.reward_engine_base import EngineSpec, Runner
from rmrl.inference.settings import REWARD_SEQUENCES
from rmrl.models.adapter_inspect import check_fits, check_task, read_adapter
from rmrl.models.checkpoint_inspect import (
    check_label_head,
    check_scalar_head,
    check_writes_text,
    checkpoint_kind,
    local_checkpoint,
)
from rmrl.models.label_head import label_head
from rmrl.models.peer_heads import peer_advice
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.dropins.signatures import InLists, rule_form
from rmrl.rewards.entries.names import Component
from rmrl.rewards.entries.section import Section, Surroundings, http_server
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.remote.reward import RemoteReward, http_spec
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.specs.labels import LabelReading, reading_of
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.specs.values import FurtherModel, known_entries, seconds

_RESIDENCY_KEYS = ("residency", "put_away", "load_timeout_s")


def build_spec(
    component: Component,
    entries: Mapping[str, Any],
    dropin: DropIn | None,
    *,
    model_index: int,
    config: RewardConfig,
    surroundings: Surroundings,
) -> RewardSpec:
    """Build one reward's spec. `model_index`: its position among the model rewards if it is one.

    Raises ConfigError with all problems, RewardError for a checkpoint without the head that its
    kind needs.
    """
    if entries.get("kind"):
        kind = str(entries["kind"])
    elif dropin is not None and dropin.is_rule:
        kind = "rule"
    elif entries.get("path"):
        where = f"reward.specs.{component.name}"
        kind = checkpoint_kind(surroundings.checkpoint(str(entries["path"]), where))
    else:
        kind = "generative"
    section = Section(
        component=component,
        model_index=model_index,
        kind=kind,
        entries=entries,
        dropin=dropin,
        config=config,
        surroundings=surroundings,
    )
    section.check_kind()
    if REWARD_KINDS[kind].calls_function:
        return _rule(section)
    if dropin is not None and dropin.is_rule:
        raise ConfigError(
            f"{section.where}.kind={kind}: {dropin.path} is a rule (compute_score); a model reward"
            " needs rm_preprocess and rm_postprocess"
        )
    if REWARD_KINDS[kind].scores_on_server:
        return _remote(section)
    return _model(section, remote=section.server())


def _rule(section: Section) -> RewardSpec:
    where = section.where
    dropin = section.dropin
    section.refuse_model_entries("a rule runs no model")
    options = section.options()
    if dropin is None or dropin.source is None:
        raise ConfigError(
            f"{where}: a rule needs a function: {where}.function=<file.py>:<function> or a drop-in"
            " of that name with compute_score"
        )
    function = dropin.compute_score
    in_lists = function is not None and isinstance(rule_form(function, where), InLists)
    shared = section.shared(timeout_s=section.config.rule_timeout_s, needs_model=False)
    return RewardSpec(**shared, function=dropin.source, options=options, whole_groups=in_lists)


def _remote(section: Section) -> RewardSpec:
    """Return the reward's server. A judge on an OpenAI-compatible server is a generative reward
    whose requests go to that server instead of an engine."""
    fields = [f.name for f in dataclasses.fields(RemoteReward.Options)]
    if section.entries.get("wire") == "openai":
        server: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, value in section.entries.items():
            if key in fields:
                server[key] = value
            elif key != "kind":
                rest[key] = value
        judge = dataclasses.replace(section, kind="generative", entries=rest)
        return _model(judge, remote=http_server(server, section.where))
    options = section.options()
    section.refuse_model_entries("the server runs the model")
    shared = section.shared(timeout_s=section.config.timeout_s, needs_model=True)
    return RewardSpec(**shared, options=options, remote=http_spec(options, section.where))


def _model(section: Section, *, remote: HTTPSpec | None) -> RewardSpec:
    kind = REWARD_KINDS[section.kind]
    options = section.options()
    remote = kind.server_of(options, section.where) or remote
    sampling = section.sampling()
    section.check_dropin(options, sampling)
    roles = kind.roles
    further = [role for role in roles if role != "main" and getattr(options, role)]
    where = f"{section.where}.engine"
    if "main" not in roles or remote is not None:
        problems: list[str] = []
        for key in ("path", "adapter", "engine"):
            # `engine` also says where the engines of further models wait for their turn.
            if section.entries.get(key) and (key != "engine" or not further):
                problems.append(
                    f"{section.where}.{key}: this reward runs no model of its own here, leave {key}"
                    " out; a server or a member of an ensemble has its own"
                )
        if problems:
            raise ConfigError(problems)
    settings: dict[str, Any] = {}
    if roles:
        settings = section.engine_settings(section.entries.get("engine") or {}, where)
    engines: dict[str, EngineSpec] = {}
    for role, runner in roles.items():
        if role in further:
            engines[role] = _engine(section, role, runner, options, settings)
        elif role == "main" and section.by_policy:
            engines[role] = section.policy_engine(runner)
        elif role == "main" and remote is None:
            engines[role] = _engine(section, role, runner, options, settings)
    needs_model = bool(engines) or remote is not None
    shared = section.shared(timeout_s=section.config.timeout_s, needs_model=needs_model)
    shared |= {"options": options, "sampling": sampling, "remote": remote}
    scores = kind.labels_of
    if scores in engines:
        shared["labels"] = _labels(section, scores, options, engines[scores].path)
    if not roles:
        return RewardSpec(**shared)
    default_load = section.config.engine.load_timeout_s
    return RewardSpec(
        **shared,
        engines=engines,
        residency=settings["residency"],
        put_away=settings["put_away"],
        load_timeout_s=seconds(settings["load_timeout_s"], default_load, f"{where}.load_timeout_s"),
    )


def _labels(section: Section, role: str, options: Any, path: str) -> LabelReading | None:
    """Return how the labels are read from the checkpoint in a role. Raises ConfigError where the
    checkpoint has several labels and nothing says which is the score."""
    where = section.where
    entries = options
    shapes = section.dropin is not None and section.dropin.postprocess is not None
    if role != "main":
        where = f"{section.where}.{role}"
        entries = REWARD_KINDS[section.kind].further[role](**getattr(options, role))
        shapes = False
    try:
        reading = reading_of(
            label_head(path),
            entries.label,
            entries.label_weights,
            activation=entries.activation,
        )
    except ConfigError as error:
        raise ConfigError([f"{where}: {problem}" for problem in error.problems]) from error
    if reading is None or reading.weights or shapes:
        return reading
    given = ""
    if role == "main" and "/" in section.name:
        where = "reward.specs.scorer"
        given = f"reward.models=[scorer] {where}.path={section.name} "
    first, second, *_ = reading.names
    raise ConfigError(
        f"reward '{section.name}': '{path}' has {len(reading.names)} labels"
        f" ({', '.join(reading.names)}), and nothing says which is the score: give"
        f" {given}{where}.label='{first}', or a sum:"
        f" {given}{where}.label_weights={{'{first}': 1, '{second}': 0.5}}"
    )


def _check_model(section: Section, role: str, runner: Runner, path: str) -> None:
    """Raise RewardError unless the checkpoint can do what its role asks."""
    advice = peer_advice(path) if runner == "pooling" else ""
    if advice:
        raise RewardError(advice)
    if role == REWARD_KINDS[section.kind].labels_of:
        check_label_head(path)
    elif runner == "pooling":
        check_scalar_head(path)
    elif runner == "generate":
        check_writes_text(path, section.where if role == "main" else "")


def _engine(
    section: Section, role: str, runner: Runner, options: Any, settings: Mapping[str, Any]
) -> EngineSpec:
    where = section.where
    entries: Mapping[str, Any] = section.entries
    if role != "main":
        where = f"{section.where}.{role}"
        schema = REWARD_KINDS[section.kind].further.get(role, FurtherModel)
        entries = known_entries(getattr(options, role), schema, where)
        settings = section.engine_settings(entries.get("engine") or {}, f"{where}.engine")
    if not entries.get("path"):
        raise ConfigError(
            f"reward '{section.name}' ({section.kind}) has no checkpoint: give {where}.path=<folder"
            " or hub id>"
        )
    named = section.surroundings.checkpoint(str(entries["path"]), where)
    path = str(local_checkpoint(named, f"{where}.path"))
    found = read_adapter(str(entries["adapter"])) if entries.get("adapter") else None
    if found is not None:
        check_task(found, path, runner=runner, where=f"{where}.adapter")
    _check_model(section, role, runner, path)
    name = settings["name"]
    runs = engine_facts(name).runners
    if runner == "embed" and (name == "vllm" or runner not in runs):
        name = "sentence_transformers"
    elif runner not in runs:
        raise ConfigError(
            f"{where}.engine.name={name}: this engine runs {' and '.join(runs)} models, and"
            f" '{path}' is to run as a {runner} model; use engine.name=vllm"
        )
    device = section.surroundings.device
    if settings["batch_invariant"]:
        check_batch_invariant(name, device=device, where=f"{where}.engine.batch_invariant")
    dtype = resolve_dtype(
        str(settings["dtype"]),
        path=path,
        runner=runner,
        device=device,
        where=f"{where}.engine.dtype",
    )
    stated = (*_RESIDENCY_KEYS, "threads", "name", "dtype", "max_num_seqs")
    passed = {key: value for key, value in settings.items() if key not in stated}
    if found is not None:
        check_fits(found, path, named=named, where=f"{where}.adapter")
        problem = engine_facts(name).adapter_problem(found, runner)
        if problem:
            raise ConfigError(f"{where}.adapter={found.folder} on engine.name={name}: {problem}")
    return EngineSpec(
        path=path,
        adapter="" if found is None else str(found.folder.resolve()),
        runner=runner,
        device=device,  # type: ignore[arg-type]
        dtype=dtype,
        threads=int(settings["threads"] or section.surroundings.threads),
        max_num_seqs=int(settings["max_num_seqs"] or REWARD_SEQUENCES[device]),  # type: ignore[index]
        trust_remote_code=section.surroundings.trust_remote_code,
        name=name,
        **passed,
    )
