"""Older key names, translated to ours: `reward_model.*` with one list entry per reward model, and `custom_reward_function.{path,name}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

_KINDS = {"grm": "generative", "scalar": "bradley_terry", "cloud": "remote"}
_SAMPLING = {key: key for key in ("temperature", "top_p", "top_k", "n", "max_tokens", "seed", "stop")} | {"response_length": "max_tokens"}
_ENGINE = {"tensor_model_parallel_size": "tensor_parallel_size"} | {
    key: key for key in ("gpu_memory_utilization", "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
}
_NO_EFFECT = ("micro_batch_size", "micro_batch_size_per_gpu", "strategy", "model.fsdp_config", "model.input_tokenizer")
"""Reward models run in inference engines here: they batch by themselves and read text, not the policy's tokens."""
_KNOWN = ("enable", "reward_model_type", "model", "reward_function", "reward_weight", "reward_combine_func", "combine_reward",
          "reward_vllm_rollout", "micro_batch_size", "micro_batch_size_per_gpu", "strategy")  # fmt: skip
_KNOWN_MODEL = ("path", "tensor_model_parallel_size", "fsdp_config", "input_tokenizer")


@dataclass(frozen=True, slots=True)
class _Lists:
    """Positions of the older lists: a list gives one value per reward model, a scalar holds for all."""

    count: int

    def at(self, key: str, value: Any, index: int) -> Any:
        if not isinstance(value, list):
            return value
        if len(value) != self.count:
            raise ConfigError(f"{key} has {len(value)} values for {self.count} reward models: give one per model, or one value for all")
        return value[index]


def translate(config: Config | ScoreConfig) -> list[str]:
    """Move older names into `config.reward` in place; returns one notice line per section translated.

    Raises ConfigError when both older and new names are given, lists differ in length, or an older key is unknown.
    """
    _check_known(config.custom_reward_function, ("path", "name"), "custom_reward_function")
    asked = _asked_for(config.reward_model)
    if asked and (config.reward.models or config.reward.weights is not None):
        raise ConfigError("both reward.models or reward.weights and the older reward_model.* are given: use one of them")
    notices = _custom_function(config) if config.custom_reward_function.get("path") else []
    if asked:
        notices += _reward_model(config)
    return notices


def _asked_for(section: Mapping[str, Any]) -> bool:
    return bool(section) and section.get("enable", True) not in (False, None)


def _custom_function(config: Config | ScoreConfig) -> list[str]:
    path = Path(str(config.custom_reward_function["path"]))
    (name,) = _unique([path.stem], taken=config.reward.models)
    attribute = config.custom_reward_function.get("name") or "compute_score"
    if config.reward.weights is not None and len(config.reward.weights) == len(config.reward.models):
        config.reward.weights = [*config.reward.weights, 1.0]
    config.reward.models = [*config.reward.models, name]
    config.reward.specs = {**config.reward.specs, name: {"kind": "rule", "function": f"{path}:{attribute}"}}
    return [f"custom_reward_function.path={path} is now reward.models=[{','.join(config.reward.models)}]"]


def _reward_model(config: Config | ScoreConfig) -> list[str]:
    section, reward = config.reward_model, config.reward
    model = _section(section, "model", _KNOWN_MODEL)
    rollout = _section(section, "reward_vllm_rollout", (*_SAMPLING, *_ENGINE))
    _check_known(section, _KNOWN, "reward_model")
    paths, functions = _as_list(model.get("path")), _as_list(section.get("reward_function"))
    if not paths or (functions and len(paths) != len(functions)):
        raise ConfigError(
            f"reward_model.model.path has {_entries(paths)} and reward_model.reward_function {_entries(functions)}: "
            "give one checkpoint and one function per reward model"
        )
    lists = _Lists(len(paths))
    rules = list(reward.models) if section.get("combine_reward", True) else []
    names = _unique([str(f) for f in functions] or [Path(str(p)).name for p in paths], taken=rules)
    specs = {name: _spec(section, lists, i, path=paths[i], model=model, rollout=rollout) for i, name in enumerate(names)}
    for name, function in zip(names, functions, strict=False):
        specs[name]["function"] = str(function)
    weights = [_number("reward_model.reward_weight", lists, section.get("reward_weight", 1.0), i) for i in range(lists.count)]
    ops = [str(lists.at("reward_model.reward_combine_func", section.get("reward_combine_func", "add"), i)) for i in range(lists.count)]
    dropped = set(reward.models) - set(rules)
    reward.models, reward.weights = [*rules, *names], [1.0] * len(rules) + weights
    given = {name: spec for name, spec in reward.specs.items() if name not in dropped}
    # What is typed under a reward's new name joins what its older lists say, and wins.
    reward.specs = {**specs, **{name: {**specs.get(name, {}), **own} if isinstance(own, dict) else own for name, own in given.items()}}
    reward.combine, reward.combine_ops = "fold", ["add"] * len(rules) + ops
    return _notices(config, section, model)


