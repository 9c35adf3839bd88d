"""Resolve names in `reward.models` to `RewardSpec`s. A name is, in this order,

1. an entry of `reward.specs` (which also overrides the SPEC of a drop-in of the same name),
2. a drop-in file `<functions_dir>/<name>.py`,
3. `package.module:function`, a rule,
4. `env.<name>`, a reward of the environment,
5. a checkpoint folder or hub id, whose kind is read from its config.

All problems are collected. Only the drop-ins' code and the checkpoints' headers are loaded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.config.yaml_file import names_function
from rmrl.data.traces.stored_trace import ENV
from rmrl.errors import ConfigError, RewardError
from rmrl.models.checkpoint_inspect import checkpoint_kind, local_checkpoint
from rmrl.registry import did_you_mean
from rmrl.rewards.dropins.dropin import (
    DropIn,
    FunctionSource,
    function_dropin,
    load_dropin,
    load_function,
)
from rmrl.rewards.dropins.given_function import source_of
from rmrl.rewards.entries.build import build_spec
from rmrl.rewards.entries.names import Component, named_rewards
from rmrl.rewards.entries.presets import preset_entries, with_defaults
from rmrl.rewards.entries.section import SHARED_KEYS, Surroundings, check_names
from rmrl.rewards.entries.watching import watch_problems
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec


@dataclass(slots=True)
class Resolved:
    """The specs that could be made, and the other rewards' problems."""

    specs: list[RewardSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def functions_dirs(configured: Any, *, working_dir: Path, shipped_dir: Path) -> list[Path]:
    """Return the drop-in folders in search order. Raises ConfigError for a configured folder that
    does not exist."""
    if configured is None:
        local = working_dir / "reward_functions"
        if local.is_dir() and local.resolve() != shipped_dir.resolve():
            return [local, shipped_dir]
        return [shipped_dir]
    entries = configured if isinstance(configured, list | tuple) else [configured]
    once: dict[Path, Path] = {}
    problems: list[str] = []
    for entry in entries:
        folder = Path(str(entry)).expanduser()
        if not folder.is_dir():
            problems.append(f"reward.functions_dir: there is no folder {folder}")
        elif folder.resolve() != shipped_dir.resolve():
            once[folder.resolve()] = folder
    if problems:
        raise ConfigError(problems)
    return [*once.values(), shipped_dir]


def resolve_rewards(config: RewardConfig, surroundings: Surroundings) -> Resolved:
    """Return one spec per name, in order, then the ensembles' members. A name with a problem has no
    spec, and `problems` has the problem."""
    resolved = Resolved()
    try:
        named = named_rewards(config)
    except ConfigError as error:
        return Resolved(problems=error.problems)
    for component in named:
        spec = _guarded(resolved, component, config=config, surroundings=surroundings)
        if spec is not None:
            resolved.specs.append(spec)
    members = _add_members(resolved, config, surroundings)
    _check_gates(resolved)
    resolved.problems += watch_problems(resolved.specs, config)
    specs = {spec.name: spec for spec in resolved.specs}
    for spec in resolved.specs:
        parts = [specs[name] for name in getattr(spec.options, "of", ()) if name in specs]
        for part in parts or ([] if spec.part_of else [spec]):
            drops = part.reads.parts_thinking and part.reads.unclosed == "missing"
            if drops and spec.on_missing.policy == "renormalize":
                resolved.problems.append(
                    f"reward '{spec.name}' has on_missing=renormalize, so a policy could drop it by"
                    f" never ending its thinking: give reward.specs.{part.name}.unclosed=<a score>,"
                    f" or reward.specs.{spec.name}.on_missing=mask"
                )
    names = [component.name for component in named]
    listed = ", ".join(names)
    for name in sorted(set(config.specs) - set(names) - members):
        resolved.problems.append(
            f"reward.specs.{name}: not in reward.models ({listed}); add it there or leave it out"
        )
    return resolved


def _guarded(
    resolved: Resolved,
    component: Component,
    *,
    config: RewardConfig,
    surroundings: Surroundings,
) -> RewardSpec | None:
    """Return the spec that comes after the specs in `resolved`. None where the spec has problems,
    which are added."""
    model_index = sum(other.needs_model for other in resolved.specs)
    try:
        return _resolve(
            component, model_index=model_index, config=config, surroundings=surroundings
        )
    except ConfigError as error:
        resolved.problems += error.problems
    except RewardError as error:
        resolved.problems.append(f"reward '{component.name}': {error}")
    return None


def _add_members(resolved: Resolved, config: RewardConfig, surroundings: Surroundings) -> set[str]:
    """Resolve the ensemble members that reward.models does not name. Return all members' names."""
    members: set[str] = set()
    ensembles = [spec for spec in resolved.specs if REWARD_KINDS[spec.kind].combines]
    for ensemble in ensembles:
        for name in dict.fromkeys(ensemble.options.of):
            members.add(name)
            specs = {spec.name: spec for spec in reversed(resolved.specs)}
            component = Component(
                name=name,
                model_name=name,
                weight=0.0,
                sources=ensemble.sources,
                part_of=ensemble.name,
                gates=ensemble.gates,
            )
            member = specs.get(name) or _guarded(
                resolved, component, config=config, surroundings=surroundings
            )
            if member is None:
                continue
            if REWARD_KINDS[member.kind].combines:
                resolved.problems.append(
                    f"reward.specs.{ensemble.name}.of names '{name}', an ensemble itself: name its"
                    " members instead"
                )
            elif name not in specs:
                resolved.specs.append(member)
    return members


def _check_gates(resolved: Resolved) -> None:
    """Add a problem for every gate that is no component, and for every reward that waits for
    itself."""
    gates_of: dict[str, tuple[str, ...]] = {
        spec.name: spec.gates
        for spec in resolved.specs
        if not spec.part_of and not REWARD_KINDS[spec.kind].combines
    }
    components = list(gates_of)
    for spec in resolved.specs:
        for gate in spec.gates:
            if gate not in gates_of and not resolved.problems:
                hint = did_you_mean(gate, components)
                resolved.problems.append(
                    f"reward '{spec.name}' has the gate '{gate}', which is no component{hint}"
                )
        where = f"reward.specs.{spec.name}.counts_at"
        for name in spec.counts_at:
            hint = did_you_mean(name, components)
            if name == spec.name:
                resolved.problems.append(f"{where}: '{name}' is the reward itself{hint}")
            elif name not in components:
                resolved.problems.append(f"{where}: '{name}' is no component{hint}")
        if _waits_for_itself(spec.name, gates_of):
            resolved.problems.append(
                f"reward '{spec.name}' waits for itself through its gates"
                f" ({', '.join(spec.gates)}): leave one out"
            )


def _waits_for_itself(name: str, gates: Mapping[str, Sequence[str]]) -> bool:
    visited: set[str] = set()
    waiting = list(gates.get(name, ()))
    while waiting:
        gate = waiting.pop()
        if gate == name:
            return True
        if gate not in visited:
            visited.add(gate)
            waiting += gates.get(gate, ())
    return False


def find_dropin(name: str, surroundings: Surroundings) -> Path | None:
    """Return the drop-in file for a name, or None. A shipped file comes last.

    Raises ConfigError where two of the user's folders both have the file.
    """
    if not name.replace("_", "").replace("-", "").isalnum():
        return None
    files = [folder / f"{name}.py" for folder in surroundings.functions_dirs]
    matches = [file for file in files if file.is_file()]
    users = [path for path in matches if path.parent != surroundings.functions_dirs[-1]]
    if len(users) > 1:
        raise ConfigError(
            f"reward '{name}' is ambiguous: {', '.join(map(str, users))}; rename one of the files"
        )
    return matches[0] if matches else None


def _resolve(
    component: Component, *, model_index: int, config: RewardConfig, surroundings: Surroundings
) -> RewardSpec:
    name = component.name
    where = f"reward.specs.{name}"
    section = config.specs.get(name)
    if section is not None and not isinstance(section, dict):
        raise ConfigError(
            f"{where}={section!r}: give entries such as {where}.path=<checkpoint>; known:"
            f" {', '.join(SHARED_KEYS)}"
        )
    check_names(section or {}, where)
    preset = ""
    if section and section.get("preset"):
        preset = str(section["preset"])
        trusted = surroundings.trust_remote_code
        dropin, entries = preset_entries(name, section, trust_remote_code=trusted)
    else:
        dropin = _dropin_of(name, section or {}, surroundings)
        entries = section
        if dropin is not None:
            if section is None and ":" not in name and (Path(name) / "config.json").is_file():
                raise ConfigError(
                    f"reward '{name}' is ambiguous: {dropin.path} and the checkpoint folder"
                    f" {name}; write ./{name} for the checkpoint"
                )
            entries = with_defaults(dropin.spec, section or {})
        elif entries is None and name.startswith(ENV):
            entries = {"kind": "environment"}
        elif entries is None:
            entries = _checkpoint_entries(name, config, surroundings)
    spec = build_spec(
        component,
        entries,
        dropin,
        model_index=model_index,
        config=config,
        surroundings=surroundings,
    )
    return dataclasses.replace(spec, preset=preset)


def _dropin_of(name: str, section: dict[str, Any], surroundings: Surroundings) -> DropIn | None:
    function = section.get("function")
    arguments = ""
    entry = section.get("arguments")
    if entry:
        where = f"reward.specs.{name}.arguments"
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{where}={entry!r}: give entries, e.g. {where}.threshold=0.5")
        # JSON, so that they can go to another process.
        arguments = json.dumps(dict(entry), sort_keys=True, default=str)
    if function is None:
        if names_function(name):
            raise ConfigError(
                f"reward.models: '{name}' is a file, and needs a name of its own here:"
                f" reward.models=[mine] with reward.specs.mine.function={name}"
            )
        if ":" in name and "/" not in name:
            return load_function(name, name, arguments=arguments)
        path = find_dropin(name, surroundings)
        return load_dropin(path, name, arguments=arguments) if path else None
    if callable(function):
        return function_dropin(source_of(function, arguments), name)
    target, _, attribute = str(function).partition(":")
    if target.endswith(".py"):
        path = Path(target).expanduser()
        source = FunctionSource(str(path), attribute or "compute_score", arguments=arguments)
        return _function_file(source, name)
    if attribute:
        return load_function(str(function), str(function), arguments=arguments)
    path = find_dropin(target, surroundings)
    if path is None:
        raise ConfigError(
            f"reward.specs.{name}.function={function}: no {target}.py in"
            f" {', '.join(map(str, surroundings.functions_dirs))}"
        )
    return load_dropin(path, name, arguments=arguments)


def _function_file(named: FunctionSource, name: str) -> DropIn:
    path = Path(named.target)
    if not path.is_file():
        raise ConfigError(
            f"reward '{name}': there is no file {path}; give the path of a drop-in file"
        )
    if named.attribute == "compute_score":
        return load_dropin(path, name, arguments=named.arguments)
    return function_dropin(named, name)


def _checkpoint_entries(
    name: str, config: RewardConfig, surroundings: Surroundings
) -> dict[str, Any]:
    """Return the entries of a name that is neither a spec nor a drop-in: it must be a
    checkpoint."""
    try:
        local_checkpoint(name, "reward.models")
    except ConfigError as error:
        if "/" in name or name.startswith((".", "~")):
            raise
        names = set(config.specs)
        for folder in surroundings.functions_dirs:
            names |= {path.stem for path in folder.glob("[!_]*.py")}
        raise ConfigError(
            f"reward.models: nothing named '{name}'{did_you_mean(name, sorted(names))}"
        ) from error
    return {"kind": checkpoint_kind(name), "path": name}
