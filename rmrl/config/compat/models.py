"""The older section's reward models: one entry in `reward.specs` per position in its lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.compat import key_table
from rmrl.config.compat.lists import Lists, as_list, entries, unique
from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

KindOf = Callable[[str], str]
"""Checkpoint -> "generative" or "bradley_terry", by its config.json."""

KINDS = {"grm": "generative", "scalar": "bradley_terry", "BT": "bradley_terry", "cloud": "remote"}
# VeRL-with-RMs's defaults of reward_function, temperature, rollout_response_length, reward_weight:
DEFAULT_FUNCTION = "rider_reward"
DEFAULT_TEMPERATURE = 0.6
DEFAULT_TOKENS = 4096
DEFAULT_WEIGHT = 0.5
TEMPLATE_ROOM = 512
"""Tokens that a chat template and the judge's instructions may add to prompt and response."""
_DEFAULT_CONTEXT = 4096  # of reward.engine.max_model_len=null, at most


def assume_judge(path: str) -> str:
    """Return the kind for a checkpoint that was not read."""
    del path
    return "generative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The section `reward_model` as typed, and values that its models share."""

    typed: Mapping[str, Any]
    of_the_fork: bool
    kinds: tuple[str, ...]
    """Kind of each model."""
    functions: tuple[str, ...]
    """Function of each model, () where none is set."""
    policy_tokens: int | None
    """Longest prompt and response together, in tokens; None where no policy writes them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Checkpoints, or server addresses."""
        return tuple(map(str, as_list(key_table.subsection(self.typed, "model").get("path"))))

    @property
    def lists(self) -> Lists:
        """Reads the section's lists."""
        return Lists(len(self.paths))

    def rollout_of(self, index: int) -> dict[str, Any]:
        """Return `rollout`'s entries for model `index`, from their lists."""
        key = "reward_vllm_rollout" if "reward_vllm_rollout" in self.typed else "rollout"
        entries = dict(rollout(self))
        for name, value in entries.items():
            entries[name] = self.lists.at(f"reward_model.{key}.{name}", value, index)
        return entries


def section_of(config: Config | ScoreConfig, kind_of: KindOf) -> Section:
    """Read the section. Raises ConfigError for unknown kinds, and where checkpoints and functions
    are not equally many."""
    typed = config.reward_model
    paths = list(map(str, as_list(key_table.subsection(typed, "model").get("path"))))
    functions = list(map(str, as_list(typed.get("reward_function"))))
    if not paths or (functions and len(paths) != len(functions)):
        raise ConfigError(
            f"reward_model.model.path has {entries(paths)} and reward_model.reward_function"
            f" {entries(functions)}: give one checkpoint and one function per reward model"
        )
    types = typed.get("reward_model_type")
    kinds: list[str] = []
    for index, path in enumerate(paths):
        if types is None:
            kinds.append(kind_of(path))
            continue
        name = str(Lists(len(paths)).at("reward_model.reward_model_type", types, index))
        if name not in KINDS:
            raise ConfigError(
                f"reward_model.reward_model_type={name}: not a choice{did_you_mean(name, KINDS)}"
            )
        kinds.append(KINDS[name])
    if not functions and types is not None and set(kinds) == {"generative"}:
        functions = [DEFAULT_FUNCTION] * len(paths)
    policy_tokens = None
    if isinstance(config, Config):
        policy_tokens = config.data.max_prompt_length + config.data.max_response_length
    return Section(
        typed=typed,
        of_the_fork=key_table.is_of_the_fork(typed),
        kinds=tuple(kinds),
        functions=tuple(functions),
        policy_tokens=policy_tokens,
    )


def names_of(section: Section, *, taken: list[str]) -> list[str]:
    """Name the rewards after their functions, or else after their checkpoint's last folder."""
    return unique(section.functions or [Path(path).name for path in section.paths], taken=taken)


