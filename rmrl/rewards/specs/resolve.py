"""From names in `reward.models` to `RewardSpec`s. A name is, in this order,

1. an entry of `reward.specs` (which also overrides the SPEC of a drop-in of the same name),
2. a drop-in file `<functions_dir>/<name>.py`,
3. `package.module:function`, a rule,
4. a checkpoint folder or hub id, whose kind is read from its config.

All problems are collected; nothing is loaded but the drop-ins' code and the checkpoints' headers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError, RewardError
from rmrl.models.checkpoint_inspect import checkpoint_kind, local_checkpoint
from rmrl.registry import did_you_mean
from rmrl.rewards.rules.dropin import (
    DropIn,
    FunctionSource,
    load_dropin,
    load_function,
    rule_arguments,
)
from rmrl.rewards.specs.build import SHARED_KEYS, Surroundings, build_spec
from rmrl.rewards.specs.names import named_rewards
from rmrl.rewards.specs.spec import RewardSpec


@dataclass(slots=True)
class Resolved:
    """The specs that could be made and the problems of the others."""

    specs: list[RewardSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def functions_dirs(configured: Any, *, working_dir: Path, shipped_dir: Path) -> list[Path]:
    """Folders of drop-ins, first match first. Raises ConfigError for a configured folder that is
    not there."""
    if configured is None:
        here = working_dir / "reward_functions"
        return (
            [here, shipped_dir]
            if here.is_dir() and here.resolve() != shipped_dir.resolve()
            else [shipped_dir]
        )
    folders = [
        Path(str(entry)).expanduser()
        for entry in (configured if isinstance(configured, list | tuple) else [configured])
    ]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise ConfigError(
            [f"reward.functions_dir: there is no folder {folder}" for folder in missing]
        )
    once = {
        folder.resolve(): folder for folder in folders if folder.resolve() != shipped_dir.resolve()
    }
    return [*once.values(), shipped_dir]


def resolve_rewards(config: RewardConfig, around: Surroundings) -> Resolved:
    """One spec per name, in order, then the parts of ensembles; a name with a problem is left out
    and told."""
    resolved = Resolved()
    try:
        named = named_rewards(config)
    except ConfigError as error:
        return Resolved(problems=error.problems)
    names = [each.name for each in named]
    for each in named:
        spec = _guarded(resolved, each.name, config, around)
        if spec is None:
            continue
        index = sum(s.needs_model for s in resolved.specs) if spec.needs_model else -1
        short = _short(each.name, names, spec)
        known = {
            "weight": each.weight,
            "combine_op": each.combine_op,
            "model_index": index,
            "sources": each.sources,
        }
        resolved.specs.append(dataclasses.replace(spec, name=short, **known))
    parts = _add_parts(resolved, config, around)
    _add_gates(resolved, config)
    unused = sorted(set(config.specs) - set(names) - parts)
    known = ", ".join(names)
    resolved.problems += [
        f"reward.specs.{name}: not in reward.models ({known}); add it there or leave it out"
        for name in unused
    ]
    return resolved


def _guarded(
    resolved: Resolved, name: str, config: RewardConfig, around: Surroundings
) -> RewardSpec | None:
    try:
        return _resolve(name, config, around)
    except ConfigError as error:
        resolved.problems += error.problems
    except RewardError as error:
        resolved.problems.append(f"reward '{name}': {error}")
    return None


def _add_parts(resolved: Resolved, config: RewardConfig, around: Surroundings) -> set[str]:
    """Resolve what ensembles name and reward.models does not. Returns the names of all members."""
    members: set[str] = set()
    for ensemble in [spec for spec in resolved.specs if spec.kind == "ensemble"]:
        for name in dict.fromkeys(ensemble.options.of):
            members.add(name)
            known = next((spec for spec in resolved.specs if spec.name == name), None)
            part = None if known is not None else _guarded(resolved, name, config, around)
            if (known or part) is not None and (known or part).kind == "ensemble":  # type: ignore[union-attr]
                resolved.problems.append(
                    f"reward.specs.{ensemble.name}.of names '{name}', an ensemble itself: name its"
                    " members instead"
                )
            elif part is not None:
                index = sum(s.needs_model for s in resolved.specs) if part.needs_model else -1
                more = {
                    "part_of": ensemble.name,
                    "weight": 0.0,
                    "gates": (*part.gates, *ensemble.gates),
                    "sources": ensemble.sources,
                }
                resolved.specs.append(dataclasses.replace(part, model_index=index, **more))
    return members


def _add_gates(resolved: Resolved, config: RewardConfig) -> None:
    """reward.combine=gate closes every other component where reward.gates do not hold; and gates
    must be components."""
    if config.combine == "gate":
        resolved.specs = [
            (
                dataclasses.replace(spec, gates=tuple(dict.fromkeys((*spec.gates, *config.gates))))
                if spec.name not in config.gates
                else spec
            )
            for spec in resolved.specs
        ]
    gates = {
        spec.name: spec.gates
        for spec in resolved.specs
        if not spec.part_of and spec.kind != "ensemble"
    }
    for spec in resolved.specs:
        for gate in spec.gates:
            if gate not in gates and not resolved.problems:
                hint = did_you_mean(gate, list(gates))
                resolved.problems.append(
                    f"reward '{spec.name}' has the gate '{gate}', which is no component{hint}"
                )
        resolved.problems += _counts_at_problems(spec, list(gates))
        if _waits_for_itself(spec.name, gates):
            resolved.problems.append(
                f"reward '{spec.name}' waits for itself through its gates"
                f" ({', '.join(spec.gates)}): leave one out"
            )


def _counts_at_problems(spec: RewardSpec, known: list[str]) -> list[str]:
    """One sentence for every name of `counts_at` that is no other component."""
    where = f"reward.specs.{spec.name}.counts_at"
    return [
        f"{where}: '{name}' is"
        f" {'the reward itself' if name == spec.name else 'no component'}{did_you_mean(name, known)}"
        for name in spec.counts_at
        if name == spec.name or name not in known
    ]


def _waits_for_itself(name: str, gates: Mapping[str, Sequence[str]]) -> bool:
    seen: set[str] = set()
    waiting = list(gates.get(name, ()))
    while waiting:
        gate = waiting.pop()
        if gate == name:
            return True
        if gate not in seen:
            seen.add(gate)
            waiting += gates.get(gate, ())
    return False


def _short(name: str, names: Sequence[str], spec: RewardSpec) -> str:
    """A checkpoint named by its path goes by the path's last part in metrics and columns, unless
    that is another's name as well."""
    if "/" not in name or not spec.needs_model:
        return name
    last = [Path(other).name for other in names]
    return Path(name).name if last.count(Path(name).name) == 1 else name


