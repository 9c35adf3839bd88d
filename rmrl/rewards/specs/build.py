"""From one reward's entries to its `RewardSpec`: every entry is checked here, by its kind's own
table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig, RewardEngineConfig
from rmrl.errors import ConfigError, RewardFunctionError
from rmrl.inference.precision import check_batch_invariant, resolve_dtype
from rmrl.inference.scoring_base import EngineSpec, Runner
from rmrl.models.checkpoint_inspect import (
    check_scalar_head,
    check_writes_text,
    checkpoint_kind,
    local_checkpoint,
)
from rmrl.registry import did_you_mean
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.remote import RemoteReward, http_spec
from rmrl.rewards.kinds.truncation import WAYS
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.rules.dropin import DropIn, without_postprocess
from rmrl.rewards.rules.forms import InLists, rule_form
from rmrl.rewards.specs.entries import check_choices, known_entries, sampling_of, seconds
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.rewards.transforms import chain_of, parse_transforms
from rmrl.types import Sampling

SHARED_KEYS = (
    "kind", "path", "function", "sampling", "engine", "server", "on_missing", "overlong", "timeout_s", "transform", "gate", "counts_at",
    "rm_prompt",
)  # fmt: skip
"""Entries of every kind; each kind's `Options` has further ones."""
_ENGINE_KEYS = tuple(f.name for f in dataclasses.fields(RewardEngineConfig))
_OF_RESIDENCY = ("residency", "put_away", "load_timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a spec needs to know besides the configuration."""

    device: str
    threads: int
    functions_dirs: Sequence[Path]
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One reward as asked for; `where` names its section in messages."""

    name: str
    kind: str
    entries: Mapping[str, Any]
    dropin: DropIn | None
    config: RewardConfig
    around: Surroundings

    @property
    def where(self) -> str:
        return f"reward.specs.{self.name}"


def build_spec(
    name: str,
    entries: Mapping[str, Any],
    dropin: DropIn | None,
    *,
    config: RewardConfig,
    around: Surroundings,
) -> RewardSpec:
    """Raises ConfigError with the problems found, RewardError for a checkpoint without the head its
    kind needs."""
    kind = str(entries.get("kind") or _default_kind(entries, dropin))
    where = f"reward.specs.{name}"
    _check_kind(kind, where)
    request = _Request(
        name=name, kind=kind, entries=entries, dropin=dropin, config=config, around=around
    )
    if kind == "rule":
        return _rule(request)
    if dropin is not None and dropin.kind == "rule":
        raise ConfigError(
            f"{where}.kind={kind}: {dropin.path} is a rule (compute_score); a model reward needs"
            " rm_preprocess and rm_postprocess"
        )
    if kind == "remote":
        return _remote(request)
    return _model(request, remote=_server(request))


def _check_kind(kind: str, where: str) -> None:
    if kind not in REWARD_KINDS:
        raise ConfigError(
            f"{where}.kind={kind}: not a kind{did_you_mean(kind, list(REWARD_KINDS))}"
        )
    try:
        _ = REWARD_KINDS[kind]
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{where}.kind={kind}: {error}; give package.module:Class of something that can be"
            " imported"
        ) from error


def _default_kind(entries: Mapping[str, Any], dropin: DropIn | None) -> str:
    if dropin is not None and dropin.kind == "rule":
        return "rule"
    return checkpoint_kind(str(entries["path"])) if entries.get("path") else "generative"


def _shared(request: _Request, *, timeout_s: float) -> dict[str, Any]:
    entries, config, where = request.entries, request.config, request.where
    said = entries.get("on_missing")
    on_missing = OnMissing.parse(
        config.on_missing if said is None else said,
        where="reward.on_missing" if said is None else f"{where}.on_missing",
    )
    return {
        "name": request.name,
        "kind": request.kind,
        "weight": 1.0,
        "on_missing": on_missing,
        "overlong": _overlong(request),
        "dropin": request.dropin,
        "timeout_s": seconds(entries.get("timeout_s"), timeout_s, f"{where}.timeout_s"),
        "transforms": _transforms(request),
        "gates": _names(entries.get("gate"), f"{where}.gate"),
        "rm_prompt": None if entries.get("rm_prompt") is None else str(entries["rm_prompt"]),
        "counts_at": _scores(entries.get("counts_at"), f"{where}.counts_at"),
    }


def _overlong(request: _Request) -> str:
    """What is left out of inputs that do not fit. Raises ConfigError for kinds that know no
    context."""
    how = request.entries.get("overlong", "missing")
    where = f"{request.where}.overlong={how}"
    if how not in WAYS:
        raise ConfigError(f"{where}: not a choice{did_you_mean(str(how), WAYS)}")
    if how == "missing":
        return how
    if not getattr(REWARD_KINDS[request.kind], "truncates", False):
        raise ConfigError(
            f"{where}: a {request.kind} reward reads no text into a model of ours, so there is"
            " nothing to cut; leave it out"
        )
    if request.entries.get("server") or request.entries.get("wire"):
        raise ConfigError(
            f"{where}: how many tokens the server's model takes is not known here; leave it out"
        )
    return how


def _transforms(request: _Request) -> tuple[Mapping[str, Any], ...]:
    given, elsewhere = request.entries.get("transform"), request.config.transforms.get(request.name)
    if given is not None and elsewhere is not None:
        raise ConfigError(
            f"{request.where}.transform and reward.transforms.{request.name} are both given: use"
            " one of them"
        )
    where = f"reward.transforms.{request.name}" if given is None else f"{request.where}.transform"
    raw = elsewhere if given is None else given
    if raw is None:
        return ()
    parsed = parse_transforms(raw, where)
    chain_of(parsed, where)
    return tuple(parsed)


def _names(given: Any, where: str) -> tuple[str, ...]:
    if given is None:
        return ()
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}={given!r}: give the name of a component, or a list of names")
    return tuple(names)


def _scores(given: Any, where: str) -> dict[str, float]:
    if given is None:
        return {}
    if (
        not isinstance(given, Mapping)
        or not given
        or not all(_is_finite(score) for score in given.values())
    ):
        raise ConfigError(
            f"{where}={given!r}: give components and the score each must have, e.g."
            f" {where}={{gsm8k: 1}}"
        )
    return {str(name): float(score) for name, score in given.items()}


def _is_finite(score: Any) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)


def _options(request: _Request, kind: Any) -> Any:
    """The kind's own entries, checked for names, types and sense."""
    fields = [f.name for f in dataclasses.fields(kind.Options)] if hasattr(kind, "Options") else []
    unknown = [key for key in request.entries if key not in (*SHARED_KEYS, *fields)]
    if unknown:
        said = (
            f" (SPEC of {request.dropin.path})"
            if request.dropin is not None and set(unknown) <= set(request.dropin.spec)
            else ""
        )
        raise ConfigError(
            [
                f"{request.where}.{key}: no such"
                f" entry{said}{did_you_mean(key, [*SHARED_KEYS, *fields])}"
                for key in unknown
            ]
        )
    if not fields:
        return None
    own = {key: value for key, value in request.entries.items() if key in fields}
    options = kind.Options(**known_entries(own, kind.Options, request.where))
    problems = kind.check_options(options, request.where) if hasattr(kind, "check_options") else []
    if problems:
        raise ConfigError(problems)
    return options


def _rule(request: _Request) -> RewardSpec:
    where, entries, dropin = request.where, request.entries, request.dropin
    useless = [key for key in ("path", "sampling", "engine", "server") if entries.get(key)]
    if useless:
        raise ConfigError([f"{where}.{key}: a rule runs no model, leave it out" for key in useless])
    options = _options(request, REWARD_KINDS["rule"])
    if dropin is None or dropin.source is None:
        raise ConfigError(
            f"{where}: a rule needs a function: {where}.function=<file.py>:<function> or a drop-in"
            " of that name with compute_score"
        )
    function = dropin.compute_score
    in_lists = function is not None and isinstance(rule_form(function, where), InLists)
    shared = _shared(request, timeout_s=request.config.rule_timeout_s)
    return RewardSpec(**shared, function=dropin.source, options=options, whole_groups=in_lists)


def _remote(request: _Request) -> RewardSpec:
    """A reward server; a judge on an OpenAI-compatible server is a generative reward that asks it
    instead of an engine."""
    fields = [f.name for f in dataclasses.fields(RemoteReward.Options)]
    own = {key: value for key, value in request.entries.items() if key in fields}
    if own.get("wire") == "openai":
        rest = {
            key: value
            for key, value in request.entries.items()
            if key not in fields and key != "kind"
        }
        judge = dataclasses.replace(request, kind="generative", entries=rest)
        return _model(judge, remote=_http(own, request.where))
    options = _options(request, RemoteReward)
    useless = [key for key in ("path", "sampling", "engine", "server") if request.entries.get(key)]
    if useless:
        raise ConfigError(
            [f"{request.where}.{key}: the server runs the model, leave it out" for key in useless]
        )
    shared = _shared(request, timeout_s=request.config.timeout_s)
    return RewardSpec(**shared, options=options, remote=http_spec(options, request.where))


def _http(given: Mapping[str, Any], where: str) -> HTTPSpec:
    options = RemoteReward.Options(**known_entries(dict(given), RemoteReward.Options, where))
    problems = RemoteReward.check_options(options, where)
    if problems:
        raise ConfigError(problems)
    return http_spec(options, where)


def _server(request: _Request) -> HTTPSpec | None:
    """`server: {url, model, ...}`: an OpenAI-compatible server in the place of the reward's own
    engine."""
    given = request.entries.get("server")
    if not given:
        return None
    where = f"{request.where}.server"
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{where}={given!r}: give entries, e.g. {where}.url=http://127.0.0.1:8000/v1"
            f" {where}.model=<name>"
        )
    if REWARD_KINDS[request.kind].roles.get("main") != "generate":
        raise ConfigError(
            f"{where}: only judges that write text can be asked over HTTP; a {request.kind} reward"
            " runs in an engine"
        )
    if request.entries.get("path") or request.entries.get("engine"):
        raise ConfigError(
            f"{where} and {request.where}.path or .engine are both given: a judge is on a server or"
            " in an engine"
        )
    return _http({"wire": "openai", **given}, where)


