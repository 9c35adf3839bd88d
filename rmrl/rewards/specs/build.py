"""Build the `RewardSpec` of one reward from its entries; every entry is checked here against the
options of its kind."""

from __future__ import annotations

import dataclasses
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
from rmrl.rewards.specs.entries import (
    check_choices,
    component_names,
    component_scores,
    known_entries,
    sampling_of,
    seconds,
)
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.rewards.transforms import chain_of, parse_transforms
from rmrl.types import Sampling

SHARED_KEYS = (
    "kind", "path", "function", "sampling", "engine", "server", "on_missing", "overlong",
    "timeout_s", "transform", "gate", "counts_at", "rm_prompt",
)  # fmt: skip
"""Entries of every kind; each kind's `Options` has further ones."""
_ENGINE_KEYS = tuple(f.name for f in dataclasses.fields(RewardEngineConfig))
_RESIDENCY_KEYS = ("residency", "put_away", "load_timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts about the machine and the checkout that a spec depends on besides the configuration."""

    device: str
    threads: int
    functions_dirs: Sequence[Path]
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The entries of one reward; `where` names its section in messages."""

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
    """Build the spec of one reward.

    Raises ConfigError with all problems, RewardError for a checkpoint without the head that its
    kind needs.
    """
    if entries.get("kind"):
        kind = str(entries["kind"])
    elif dropin is not None and dropin.kind == "rule":
        kind = "rule"
    elif entries.get("path"):
        kind = checkpoint_kind(str(entries["path"]))
    else:
        kind = "generative"
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


def _shared(request: _Request, *, timeout_s: float) -> dict[str, Any]:
    entries = request.entries
    config = request.config
    where = request.where
    if entries.get("on_missing") is None:
        on_missing = OnMissing.parse(config.on_missing, where="reward.on_missing")
    else:
        on_missing = OnMissing.parse(entries["on_missing"], where=f"{where}.on_missing")
    rm_prompt = entries.get("rm_prompt")
    return {
        "name": request.name,
        "kind": request.kind,
        "weight": 1.0,
        "on_missing": on_missing,
        "overlong": _overlong(request),
        "dropin": request.dropin,
        "timeout_s": seconds(entries.get("timeout_s"), timeout_s, f"{where}.timeout_s"),
        "transforms": _transforms(request),
        "gates": component_names(entries.get("gate"), f"{where}.gate"),
        "rm_prompt": None if rm_prompt is None else str(rm_prompt),
        "counts_at": component_scores(entries.get("counts_at"), f"{where}.counts_at"),
    }


def _overlong(request: _Request) -> str:
    """Return how inputs that do not fit are cut. Raises ConfigError for kinds without a context
    length."""
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
    entry = request.entries.get("transform")
    shared = request.config.transforms.get(request.name)
    if entry is not None and shared is not None:
        raise ConfigError(
            f"{request.where}.transform and reward.transforms.{request.name} are both given: use"
            " one of them"
        )
    if entry is not None:
        where = f"{request.where}.transform"
        chain = parse_transforms(entry, where)
    elif shared is not None:
        where = f"reward.transforms.{request.name}"
        chain = parse_transforms(shared, where)
    else:
        return ()
    chain_of(chain, where)
    return tuple(chain)


def _options(request: _Request, kind: Any) -> Any:
    """Check the kind's own entries: names, types and what the kind itself requires."""
    fields: tuple[str, ...] = ()
    if hasattr(kind, "Options"):
        fields = tuple(f.name for f in dataclasses.fields(kind.Options))
    allowed = [*SHARED_KEYS, *fields]
    origin = ""
    unknown = set(request.entries) - set(allowed)
    if request.dropin is not None and unknown <= set(request.dropin.spec):
        origin = f" (SPEC of {request.dropin.path})"
    problems: list[str] = []
    for key in request.entries:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            problems.append(f"{request.where}.{key}: no such entry{origin}{hint}")
    if problems:
        raise ConfigError(problems)
    if not fields:
        return None
    entries: dict[str, Any] = {}
    for key, value in request.entries.items():
        if key in fields:
            entries[key] = value
    options = kind.Options(**known_entries(entries, kind.Options, request.where))
    if hasattr(kind, "check_options"):
        problems = kind.check_options(options, request.where)
        if problems:
            raise ConfigError(problems)
    return options


def _refuse_model_entries(request: _Request, reason: str) -> None:
    """Raise ConfigError for entries that only a model in an engine of its own can have."""
    problems: list[str] = []
    for key in ("path", "sampling", "engine", "server"):
        if request.entries.get(key):
            problems.append(f"{request.where}.{key}: {reason}, leave it out")
    if problems:
        raise ConfigError(problems)


def _rule(request: _Request) -> RewardSpec:
    where = request.where
    dropin = request.dropin
    _refuse_model_entries(request, "a rule runs no model")
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
    """A reward server. A judge on an OpenAI-compatible server is a generative reward whose requests
    go to that server instead of an engine."""
    fields = [f.name for f in dataclasses.fields(RemoteReward.Options)]
    if request.entries.get("wire") == "openai":
        server: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, value in request.entries.items():
            if key in fields:
                server[key] = value
            elif key != "kind":
                rest[key] = value
        judge = dataclasses.replace(request, kind="generative", entries=rest)
        return _model(judge, remote=_http(server, request.where))
    options = _options(request, RemoteReward)
    _refuse_model_entries(request, "the server runs the model")
    shared = _shared(request, timeout_s=request.config.timeout_s)
    return RewardSpec(**shared, options=options, remote=http_spec(options, request.where))


def _http(entries: Mapping[str, Any], where: str) -> HTTPSpec:
    options = RemoteReward.Options(**known_entries(dict(entries), RemoteReward.Options, where))
    problems = RemoteReward.check_options(options, where)
    if problems:
        raise ConfigError(problems)
    return http_spec(options, where)


def _server(request: _Request) -> HTTPSpec | None:
    """`server: {url, model, ...}`: an OpenAI-compatible server in the place of the reward's own
    engine."""
    server = request.entries.get("server")
    if not server:
        return None
    where = f"{request.where}.server"
    if not isinstance(server, Mapping):
        raise ConfigError(
            f"{where}={server!r}: give entries, e.g. {where}.url=http://127.0.0.1:8000/v1"
            f" {where}.model=<name>"
        )
    if REWARD_KINDS[request.kind].roles.get("main") != "generate":
        raise ConfigError(
            f"{where}: only judges that write text can run over HTTP; a {request.kind} reward"
            " runs in an engine"
        )
    if request.entries.get("path") or request.entries.get("engine"):
        raise ConfigError(
            f"{where} and {request.where}.path or .engine are both given: a judge is on a server or"
            " in an engine"
        )
    return _http({"wire": "openai", **server}, where)


def _model(request: _Request, *, remote: HTTPSpec | None) -> RewardSpec:
    kind: Any = REWARD_KINDS[request.kind]
    options = _options(request, kind)
    sampling = _sampling(request, kind)
    _check_dropin(request, kind, options, sampling)
    roles: Mapping[str, Runner] = kind.roles
    where = f"{request.where}.engine"
    settings: dict[str, Any] = {}
    if roles:
        settings = _engine_settings(request, request.entries.get("engine") or {}, where)
    engines: dict[str, EngineSpec] = {}
    for role, runner in roles.items():
        if role != "main" or remote is None:
            engines[role] = _engine(request, role, runner, options, settings)
    shared = _shared(request, timeout_s=request.config.timeout_s)
    shared |= {"options": options, "sampling": sampling, "remote": remote}
    if not roles:
        return RewardSpec(**shared)
    default_load = request.config.engine.load_timeout_s
    return RewardSpec(
        **shared,
        engines=engines,
        residency=settings["residency"],
        put_away=settings["put_away"],
        load_timeout_s=seconds(settings["load_timeout_s"], default_load, f"{where}.load_timeout_s"),
    )


def _sampling(request: _Request, kind: Any) -> Sampling | None:
    entry = request.entries.get("sampling")
    if kind.samples:
        return sampling_of(entry or {}, request.where)
    if entry:
        raise ConfigError(
            f"{request.where}.sampling: a {request.kind} reward samples nothing, leave it out"
        )
    return None


def _check_dropin(request: _Request, kind: Any, options: Any, sampling: Sampling | None) -> None:
    """Check that the kind can work with this drop-in, or without one.

    Raises ConfigError where the kind needs a drop-in or takes none, RewardFunctionError for a
    drop-in that renders but does not read, where neither token probabilities nor a parser do it.
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
    problem = ""
    if hasattr(kind, "dropin_problem"):
        problem = kind.dropin_problem(request.dropin, options, sampling)
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


def _engine_settings(request: _Request, entry: Any, where: str) -> dict[str, Any]:
    settings = {key: getattr(request.config.engine, key) for key in _ENGINE_KEYS}
    settings |= known_entries(entry, RewardEngineConfig, where)
    check_choices(settings, where=where)
    return settings


def _engine(
    request: _Request, role: str, runner: Runner, options: Any, settings: Mapping[str, Any]
) -> EngineSpec:
    where = request.where
    entries: Mapping[str, Any] = request.entries
    if role != "main":
        where = f"{request.where}.{role}"
        entries = getattr(options, role)
        allowed = ["path", "engine"]
        unknown = sorted(set(entries) - set(allowed))
        if unknown:
            raise ConfigError(
                [f"{where}.{key}: no such entry{did_you_mean(key, allowed)}" for key in unknown]
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
    name = settings["name"]
    if runner == "embed" and name == "vllm":
        name = "sentence_transformers"
    device = request.around.device
    if settings["batch_invariant"]:
        check_batch_invariant(name, device=device, where=f"{where}.engine.batch_invariant")
    dtype = resolve_dtype(
        str(settings["dtype"]),
        path=path,
        runner=runner,
        device=device,
        where=f"{where}.engine.dtype",
    )
    passed: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in (*_RESIDENCY_KEYS, "threads", "name", "dtype"):
            passed[key] = value
    return EngineSpec(
        path=path,
        runner=runner,
        device=device,  # type: ignore[arg-type]
        dtype=dtype,
        threads=int(settings["threads"] or request.around.threads),
        trust_remote_code=request.around.trust_remote_code,
        name=name,
        **passed,
    )