def find_dropin(name: str, around: Surroundings) -> Path | None:
    """The drop-in file of a name. Two folders of the user's that both hold it are an ambiguity; the
    shipped one comes last."""
    if not name.replace("_", "").replace("-", "").isalnum():
        return None
    found = [
        folder / f"{name}.py"
        for folder in around.functions_dirs
        if (folder / f"{name}.py").is_file()
    ]
    own = [path for path in found if path.parent != around.functions_dirs[-1]]
    if len(own) > 1:
        raise ConfigError(
            f"reward '{name}' is ambiguous: {', '.join(map(str, own))}; rename one of the files"
        )
    return found[0] if found else None


def _resolve(name: str, config: RewardConfig, around: Surroundings) -> RewardSpec:
    where = f"reward.specs.{name}"
    given = config.specs.get(name)
    if given is not None and not isinstance(given, dict):
        raise ConfigError(
            f"{where}={given!r}: give entries such as {where}.path=<checkpoint>; known:"
            f" {', '.join(SHARED_KEYS)}"
        )
    dropin = _dropin_of(name, given or {}, around)
    if (
        given is None
        and dropin is not None
        and ":" not in name
        and (Path(name) / "config.json").is_file()
    ):
        raise ConfigError(
            f"reward '{name}' is ambiguous: {dropin.path} and the checkpoint folder {name}; write"
            f" ./{name} for the checkpoint"
        )
    entries = _merged(dropin.spec if dropin else {}, given or {})
    if dropin is None and given is None:
        entries = _checkpoint_entries(name, config, around)
    return build_spec(name, entries, dropin, config=config, around=around)


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over a drop-in's SPEC, entry by entry inside sampling and engine: one of them typed
    keeps the others."""
    merged = {**defaults, **given}
    for key in ("sampling", "engine"):
        if isinstance(defaults.get(key), Mapping) and isinstance(given.get(key), Mapping):
            merged[key] = {**defaults[key], **given[key]}
    return merged


def _dropin_of(name: str, given: dict[str, Any], around: Surroundings) -> DropIn | None:
    function = given.get("function")
    arguments = _arguments(given.get("arguments"), f"reward.specs.{name}.arguments")
    if function is None:
        if name.partition(":")[0].endswith(".py"):
            short = Path(name.partition(":")[0]).stem
            raise ConfigError(
                f"reward.models: '{name}' is a file: name it reward.models=[{short}] with"
                f" reward.specs.{short}.function={name}"
            )
        if ":" in name and "/" not in name:
            return load_function(name, name, arguments=arguments)
        path = find_dropin(name, around)
        return load_dropin(path, name, arguments=arguments) if path else None
    target, _, attribute = str(function).partition(":")
    if target.endswith(".py"):
        return _function_file(
            FunctionSource(target, attribute or "compute_score", arguments=arguments), name
        )
    if attribute:
        return load_function(str(function), str(function), arguments=arguments)
    path = find_dropin(target, around)
    if path is None:
        raise ConfigError(
            f"reward.specs.{name}.function={function}: no {target}.py in"
            f" {', '.join(map(str, around.functions_dirs))}"
        )
    return load_dropin(path, name, arguments=arguments)


def _arguments(given: Any, where: str) -> str:
    """A rule's own arguments as JSON: what another process can be told. ConfigError naming
    `where`."""
    if not given:
        return ""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}={given!r}: give entries, e.g. {where}.threshold=0.5")
    return json.dumps(dict(given), sort_keys=True, default=str)


def _function_file(named: FunctionSource, name: str) -> DropIn:
    path = Path(named.target).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"reward '{name}': there is no file {path}; give the path of a drop-in file"
        )
    if named.attribute == "compute_score":
        return load_dropin(path, name, arguments=named.arguments)
    source = dataclasses.replace(named, target=str(path)).frozen()
    function = source.load()
    rule_arguments(function, str(source))
    code_hash = hashlib.sha256((source.code or "").encode()).hexdigest()
    return DropIn(
        name=name,
        path=path,
        kind="rule",
        code_hash=code_hash,
        compute_score=function,
        source=source,
    )


def _checkpoint_entries(name: str, config: RewardConfig, around: Surroundings) -> dict[str, Any]:
    """Entries of a name that is neither a spec nor a drop-in: it must be a checkpoint."""
    try:
        local_checkpoint(name)
    except ConfigError as error:
        if "/" in name or name.startswith((".", "~")):
            raise
        known = {
            *config.specs,
            *(
                p.stem
                for d in around.functions_dirs
                for p in d.glob("*.py")
                if not p.stem.startswith("_")
            ),
        }
        raise ConfigError(
            f"reward.models: nothing named '{name}'{did_you_mean(name, sorted(known))}"
        ) from error
    return {"kind": checkpoint_kind(name), "path": name}
