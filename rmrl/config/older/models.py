"""Reward models of the older section: one entry of `reward.specs` per position of its lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.older import leaves
from rmrl.config.older.lists import Lists, as_list, entries, unique
from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

KindOf = Callable[[str], str]
"""Checkpoint -> "generative" or "bradley_terry", by its config.json."""

KINDS = {"grm": "generative", "scalar": "bradley_terry", "BT": "bradley_terry", "cloud": "remote"}
DEFAULT_FUNCTION, DEFAULT_TEMPERATURE, DEFAULT_TOKENS, DEFAULT_WEIGHT = (
    "rider_reward",
    0.6,
    4096,
    0.5,
)
"""VeRL-with-RMs has these where its entries are not typed: reward_function, temperature,
rollout_response_length, reward_weight."""
TEMPLATE_ROOM = 512
"""Tokens that a chat template and the words around a response may add to what the policy read and
wrote."""
_DEFAULT_CONTEXT = 4096  # of reward.engine.max_model_len=null, at most


def a_judge(path: str) -> str:
    """The kind of a checkpoint that nobody looked at."""
    del path
    return "generative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The section as typed, and what its models have in common."""

    typed: Mapping[str, Any]
    of_the_fork: bool
    kinds: tuple[str, ...]
    """Of each model."""
    functions: tuple[str, ...]
    """Of each model; () where none is typed."""
    policy_tokens: int | None
    """The longest prompt and response together; None where no policy writes them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Checkpoints, or addresses of servers."""
        return tuple(map(str, as_list(leaves.given(self.typed, "model").get("path"))))

    @property
    def lists(self) -> Lists:
        """Its lists have one entry per model."""
        return Lists(len(self.paths))


def section_of(config: Config | ScoreConfig, kind_of: KindOf) -> Section:
    """Raises ConfigError for unknown kinds, and where checkpoints and functions do not go
    together."""
    typed = config.reward_model
    paths = as_list(leaves.given(typed, "model").get("path"))
    functions = [str(function) for function in as_list(typed.get("reward_function"))]
    if not paths or (functions and len(paths) != len(functions)):
        raise ConfigError(
            f"reward_model.model.path has {entries(paths)} and reward_model.reward_function"
            f" {entries(functions)}: give one checkpoint and one function per reward model"
        )
    kinds = [
        _kind(typed, index, path=str(path), kind_of=kind_of) for index, path in enumerate(paths)
    ]
    judges = all(kind == "generative" for kind in kinds)
    if not functions and judges and typed.get("reward_model_type") is not None:
        functions = [DEFAULT_FUNCTION] * len(paths)
    data = config.data if isinstance(config, Config) else None
    return Section(
        typed=typed,
        of_the_fork=leaves.is_of_the_fork(typed),
        kinds=tuple(kinds),
        functions=tuple(functions),
        policy_tokens=None if data is None else data.max_prompt_length + data.max_response_length,
    )


def names_of(section: Section, *, taken: list[str]) -> list[str]:
    """Names of the rewards: their functions', else their checkpoints' last folders."""
    return unique(section.functions or [Path(path).name for path in section.paths], taken=taken)


def spec_of(section: Section, index: int) -> dict[str, Any]:
    """The entries of `reward.specs.<name>` of one model."""
    function = {"function": section.functions[index]} if section.functions else {}
    path, kind = section.paths[index], section.kinds[index]
    if kind == "remote":
        # A function asks and reads a judge; without one the server is a reward server and its
        # numbers are taken.
        return (
            {"kind": kind, "url": path, "wire": "openai" if function else "openrlhf"}
            | _judge(section, index, function)
            | function
        )
    engine = _engine(section, index)
    if kind != "generative":
        return {"kind": kind, "path": path, "engine": engine, **function}
    return {
        "kind": kind,
        "path": path,
        **_judge(section, index, function),
        "engine": engine,
        **function,
    }


def weight_of(section: Section, index: int) -> float:
    """reward_weight of one model."""
    default = DEFAULT_WEIGHT if section.of_the_fork else 1.0
    return section.lists.number(
        "reward_model.reward_weight", section.typed.get("reward_weight", default), index
    )