def _model(request: _Request, *, remote: HTTPSpec | None) -> RewardSpec:
    kind: Any = REWARD_KINDS[request.kind]
    options = _options(request, kind)
    sampling = _sampling(request, kind)
    _check_dropin(request, kind, options, sampling)
    roles: Mapping[str, Runner] = kind.roles
    settings = (
        _engine_settings(request, request.entries.get("engine") or {}, f"{request.where}.engine")
        if roles
        else {}
    )
    ours: dict[str, Runner] = {
        role: runner for role, runner in roles.items() if role != "main" or remote is None
    }
    engines = {
        role: _engine(request, role, runner, options, settings) for role, runner in ours.items()
    }
    own: dict[str, Any] = {"options": options, "sampling": sampling, "remote": remote}
    shared = _shared(request, timeout_s=request.config.timeout_s) | own
    if not roles:
        return RewardSpec(**shared)
    load = seconds(
        settings["load_timeout_s"],
        request.config.engine.load_timeout_s,
        f"{request.where}.engine.load_timeout_s",
    )
    return RewardSpec(
        **shared,
        engines=engines,
        residency=settings["residency"],
        put_away=settings["put_away"],
        load_timeout_s=load,
    )


def _sampling(request: _Request, kind: Any) -> Sampling | None:
    given = request.entries.get("sampling")
    if kind.samples:
        return sampling_of(given or {}, request.where)
    if given:
        raise ConfigError(
            f"{request.where}.sampling: a {request.kind} reward samples nothing, leave it out"
        )
    return None


