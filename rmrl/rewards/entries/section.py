"""One reward's section in `reward.specs`, read entry by entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.plain_checks import field_problems
from rmrl.config.schema import RewardConfig, RewardEngineConfig
from rmrl.errors import ConfigError, RewardFunctionError
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.reward_engine_base import EngineSpec, Runner
from rmrl.inference.reward_engines import ENGINES
from rmrl.models.checkpoint_inspect import no_writer
from rmrl.registry import did_you_mean
from rmrl.rewards.dropins.dropin import DropIn, without_postprocess
from rmrl.rewards.entries.names import Component
from rmrl.rewards.entries.watching import parse_watch
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.remote.reward import RemoteReward, http_spec
from rmrl.rewards.kinds.shared.truncation import WAYS
from rmrl.rewards.reads.setting import Reads
from rmrl.rewards.remote import DECISION_WIRES
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.specs.entry_types import advice, fits
from rmrl.rewards.specs.spec import OnMissing
from rmrl.rewards.specs.values import (
    component_names,
    component_scores,
    known_entries,
    sampling_of,
    seconds,
)
from rmrl.rewards.transforms import chain_of, parse_transforms
from rmrl.types import Sampling

SHARED_KEYS = (
    "kind", "path", "adapter", "function", "sampling", "engine", "server", "on_missing", "overlong",
    "timeout_s", "transform", "gate", "counts_at", "rm_prompt", "reads", "per", "unclosed",
    "thinking", "watch",
    "preset",
)  # fmt: skip
"""Entries that every kind has. Each kind's `Options` has further entries."""
_TEXT = str | None
NAMES: Mapping[str, Any] = {
    "kind": _TEXT, "path": _TEXT, "adapter": _TEXT, "preset": _TEXT,
    "function": str | Callable[..., Any] | None,
    "rm_prompt": str | int | None,
}  # fmt: skip
"""Shared entries that are names, with their types. The others have readers of their own."""
_ENGINE_KEYS = tuple(f.name for f in dataclasses.fields(RewardEngineConfig))


POLICY, REFERENCE = "policy", "reference"
"""Values of `path` beside checkpoints: the policy with its present weights, and the policy with its
first weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The model that trains beside the rewards."""

    path: str
    """The policy's checkpoint."""
    judge: EngineSpec
    """The policy's rollout engines, as an engine for rewards."""
    problem: str = ""
    """Why the rollout engines cannot be a reward engine, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts about the machine and the checkout that a spec depends on besides the configuration."""

    device: str
    threads: int
    functions_dirs: Sequence[Path]
    trust_remote_code: bool = False
    policy: Policy | None = None
    """None: nothing trains, as where files are scored."""

    def checkpoint(self, entry: str, where: str) -> str:
        """Return the checkpoint that an entry `path` names. Raises ConfigError for the policy or
        its reference where nothing trains."""
        if not names_policy(entry):
            return entry
        if self.policy is None:
            raise ConfigError(
                f"{where}.path={entry}: no policy trains here; give its checkpoint,"
                f" {where}.path=<folder or hub id>, such as the one that `rmrl export` writes"
            )
        return self.policy.path