def spec_of(section: Section, index: int) -> dict[str, Any]:
    """Return `reward.specs.<name>`'s entries for one model."""
    function = {"function": section.functions[index]} if section.functions else {}
    path = section.paths[index]
    kind = section.kinds[index]
    entries = section.rollout_of(index)
    if kind == "remote" and not function:
        return {"kind": kind, "url": path, "wire": "openrlhf"}  # a reward server returns scores
    if kind == "remote":
        wire = {"kind": kind, "url": path, "wire": "openai"}
        return {**wire, "sampling": _sampling(section, entries), "fence": False, **function}
    spec: dict[str, Any] = {"kind": kind, "path": path}
    if kind == "generative":
        spec["sampling"] = _sampling(section, entries)
        if function:
            # Functions of that time cut the response's JSON out of the text and repair it.
            spec["fence"] = False
    return {**spec, "engine": _engine(section, index, entries), **function}


def weight_of(section: Section, index: int) -> float:
    """Return one model's reward_weight."""
    default = DEFAULT_WEIGHT if section.of_the_fork else 1.0
    return section.lists.number(
        "reward_model.reward_weight", section.typed.get("reward_weight", default), index
    )


def operation_of(section: Section, index: int) -> str:
    """Return one model's reward_combine_func: add or mul."""
    return str(
        section.lists.at(
            "reward_model.reward_combine_func",
            section.typed.get("reward_combine_func", "add"),
            index,
        )
    )


def rollout(section: Section) -> dict[str, Any]:
    """Return reward_vllm_rollout, or the newer rollout. Raises ConfigError where both are set."""
    older = key_table.subsection(section.typed, "reward_vllm_rollout")
    newer = key_table.subsection(section.typed, "rollout")
    if older and newer:
        raise ConfigError(
            "reward_model.reward_vllm_rollout and reward_model.rollout are both given: use one of"
            " them"
        )
    return dict(older or newer)


def _sampling(section: Section, entries: Mapping[str, Any]) -> dict[str, Any]:
    """A judge's sampling parameters with these entries from `rollout`."""
    sampling: dict[str, Any] = {}
    if section.of_the_fork:
        sampling["temperature"] = DEFAULT_TEMPERATURE
    for key in key_table.SAMPLING:
        if entries.get(key) is not None:
            sampling[key] = entries[key]
    if entries.get("do_sample") is False:
        sampling["temperature"] = 0.0
    sampling["max_tokens"] = DEFAULT_TOKENS
    for key in ("rollout_response_length", "response_length", "max_tokens"):
        if entries.get(key) is not None:
            sampling["max_tokens"] = int(entries[key])
            break
    return sampling


def _engine(section: Section, index: int, entries: Mapping[str, Any]) -> dict[str, Any]:
    model = key_table.subsection(section.typed, "model")
    engine: dict[str, Any] = {}
    tensor_parallel = section.lists.at(
        "reward_model.model.tensor_model_parallel_size",
        model.get("tensor_model_parallel_size"),
        index,
    )
    if tensor_parallel is not None:
        engine["tensor_parallel_size"] = tensor_parallel
    for key, name in key_table.ENGINE.items():
        if entries.get(key) is not None:
            engine[name] = entries[key]
    if entries.get("name") not in (None, "vllm"):
        engine["name"] = entries["name"]
    arguments = (entries.get("engine_kwargs") or {}).get("vllm") or {}
    arguments = {key: value for key, value in arguments.items() if value is not None}
    if arguments:
        engine["kwargs"] = arguments
    context = _context(section, index, entries)
    if "max_model_len" not in engine and context is not None and context > _DEFAULT_CONTEXT:
        engine["max_model_len"] = context
    return engine


def _context(section: Section, index: int, entries: Mapping[str, Any]) -> int | None:
    """Return the tokens that one request may take: the policy's prompt and response, the text
    around them, and a judge's verdict. None where the policy's lengths are not known.

    In VeRL-with-RMs it is prompt_length + response_length, which follow the data's lengths.
    """
    prompt = entries.get("prompt_length")
    response = entries.get("response_length")
    policy = section.policy_tokens
    if prompt is not None and response is not None:
        policy = int(prompt) + int(response)
    if policy is None:
        return None
    verdict = 0
    if section.kinds[index] == "generative":
        verdict = _sampling(section, entries)["max_tokens"]
    return policy + TEMPLATE_ROOM + verdict