def operation_of(section: Section, index: int) -> str:
    """reward_combine_func of one model: add or mul."""
    return str(
        section.lists.at(
            "reward_model.reward_combine_func",
            section.typed.get("reward_combine_func", "add"),
            index,
        )
    )


def rollout(section: Section) -> dict[str, Any]:
    """reward_vllm_rollout, or the newer rollout; ConfigError where both are typed."""
    older, newer = (
        leaves.given(section.typed, "reward_vllm_rollout"),
        leaves.given(section.typed, "rollout"),
    )
    if older and newer:
        raise ConfigError(
            "reward_model.reward_vllm_rollout and reward_model.rollout are both given: use one of"
            " them"
        )
    return dict(older or newer)


def _kind(typed: Mapping[str, Any], index: int, *, path: str, kind_of: KindOf) -> str:
    given = typed.get("reward_model_type")
    if given is None:
        return kind_of(path)
    count = len(as_list(leaves.given(typed, "model").get("path")))
    name = str(Lists(count).at("reward_model.reward_model_type", given, index))
    if name not in KINDS:
        raise ConfigError(
            f"reward_model.reward_model_type={name}: not a choice{did_you_mean(name, KINDS)}"
        )
    return KINDS[name]


def _judge(section: Section, index: int, function: Mapping[str, Any]) -> dict[str, Any]:
    """`sampling` of a judge, and no fence: files of that time cut the response's JSON out of the
    text and mend it."""
    typed = rollout(section)
    where = "reward_vllm_rollout" if "reward_vllm_rollout" in section.typed else "rollout"
    here = {
        key: section.lists.at(f"reward_model.{where}.{key}", value, index)
        for key, value in typed.items()
    }
    if section.kinds[index] == "remote" and not function:
        return {}
    sampling = {
        ours: here[theirs]
        for theirs, ours in leaves.SAMPLING.items()
        if here.get(theirs) is not None
    }
    if here.get("do_sample") is False:
        sampling["temperature"] = 0.0
    tokens = [here.get(key) for key in ("rollout_response_length", "response_length", "max_tokens")]
    sampling["max_tokens"] = next(
        (int(count) for count in tokens if count is not None), DEFAULT_TOKENS
    )
    if section.of_the_fork:
        sampling = {"temperature": DEFAULT_TEMPERATURE, **sampling}
    return {"sampling": sampling} | ({"fence": False} if function else {})


def _engine(section: Section, index: int) -> dict[str, Any]:
    typed = rollout(section)
    lists = section.lists
    where = "reward_vllm_rollout" if "reward_vllm_rollout" in section.typed else "rollout"
    here = {
        key: lists.at(f"reward_model.{where}.{key}", value, index) for key, value in typed.items()
    }
    model = leaves.given(section.typed, "model")
    tensor_parallel = lists.at(
        "reward_model.model.tensor_model_parallel_size",
        model.get("tensor_model_parallel_size"),
        index,
    )
    engine: dict[str, Any] = (
        {} if tensor_parallel is None else {"tensor_parallel_size": tensor_parallel}
    )
    engine |= {
        ours: here[theirs] for theirs, ours in leaves.ENGINE.items() if here.get(theirs) is not None
    }
    if here.get("name") not in (None, "vllm"):
        engine["name"] = here["name"]
    extra = {
        key: value
        for key, value in dict((here.get("engine_kwargs") or {}).get("vllm") or {}).items()
        if value is not None
    }
    if extra:
        engine["kwargs"] = extra
    context = _context(section, index, here)
    if "max_model_len" not in engine and context is not None and context > _DEFAULT_CONTEXT:
        engine["max_model_len"] = context
    return engine


def _context(section: Section, index: int, here: Mapping[str, Any]) -> int | None:
    """Tokens one request may take: what the policy read and wrote, the words around it, and a
    judge's verdict.

    There it was prompt_length + response_length, which follow the data's lengths.
    """
    lengths = (here.get("prompt_length"), here.get("response_length"))
    read = int(lengths[0]) + int(lengths[1]) if None not in lengths else section.policy_tokens  # type: ignore[arg-type]
    if read is None:
        return None
    written = 0
    if section.kinds[index] == "generative":
        written = _judge(section, index, {})["sampling"]["max_tokens"]
    return read + TEMPLATE_ROOM + written