def _notices(config: Config | ScoreConfig, section: Mapping[str, Any], model: Mapping[str, Any]) -> list[str]:
    reward = config.reward
    lines = [
        f"reward_model.* is now reward.models=[{','.join(reward.models)}] reward.weights={reward.weights} reward.combine=fold "
        f"reward.combine_ops={reward.combine_ops}"
    ]
    given = {*section, *(f"model.{key}" for key in model)}
    idle = [f"reward_model.{key}" for key in _NO_EFFECT if key in given]
    if idle:
        lines.append(f"{', '.join(idle)}: no effect, reward models run in inference engines of their own (see reward.engine)")
    return lines


def _spec(
    section: Mapping[str, Any], lists: _Lists, index: int, *, path: Any, model: Mapping[str, Any], rollout: Mapping[str, Any]
) -> dict[str, Any]:
    here = {key: lists.at(f"reward_model.reward_vllm_rollout.{key}", value, index) for key, value in rollout.items()}
    kind = str(lists.at("reward_model.reward_model_type", section.get("reward_model_type", "grm"), index))
    if kind not in _KINDS:
        raise ConfigError(f"reward_model.reward_model_type={kind}: not a choice{did_you_mean(kind, _KINDS)}")
    if kind == "cloud":
        # A function asks and reads a judge; without one the server is a reward server and its numbers are taken.
        return {"kind": "remote", "url": str(path), "wire": "openai" if section.get("reward_function") else "openrlhf"}
    tensor_parallel = lists.at("reward_model.model.tensor_model_parallel_size", model.get("tensor_model_parallel_size"), index)
    engine = {} if tensor_parallel is None else {"tensor_parallel_size": tensor_parallel}
    sampling = {ours: here[theirs] for theirs, ours in _SAMPLING.items() if theirs in here}
    return {
        "kind": _KINDS[kind],
        "path": str(path),
        **({"sampling": sampling} if sampling and kind == "grm" else {}),
        "engine": engine | {ours: here[theirs] for theirs, ours in _ENGINE.items() if theirs in here},
    }


def _section(section: Mapping[str, Any], key: str, known: Sequence[str]) -> Mapping[str, Any]:
    given = section.get(key) or {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"reward_model.{key}={given!r}: give entries, e.g. reward_model.{key}.{known[0]}=...; known: {', '.join(known)}")
    _check_known(given, known, f"reward_model.{key}")
    return given


def _check_known(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = sorted(set(map(str, given)) - set(known))
    if unknown:
        raise ConfigError([f"{where}.{key}: no such key{did_you_mean(key, list(known))}" for key in unknown])


def _unique(names: Sequence[str], *, taken: Iterable[str]) -> list[str]:
    """Two reward models that share one function still need a name each: judge, judge_2, ..."""
    seen, out = set(taken), list[str]()
    for name in names:
        candidate, count = name, 1
        while candidate in seen:
            count += 1
            candidate = f"{name}_{count}"
        seen.add(candidate)
        out.append(candidate)
    return out


def _number(key: str, lists: _Lists, value: Any, index: int) -> float:
    found = lists.at(key, value, index)
    try:
        return float(found)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}={found!r}: give a number") from error


def _entries(items: Sequence[Any]) -> str:
    return f"{len(items)} entry" if len(items) == 1 else f"{len(items)} entries"


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
