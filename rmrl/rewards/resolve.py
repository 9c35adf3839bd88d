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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig, RewardEngineConfig
from rmrl.errors import ConfigError, RewardError
from rmrl.models.checkpoint_inspect import check_scalar_head, checkpoint_kind, local_checkpoint
from rmrl.registry import did_you_mean
from rmrl.rewards.dropin import DropIn, FunctionSource, load_dropin, load_function, rule_arguments
from rmrl.rewards.engines.base import EngineSpec
from rmrl.rewards.entries import check_choices, known_entries, sampling_of, seconds
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.spec import OnMissing, RewardSpec

SPEC_KEYS = ("kind", "path", "function", "sampling", "engine", "on_missing", "timeout_s")
_RUNNERS = {"generative": "generate", "bradley_terry": "pooling"}
_ENGINE_KEYS = tuple(f.name for f in dataclasses.fields(RewardEngineConfig))
_OURS = ("residency", "put_away", "load_timeout_s", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a spec needs to know besides the configuration."""

    device: str
    threads: int
    functions_dirs: Sequence[Path]
    trust_remote_code: bool = False


@dataclass(slots=True)
class Resolved:
    """The specs that could be made and the problems of the others."""

    specs: list[RewardSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def functions_dirs(configured: Any, *, working_dir: Path, shipped_dir: Path) -> list[Path]:
    """Folders of drop-ins, first match first. Raises ConfigError for a configured folder that is not there."""
    if configured is None:
        here = working_dir / "reward_functions"
        return [here, shipped_dir] if here.is_dir() and here.resolve() != shipped_dir.resolve() else [shipped_dir]
    folders = [Path(str(entry)).expanduser() for entry in (configured if isinstance(configured, list | tuple) else [configured])]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise ConfigError([f"reward.functions_dir: there is no folder {folder}" for folder in missing])
    once = {folder.resolve(): folder for folder in folders if folder.resolve() != shipped_dir.resolve()}
    return [*once.values(), shipped_dir]


def resolve_rewards(config: RewardConfig, around: Surroundings) -> Resolved:
    """One spec per name, in order; a name with a problem is left out and told."""
    resolved = Resolved()
    weights = config.weights if config.weights is not None and len(config.weights) == len(config.models) else [1.0] * len(config.models)
    ops = (
        config.combine_ops
        if config.combine_ops is not None and len(config.combine_ops) == len(config.models)
        else ["add"] * len(config.models)
    )
    models = 0
    for name, weight, op in zip(config.models, weights, ops, strict=True):
        try:
            spec = _resolve(name, config, around)
        except ConfigError as error:
            resolved.problems += error.problems
            continue
        except RewardError as error:
            resolved.problems.append(f"reward '{name}': {error}")
            continue
        index = models if spec.needs_model else -1
        models += spec.needs_model
        resolved.specs.append(
            dataclasses.replace(spec, name=_short(name, config.models, spec), weight=float(weight), combine_op=op, model_index=index)
        )
    unused = sorted(set(config.specs) - set(config.models))
    resolved.problems += [
        f"reward.specs.{name}: not in reward.models ({', '.join(config.models)}); add it there or leave it out" for name in unused
    ]
    return resolved


def _short(name: str, names: Sequence[str], spec: RewardSpec) -> str:
    """A checkpoint named by its path goes by the path's last part in metrics and columns, unless that is another's name as well."""
    if "/" not in name or not spec.needs_model:
        return name
    last = [Path(other).name for other in names]
    return Path(name).name if last.count(Path(name).name) == 1 else name


def find_dropin(name: str, around: Surroundings) -> Path | None:
    """The drop-in file of a name. Two folders of the user's that both hold it are an ambiguity; the shipped one comes last."""
    if not name.replace("_", "").replace("-", "").isalnum():
        return None
    found = [folder / f"{name}.py" for folder in around.functions_dirs if (folder / f"{name}.py").is_file()]
    own = [path for path in found if path.parent != around.functions_dirs[-1]]
    if len(own) > 1:
        raise ConfigError(f"reward '{name}' is ambiguous: {', '.join(map(str, own))}; rename one of the files")
    return found[0] if found else None


def _resolve(name: str, config: RewardConfig, around: Surroundings) -> RewardSpec:
    where = f"reward.specs.{name}"
    given = config.specs.get(name)
    if given is not None and not isinstance(given, dict):
        raise ConfigError(f"{where}={given!r}: give entries such as {where}.path=<checkpoint>; known: {', '.join(SPEC_KEYS)}")
    dropin = _dropin_of(name, given or {}, around)
    if given is None and dropin is not None and ":" not in name and (Path(name) / "config.json").is_file():
        raise ConfigError(
            f"reward '{name}' is ambiguous: {dropin.path} and the checkpoint folder {name}; write ./{name} for the checkpoint"
        )
    entries = _merged(dropin.spec if dropin else {}, given or {})
    unknown = [key for key in entries if key not in SPEC_KEYS]
    if unknown:
        raise ConfigError([f"{where}.{key}: no such entry{did_you_mean(key, SPEC_KEYS)}" for key in unknown])
    if dropin is None and given is None:
        entries = _checkpoint_entries(name, config, around)
    return _build(name, entries, dropin, config=config, around=around)


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over a drop-in's SPEC, entry by entry inside sampling and engine: one of them typed keeps the others."""
    merged = {**defaults, **given}
    for key in ("sampling", "engine"):
        if isinstance(defaults.get(key), Mapping) and isinstance(given.get(key), Mapping):
            merged[key] = {**defaults[key], **given[key]}
    return merged


def _dropin_of(name: str, given: dict[str, Any], around: Surroundings) -> DropIn | None:
    function = given.get("function")
    if function is None:
        if name.partition(":")[0].endswith(".py"):
            short = Path(name.partition(":")[0]).stem
            raise ConfigError(
                f"reward.models: '{name}' is a file: name it reward.models=[{short}] with reward.specs.{short}.function={name}"
            )
        if ":" in name and "/" not in name:
            return _importable(name)
        path = find_dropin(name, around)
        return load_dropin(path, name, known_keys=SPEC_KEYS) if path else None
    target, _, attribute = str(function).partition(":")
    if target.endswith(".py"):
        return _function_file(Path(target).expanduser(), name, attribute)
    if attribute:
        return _importable(str(function))
    path = find_dropin(target, around)
    if path is None:
        raise ConfigError(f"reward.specs.{name}.function={function}: no {target}.py in {', '.join(map(str, around.functions_dirs))}")
    return load_dropin(path, name, known_keys=SPEC_KEYS)


def _importable(target: str) -> DropIn:
    return load_function(target, target)


def _function_file(path: Path, name: str, attribute: str) -> DropIn:
    if not path.is_file():
        raise ConfigError(f"reward '{name}': there is no file {path}; give the path of a drop-in file")
    if attribute in ("", "compute_score"):
        return load_dropin(path, name, known_keys=SPEC_KEYS)
    source = FunctionSource(str(path), attribute).frozen()
    function = source.load()
    rule_arguments(function, str(source))
    code_hash = hashlib.sha256((source.code or "").encode()).hexdigest()
    return DropIn(name=name, path=path, kind="rule", code_hash=code_hash, compute_score=function, source=source)


def _checkpoint_entries(name: str, config: RewardConfig, around: Surroundings) -> dict[str, Any]:
    """Entries of a name that is neither a spec nor a drop-in: it must be a checkpoint."""
    try:
        local_checkpoint(name)
    except ConfigError as error:
        if "/" in name or name.startswith((".", "~")):
            raise
        known = {*config.specs, *(p.stem for d in around.functions_dirs for p in d.glob("*.py") if not p.stem.startswith("_"))}
        raise ConfigError(f"reward.models: nothing named '{name}'{did_you_mean(name, sorted(known))}") from error
    return {"kind": checkpoint_kind(name), "path": name}


def _build(name: str, entries: dict[str, Any], dropin: DropIn | None, *, config: RewardConfig, around: Surroundings) -> RewardSpec:
    where = f"reward.specs.{name}"
    kind = str(entries.get("kind") or _default_kind(entries, dropin))
    if kind not in REWARD_KINDS or ":" in kind:
        raise ConfigError(f"{where}.kind={kind}: not a kind{did_you_mean(kind, list(REWARD_KINDS))}")
    said = entries.get("on_missing")
    on_missing = OnMissing.parse(
        config.on_missing if said is None else said, where="reward.on_missing" if said is None else f"{where}.on_missing"
    )
    shared: dict[str, Any] = {"name": name, "kind": kind, "weight": 1.0, "on_missing": on_missing}
    if kind == "rule":
        return _rule(shared, entries, dropin, where=where, config=config)
    if dropin is not None and dropin.kind == "rule":
        raise ConfigError(
            f"{where}.kind={kind}: {dropin.path} is a rule (compute_score); a model reward needs rm_preprocess and rm_postprocess"
        )
    if kind == "generative" and dropin is None:
        raise ConfigError(_no_dropin(name, where))
    if not entries.get("path"):
        raise ConfigError(f"reward '{name}' ({kind}) has no checkpoint: give {where}.path=<folder or hub id>")
    path = str(local_checkpoint(str(entries["path"])))
    if kind == "bradley_terry":
        check_scalar_head(path)
    return _model(shared | {"dropin": dropin}, entries, path, where=where, config=config, around=around)


def _no_dropin(name: str, where: str) -> str:
    seen = f"reward '{name}' is generative and has no drop-in that says how to ask and how to read the answer: "
    if "/" in name:
        return seen + f"give it a name, e.g. reward.models=[judge] reward.specs.judge.path={name}, and write reward_functions/judge.py"
    return seen + f"write reward_functions/{name}.py with rm_preprocess and rm_postprocess, or name one with {where}.function=<name>"


def _default_kind(entries: dict[str, Any], dropin: DropIn | None) -> str:
    if dropin is not None and dropin.kind == "rule":
        return "rule"
    return checkpoint_kind(str(entries["path"])) if entries.get("path") else "generative"


def _rule(shared: dict[str, Any], entries: dict[str, Any], dropin: DropIn | None, *, where: str, config: RewardConfig) -> RewardSpec:
    useless = [key for key in ("path", "sampling", "engine") if entries.get(key)]
    if useless:
        raise ConfigError([f"{where}.{key}: a rule runs no model, leave it out" for key in useless])
    if dropin is None or dropin.source is None:
        raise ConfigError(
            f"{where}: a rule needs a function: {where}.function=<file.py>:<function> or a drop-in of that name with compute_score"
        )
    return RewardSpec(
        **shared,
        dropin=dropin,
        function=dropin.source,
        timeout_s=seconds(entries.get("timeout_s"), config.rule_timeout_s, f"{where}.timeout_s"),
    )


def _model(
    shared: dict[str, Any], entries: dict[str, Any], path: str, *, where: str, config: RewardConfig, around: Surroundings
) -> RewardSpec:
    if shared["kind"] != "generative" and entries.get("sampling"):
        raise ConfigError(f"{where}.sampling: a scalar reward model samples nothing, leave it out")
    given = known_entries(entries.get("engine") or {}, RewardEngineConfig, f"{where}.engine")
    engine = {**{key: getattr(config.engine, key) for key in _ENGINE_KEYS}, **given}
    check_choices(engine, where=f"{where}.engine")
    spec = EngineSpec(
        path=path,
        runner=_RUNNERS[shared["kind"]],  # type: ignore[arg-type]
        device=around.device,  # type: ignore[arg-type]
        threads=int(engine["threads"] or around.threads),
        trust_remote_code=around.trust_remote_code,
        **{key: value for key, value in engine.items() if key not in _OURS},
    )
    return RewardSpec(
        **shared,
        engine=spec,
        sampling=sampling_of(entries.get("sampling") or {}, where) if shared["kind"] == "generative" else None,
        residency=engine["residency"],
        put_away=engine["put_away"],
        load_timeout_s=seconds(engine["load_timeout_s"], config.engine.load_timeout_s, f"{where}.engine.load_timeout_s"),
        timeout_s=seconds(entries.get("timeout_s"), config.timeout_s, f"{where}.timeout_s"),
    )
