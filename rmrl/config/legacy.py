"""Older key names, translated to ours: `reward_model.*` with one list entry per reward model, and `custom_reward_function.{path,name}`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.schema import Config
from rmrl.errors import ConfigError

_KINDS = {"grm": "generative", "scalar": "bradley_terry", "cloud": "remote"}
_SAMPLING = ("temperature", "top_p", "top_k", "n", "max_tokens", "seed")
_ENGINE = {"gpu_memory_utilization": "gpu_memory_utilization", "tensor_model_parallel_size": "tensor_parallel_size", "dtype": "dtype"}
_KNOWN = ("enable", "reward_model_type", "model", "reward_function", "reward_weight", "reward_combine_func", "combine_reward",
          "reward_vllm_rollout", "micro_batch_size", "micro_batch_size_per_gpu", "strategy")  # fmt: skip


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


def translate(config: Config) -> list[str]:
    """Move older names into `config.reward` in place; returns one notice line per section translated.

    Raises ConfigError when both older and new names are given, lists differ in length, or an older key is unknown.
    """
    notices = _custom_function(config) if config.custom_reward_function.get("path") else []
    if _asked_for(config.reward_model):
        notices += _reward_model(config)
    return notices


def _asked_for(section: dict[str, Any]) -> bool:
    return bool(section) and section.get("enable", True) not in (False, None)


def _custom_function(config: Config) -> list[str]:
    path = Path(str(config.custom_reward_function["path"]))
    name = path.stem
    attribute = config.custom_reward_function.get("name") or "compute_score"
    config.reward.models = [*config.reward.models, name]
    config.reward.specs = {**config.reward.specs, name: {"kind": "rule", "function": f"{path}:{attribute}"}}
    return [f"custom_reward_function.path={path} is now reward.models=[{name}]"]


def _reward_model(config: Config) -> list[str]:
    section, reward = config.reward_model, config.reward
    unknown = sorted(set(section) - set(_KNOWN))
    if unknown:
        raise ConfigError([f"reward_model.{key}: no such key; known: {', '.join(_KNOWN)}" for key in unknown])
    rules = list(reward.models)
    if rules and not config.custom_reward_function.get("path"):
        raise ConfigError("both reward.models and the older reward_model.* are given: use one of them")
    paths = _as_list((section.get("model") or {}).get("path"))
    functions = _as_list(section.get("reward_function")) or [Path(str(p)).name for p in paths]
    if not paths or len(paths) != len(functions):
        raise ConfigError(
            f"reward_model.model.path has {len(paths)} entries and reward_model.reward_function {len(functions)}: "
            "give one checkpoint and one function per reward model"
        )
    lists = _Lists(len(paths))
    specs = {f: _spec(section, lists, i, path=p, function=f) for i, (f, p) in enumerate(zip(functions, paths, strict=True))}
    keep_rules = rules if section.get("combine_reward", True) else []
    weights = [float(lists.at("reward_model.reward_weight", section.get("reward_weight", 1.0), i)) for i in range(lists.count)]
    ops = [str(lists.at("reward_model.reward_combine_func", section.get("reward_combine_func", "add"), i)) for i in range(lists.count)]
    reward.models = [*keep_rules, *functions]
    reward.weights = [1.0] * len(keep_rules) + weights
    reward.specs = {**reward.specs, **specs}
    reward.combine, reward.combine_ops = "fold", ["add"] * len(keep_rules) + ops
    return [
        f"reward_model.* is now reward.models=[{','.join(reward.models)}] reward.weights={reward.weights} reward.combine=fold "
        f"reward.combine_ops={reward.combine_ops}"
    ]


def _spec(section: dict[str, Any], lists: _Lists, index: int, *, path: str, function: str) -> dict[str, Any]:
    rollout = section.get("reward_vllm_rollout") or {}
    here = {key: lists.at(f"reward_model.reward_vllm_rollout.{key}", value, index) for key, value in rollout.items()}
    kind = str(lists.at("reward_model.reward_model_type", section.get("reward_model_type", "grm"), index))
    if kind not in _KINDS:
        raise ConfigError(f"reward_model.reward_model_type={kind}: not a choice; known: {', '.join(_KINDS)}")
    tensor_parallel = (section.get("model") or {}).get("tensor_model_parallel_size")
    engine = {"tensor_parallel_size": lists.at("reward_model.model.tensor_model_parallel_size", tensor_parallel, index)} if tensor_parallel else {}
    return {
        "kind": _KINDS[kind],
        "path": str(path),
        "function": function,
        "sampling": {key: here[key] for key in _SAMPLING if key in here},
        "engine": engine | {ours: here[theirs] for theirs, ours in _ENGINE.items() if theirs in here},
    }


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