def _check_dropin(request: _Request, kind: Any, options: Any, sampling: Sampling | None) -> None:
    """Some kinds can ask by themselves, some only where their options say how; a kind may refuse a
    drop-in altogether.

    Raises RewardFunctionError for a drop-in that renders but does not read, where neither token
    probabilities nor a parser do it.
    """
    dropin = request.dropin
    reads_otherwise = any(getattr(options, name, None) for name in ("score_tokens", "parser"))
    if (
        dropin is not None
        and dropin.preprocess is not None
        and dropin.postprocess is None
        and not reads_otherwise
    ):
        raise RewardFunctionError(without_postprocess(dropin))
    problem = (
        kind.dropin_problem(request.dropin, options, sampling)
        if hasattr(kind, "dropin_problem")
        else ""
    )
    if problem and "/" in request.name:
        raise ConfigError(
            f"reward '{request.name}' is {request.kind}: give it a name, e.g. reward.models=[judge]"
            f" reward.specs.judge.path={request.name}; as it stands it"
            f" {problem.replace('<name>', 'judge')}"
        )
    if problem:
        raise ConfigError(
            f"reward '{request.name}' is {request.kind} and"
            f" {problem.replace('<name>', request.name)}"
        )


def _engine_settings(request: _Request, given: Any, where: str) -> dict[str, Any]:
    checked = known_entries(given, RewardEngineConfig, where)
    settings = {**{key: getattr(request.config.engine, key) for key in _ENGINE_KEYS}, **checked}
    check_choices(settings, where=where)
    return settings


def _engine(
    request: _Request, role: str, runner: Runner, options: Any, settings: Mapping[str, Any]
) -> EngineSpec:
    where = request.where if role == "main" else f"{request.where}.{role}"
    entries: Mapping[str, Any] = request.entries if role == "main" else getattr(options, role)
    if role != "main":
        unknown = set(entries) - {"path", "engine"}
        if unknown:
            raise ConfigError(
                [
                    f"{where}.{key}: no such entry{did_you_mean(key, ['path', 'engine'])}"
                    for key in sorted(unknown)
                ]
            )
        settings = _engine_settings(request, entries.get("engine") or {}, f"{where}.engine")
    if not entries.get("path"):
        raise ConfigError(
            f"reward '{request.name}' ({request.kind}) has no checkpoint: give {where}.path=<folder"
            " or hub id>"
        )
    path = str(local_checkpoint(str(entries["path"])))
    if runner == "pooling":
        check_scalar_head(path)
    if runner == "generate":
        check_writes_text(path)
    name = (
        "sentence_transformers"
        if runner == "embed" and settings["name"] == "vllm"
        else settings["name"]
    )
    device = request.around.device
    if settings["batch_invariant"]:
        check_batch_invariant(name, device=device, where=f"{where}.engine.batch_invariant")
    return EngineSpec(
        path=path,
        runner=runner,
        device=device,  # type: ignore[arg-type]
        dtype=resolve_dtype(
            str(settings["dtype"]),
            path=path,
            runner=runner,
            device=device,
            where=f"{where}.engine.dtype",
        ),
        threads=int(settings["threads"] or request.around.threads),
        trust_remote_code=request.around.trust_remote_code,
        name=name,
        **{
            key: value
            for key, value in settings.items()
            if key not in (*_OF_RESIDENCY, "threads", "name", "dtype")
        },
    )