def check_names(entries: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for other values than names in NAMES."""
    problems = [
        f"{where}.{key}={value!r}: {advice(value, NAMES[key])}"
        for key, value in entries.items()
        if key in NAMES and not fits(value, NAMES[key])
    ]
    if problems:
        raise ConfigError(problems)


def names_policy(entry: str) -> bool:
    """Return whether an entry `path` is "policy" or "reference", and no folder has that name."""
    return entry in (POLICY, REFERENCE) and not Path(entry).is_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One reward's section `reward.specs.<name>`. Each entry is checked when it is read. Every
    method raises ConfigError with what is wrong."""

    component: Component
    model_index: int
    """Position among the model rewards, for a model reward."""
    kind: str
    entries: Mapping[str, Any]
    dropin: DropIn | None
    config: RewardConfig
    surroundings: Surroundings

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.component.name

    @property
    def where(self) -> str:
        """The section's key, as messages name it."""
        return f"reward.specs.{self.name}"

    def check_kind(self) -> None:
        """Raise ConfigError for an unknown kind, or for one that cannot be imported."""
        kind = self.kind
        problems = REWARD_KINDS.problems(kind, f"{self.where}.kind")
        if problems:
            raise ConfigError(problems)
        loaded: Any = REWARD_KINDS[kind]
        if not (isinstance(loaded, type) and issubclass(loaded, Kind)):
            raise ConfigError(
                f"{self.where}.kind={kind}: it does not extend rmrl.rewards.kinds.kind.Kind; write"
                f" `class {kind.rpartition(':')[2]}(Kind)` there, as docs/extending.md shows"
            )

    def shared(self, *, timeout_s: float, needs_model: bool) -> dict[str, Any]:
        """Return the `RewardSpec` fields that every kind has. `timeout_s`: the default, in seconds.
        `needs_model`: as `RewardSpec.needs_model` will be."""
        component = self.component
        name = component.model_name if needs_model else component.name
        entries = self.entries
        config = self.config
        where = self.where
        if entries.get("on_missing") is None:
            on_missing = OnMissing.parse(config.on_missing, where="reward.on_missing")
        else:
            on_missing = OnMissing.parse(entries["on_missing"], where=f"{where}.on_missing")
        rm_prompt = entries.get("rm_prompt")
        watch = parse_watch(entries.get("watch"), where=f"{where}.watch")
        weight = component.weight
        sources = component.sources
        if watch is not None:
            weight = 0.0
            if sources is not None:
                sources = sources.unweighted()
        return {
            "name": name,
            "kind": self.kind,
            "weight": weight,
            "combine_op": component.combine_op,
            "model_index": self.model_index if needs_model else -1,
            "sources": sources,
            "watch": watch,
            "part_of": component.part_of,
            "on_missing": on_missing,
            "overlong": self.overlong(),
            "reads": self.reads(),
            "dropin": self.dropin,
            "timeout_s": seconds(entries.get("timeout_s"), timeout_s, f"{where}.timeout_s"),
            "transforms": self.transforms(),
            "gates": self.gates(name),
            "rm_prompt": None if rm_prompt is None else str(rm_prompt),
            "counts_at": component_scores(entries.get("counts_at"), f"{where}.counts_at"),
        }

    def gates(self, name: str) -> tuple[str, ...]:
        """Return the section's gates, the component's gates, and the gates of reward.combine=gate
        unless the reward is one of them. `name`: the spec's name."""
        own = component_names(self.entries.get("gate"), f"{self.where}.gate")
        gates = (*own, *self.component.gates)
        if self.config.combine == "gate" and name not in self.config.gates:
            return tuple(dict.fromkeys((*gates, *self.config.gates)))
        return gates

    def overlong(self) -> str:
        """Return the part that is cut from inputs that do not fit, one of WAYS. Kinds without a
        context length cut nothing."""
        part = self.entries.get("overlong", "missing")
        where = f"{self.where}.overlong={part}"
        if part not in WAYS:
            raise ConfigError(f"{where}: not a choice{did_you_mean(str(part), WAYS)}")
        if part == "missing":
            return part
        kind = REWARD_KINDS[self.kind]
        if kind.rates_tokens:
            raise ConfigError(
                f"{where}: a {self.kind} rates every token of a response, so nothing is cut; leave"
                " it out, or raise engine.max_model_len"
            )
        if not kind.truncates:
            raise ConfigError(
                f"{where}: a {self.kind} reward reads no text into a model of ours, so there is"
                " nothing to cut; leave it out"
            )
        if self.entries.get("server") or self.entries.get("wire"):
            raise ConfigError(
                f"{where}: how many tokens the server's model takes is not known here; leave it out"
            )
        return part

    def reads(self) -> Reads:
        """Return the part of the response that the reward reads."""
        reads = Reads.parse(self.entries, where=self.where)
        kind = REWARD_KINDS[self.kind]
        where = f"{self.where}.reads={reads.part}"
        if not kind.reads_responses and reads != Reads():
            raise ConfigError(
                f"{where}: a reward of kind {self.kind} reads no response; leave reads, per,"
                " unclosed and thinking out"
            )
        if reads.per_turn and (kind.rates_tokens or kind.scores_steps or kind.whole_groups):
            raise ConfigError(
                f"{self.where}.per=turn: a reward of kind {self.kind} reads whole responses; leave"
                " it out"
            )
        if kind.combines and (reads.part != "all" or reads.per_turn):
            raise ConfigError(
                f"{where}: a reward of kind {self.kind} reads the scores of its members; give each"
                " of them its own reads"
            )
        if kind.rates_tokens and reads.part != "all":
            raise ConfigError(
                f"{where}: a {self.kind} rates every token of a response; leave it out"
            )
        if kind.scores_steps and reads.part in ("transcript", "last", "tools", "turn"):
            raise ConfigError(
                f"{where}: the steps of a {self.kind} reward are parts of the response, and a"
                " transcript begins before it; give all, answer, reasoning or final"
            )
        return reads

    def transforms(self) -> tuple[Mapping[str, Any], ...]:
        """Return each transform's entries, in order."""
        entry = self.entries.get("transform")
        shared = self.config.transforms.get(self.name)
        if entry is not None and shared is not None:
            raise ConfigError(
                f"{self.where}.transform and reward.transforms.{self.name} are both given: use"
                " one of them"
            )
        if entry is not None:
            where = f"{self.where}.transform"
            chain = parse_transforms(entry, where)
        elif shared is not None:
            where = f"reward.transforms.{self.name}"
            chain = parse_transforms(shared, where)
        else:
            return ()
        chain_of(chain, where)
        return tuple(chain)

    def options(self) -> Any:
        """Return the kind's `Options` from its own entries. Names, types and the kind's own
        requirements are checked."""
        kind = REWARD_KINDS[self.kind]
        fields = tuple(f.name for f in dataclasses.fields(kind.Options))
        allowed = [*SHARED_KEYS, *fields]
        origin = ""
        unknown = set(self.entries) - set(allowed)
        if self.dropin is not None and unknown <= set(self.dropin.spec):
            origin = f" (SPEC of {self.dropin.path})"
        problems: list[str] = []
        for key in self.entries:
            if key not in allowed:
                hint = self._other_kinds(key) or did_you_mean(key, allowed)
                problems.append(f"{self.where}.{key}: no such entry{origin}{hint}")
        if problems:
            raise ConfigError(problems)
        entries: dict[str, Any] = {
            key: value for key, value in self.entries.items() if key in fields
        }
        return kind.read_options(entries, self.where)

    def _other_kinds(self, key: str) -> str:
        """Return the end of a sentence on an entry of other kinds, "" where no kind has it."""
        owners: list[str] = [
            name
            for name in REWARD_KINDS
            if any(field.name == key for field in dataclasses.fields(REWARD_KINDS[name].Options))
        ]
        if not owners:
            return ""
        ways = f"leave it out, or type {self.where}.kind={owners[0]}"
        path = str(self.entries.get("path") or "")
        with suppress(ConfigError):
            classifier = path and no_writer(path)
            if classifier:
                ways = (
                    f"'{path}' is a {classifier}, which writes no text and reads no {key}: leave"
                    f" {key} out, or give a *ForCausalLM checkpoint, {self.where}.path=<folder or"
                    " hub id>"
                )
        return f" of kind={self.kind} (of {', '.join(owners)}); {ways}"

    def refuse_model_entries(self, reason: str) -> None:
        """Raise ConfigError for entries that only a model in its own engine can have."""
        problems: list[str] = [
            f"{self.where}.{key}: {reason}, leave it out"
            for key in ("path", "adapter", "sampling", "engine", "server")
            if self.entries.get(key)
        ]
        if problems:
            raise ConfigError(problems)

    def sampling(self) -> Sampling | None:
        """Return the sampling for a kind that writes text. None for other kinds."""
        entry = self.entries.get("sampling")
        if REWARD_KINDS[self.kind].samples:
            return sampling_of(entry or {}, self.where)
        if entry:
            raise ConfigError(
                f"{self.where}.sampling: a {self.kind} reward samples nothing, leave it out"
            )
        return None

    def engine_settings(self, entry: Any, where: str) -> dict[str, Any]:
        """Return `reward.engine` with the entries of `entry`, which stands at `where`."""
        settings = {key: getattr(self.config.engine, key) for key in _ENGINE_KEYS}
        settings |= known_entries(entry, RewardEngineConfig, where)
        name = str(settings["name"])
        problems = ENGINES.unknown(name, f"{where}.name={name}")
        problems += field_problems(RewardEngineConfig(**settings), f"{where}.")
        if problems:
            raise ConfigError(problems)
        if REWARD_KINDS[self.kind].rates_tokens and not engine_facts(name).rates_tokens:
            raise ConfigError(
                f"{where}.name={name}: this engine gives no log-probabilities of given tokens,"
                f" which a {self.kind} is asked for; use engine.name=vllm"
            )
        return settings

    @property
    def by_policy(self) -> bool:
        """Return whether the policy's own rollout engines answer the reward's requests."""
        path = str(self.entries.get("path") or "")
        return path == POLICY and names_policy(path)

    def policy_engine(self, runner: Runner) -> EngineSpec:
        """Return the rollout engines as the reward's engine."""
        where = f"{self.where}.path={POLICY}"
        self.surroundings.checkpoint(POLICY, self.where)
        policy = self.surroundings.policy
        assert policy is not None
        if runner != "generate":
            raise ConfigError(
                f"{where}: the policy writes text, and a {self.kind} reward needs a {runner} model;"
                " use a kind that asks a judge, such as generative, or give a checkpoint"
            )
        if REWARD_KINDS[self.kind].rates_tokens:
            raise ConfigError(
                f"{where}: rollout engines rate no given tokens, and nobody learns from his own"
                f" ratings; give a checkpoint, or path={REFERENCE} for the policy's start"
            )
        given = [key for key in ("engine", "adapter") if self.entries.get(key)]
        if given:
            raise ConfigError(
                f"{where}: its rollout engines answer, as actor_rollout_ref.rollout sets them up;"
                f" leave {' and '.join(given)} out, or write path={REFERENCE} for an engine of its"
                " own"
            )
        if policy.problem:
            raise ConfigError(f"{where}: {policy.problem}")
        return policy.judge

    def server(self) -> HTTPSpec | None:
        """Return the server from `server: {url, model, ...}`: an OpenAI-compatible server in the
        place of the reward's own engine."""
        server = self.entries.get("server")
        if not server:
            return None
        where = f"{self.where}.server"
        if not isinstance(server, Mapping):
            raise ConfigError(
                f"{where}={server!r}: give entries, e.g. {where}.url=http://127.0.0.1:8000/v1"
                f" {where}.model=<name>"
            )
        kind = REWARD_KINDS[self.kind]
        if kind.roles.get("main") != "generate" or kind.rates_tokens:
            raise ConfigError(
                f"{where}: only judges that write text can run over HTTP; a {self.kind} reward"
                " runs in an engine"
            )
        if any(self.entries.get(key) for key in ("path", "adapter", "engine")):
            raise ConfigError(
                f"{where} and {self.where}.path, .adapter or .engine are both given: a judge is on"
                " a server or in an engine"
            )
        spec = http_server({"wire": "openai", **server}, where)
        if spec.wire in DECISION_WIRES and not kind.asks_questions:
            raise ConfigError(
                f"{where}.wire={spec.wire}: such a server answers questions and writes no text; use"
                f" kind: rubric for it, or wire: openai for a {self.kind} reward"
            )
        return spec

    def check_dropin(self, options: Any, sampling: Sampling | None) -> None:
        """Check that the kind can work with this drop-in, or without a drop-in.

        Raises ConfigError where the kind needs a drop-in or takes none, RewardFunctionError for a
        drop-in that renders but does not read, unless token probabilities or a parser do.
        """
        dropin = self.dropin
        reads_otherwise = any(getattr(options, name, None) for name in ("score_tokens", "parser"))
        reads_otherwise |= getattr(options, "verdict", "parse") != "parse"
        if (
            dropin is not None
            and dropin.preprocess is not None
            and dropin.postprocess is None
            and not reads_otherwise
        ):
            raise RewardFunctionError(without_postprocess(dropin))
        problem = REWARD_KINDS[self.kind].dropin_problem(dropin, options, sampling)
        if problem and "/" in self.name:
            raise ConfigError(
                f"reward '{self.name}' is {self.kind}: give it a name, e.g. reward.models=[judge]"
                f" reward.specs.judge.path={self.name}; as it stands it"
                f" {problem.replace('<name>', 'judge')}"
            )
        if problem:
            raise ConfigError(
                f"reward '{self.name}' is {self.kind} and {problem.replace('<name>', self.name)}"
            )


def http_server(entries: Mapping[str, Any], where: str) -> HTTPSpec:
    """Return the server that a remote reward's entries name. Raises ConfigError naming `where`."""
    return http_spec(RemoteReward.read_options(entries, where), where)
