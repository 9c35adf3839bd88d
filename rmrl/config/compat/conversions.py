"""verl keys whose meaning depends on others: one function each.

A conversion takes `typed`, the keys that it converts with their values, and `values`, the whole
command line's. A key's last value counts, as in Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmrl.config.compat.given_values import override
from rmrl.config.plain_checks import look_up
from rmrl.config.schema import Config

Values = Mapping[str, Any]
_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"
_REF = "actor_rollout_ref.ref"
_CORRECTION = "algorithm.rollout_correction"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"}
_REJECTIONS = {"token_k1": "token", "seq_sum_k1": "sequence", "seq_mean_k1": "geometric"}
_METRICS = {"seq_reward": "reward", "seq_final_reward": "reward"}
_ENGINES = {"vllm_async": "vllm", "sglang_async": "sglang", "trtllm": "vllm"}
_COPIED = {"strategy": "strategy", "megatron": "layout", "fsdp_config": "dtypes"}
_DEVICES = 8
"""verl's default of trainer.n_gpus_per_node."""
_SAME_NUMBERS = {"fsdp": "fsdp2", "veomni": "fsdp2"}
_EXPERTS_CUT = (
    "experts' matrices are cut by tensor_model_parallel_size as the others are; the layout changes"
    " no number"
)
_OF_A_RUN = re.compile(r"global_step_?\d|(^|/)(iter|step)_\d")
"""Folders that training writes, unlike those of a converter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A conversion's result. A key in neither `problems` nor `idle` became an override."""

    overrides: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key -> why it is refused and what to use."""
    idle: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key -> why it has no effect. "": the value is what always holds here."""


def model_engine(typed: Values, values: Values) -> Converted:
    """Set the training backend by its name."""
    del values
    (key, name), *_ = typed.items()
    if name in (None, "dp", "fsdp"):
        return Converted(idle={key: ""})
    if name == "veomni":
        return Converted(
            idle={key: "VeOmni shards a model as FSDP2 does; strategy=fsdp2 is the same training"}
        )
    if name == "megatron":
        return Converted(overrides=(override(f"{_ACTOR}.strategy", "megatron"),))
    return Converted(
        problems={
            key: (
                "training has fsdp2, fsdp and megatron; use actor_rollout_ref.actor.strategy=fsdp2"
                " or megatron"
            )
        }
    )


def global_micro_batch(typed: Values, values: Values) -> Converted:
    """Convert responses per forward pass from all processes to one process."""
    texts: list[str] = []
    idle: dict[str, str] = {}
    for key, total in typed.items():
        if total is None:
            idle[key] = ""
        elif values.get(f"{key}_per_gpu") is None:
            texts.append(override(f"{key}_per_gpu", _per_process(total, values)))
    return Converted(overrides=tuple(texts), idle=idle)


def logprob_batches(typed: Values, values: Values) -> Converted:
    """Choose forward passes by rows or by tokens. The tokens' key has the same name here."""
    texts: list[str] = []
    idle: dict[str, str] = {}
    for part in (_ROLLOUT, _REF):
        dynamic_key = f"{part}.log_prob_use_dynamic_bsz"
        total_key = f"{part}.log_prob_micro_batch_size"
        rows_key = f"{part}.log_prob_micro_batch_size_per_gpu"
        rows = typed.get(rows_key)
        if rows is None and typed.get(total_key) is not None:
            rows = _per_process(typed[total_key], values)
        if typed.get(dynamic_key) is True:
            for key in (total_key, rows_key):
                if key in typed:
                    idle[key] = f"{dynamic_key}=True: micro-batches are cut by tokens alone"
        elif rows is not None:
            texts.append(override(rows_key, rows))
    return Converted(overrides=tuple(texts), idle=idle)


def as_actor(typed: Values, values: Values) -> Converted:
    """Compare the reference's keys with the actor's, which it shares."""
    problems: dict[str, str] = {}
    idle: dict[str, str] = {}
    for key, value in typed.items():
        actor_key = key.replace(_REF, _ACTOR, 1)
        actual = _actor_value(actor_key, values)
        # Names of dtypes and strategies with the same numbers are equal, and so are null, 1, False.
        same = _canonical(value) == _canonical(actual)
        if value is None or actual is None:
            same = value in (None, 1, False) and actual in (None, 1, False)
        if same:
            idle[key] = ""
            continue
        name = _COPIED[key.removeprefix(f"{_REF}.").partition(".")[0]]
        text = "null" if actual is None else actual
        problems[key] = (
            f"the reference has the actor's {name}, and {actor_key} is {text}; leave it out"
        )
    return Converted(problems=problems, idle=idle)


def dist_checkpoint(typed: Values, values: Values) -> Converted:
    """Refuse a distributed Megatron checkpoint that a run saved. One converted from model.path
    holds the same weights."""
    problems: dict[str, str] = {}
    idle: dict[str, str] = {}
    for key, value in typed.items():
        section = key.rpartition(".")[0]
        read = values.get(f"{section}.use_dist_checkpointing") is True
        path = str(values.get(f"{section}.dist_checkpointing_path") or "")
        if not read or value in (None, ""):
            idle[key] = ""
        elif _OF_A_RUN.search(path) and value is not True:
            idle[key] = "named with use_dist_checkpointing"
        elif _OF_A_RUN.search(path):
            problems[key] = (
                f"{path} was saved by a run, and weights are read from model.path: convert it into"
                " a Hugging Face folder, give that as model.path, and leave use_dist_checkpointing"
                " and dist_checkpointing_path out"
            )
        else:
            idle[key] = (
                "a distributed checkpoint is model.path converted for Megatron; the same weights"
                " are read from model.path itself"
            )
    return Converted(problems=problems, idle=idle)


def expert_layout(typed: Values, values: Values) -> Converted:
    """Convert verl's separate tensor parallelism for experts to the other layers', with as many
    processes per expert layer.

        expert_model_parallel_size (rmrl) =
            expert_model_parallel_size (verl) x expert_tensor_parallel_size / tensor_parallel_size
    """
    texts: list[str] = []
    idle: dict[str, str] = {}
    sections = [key.rpartition(".")[0] for key in typed]
    for section in dict.fromkeys(sections):
        count_key = f"{section}.expert_model_parallel_size"
        cut_key = f"{section}.expert_tensor_parallel_size"
        count = typed.get(count_key)
        cut = typed.get(cut_key)
        tensor = values.get(f"{section}.tensor_model_parallel_size") or 1
        if cut_key in typed and (cut in (None, tensor) or count in (None, 1)):
            idle[cut_key] = "" if cut in (None, tensor) else _EXPERTS_CUT
        if count_key in typed:
            processes = (count or 1) * (cut or tensor)
            texts.append(override(count_key, max(1, processes // tensor) if count else count))
    return Converted(overrides=tuple(texts), idle=idle)


def device(typed: Values, values: Values) -> Converted:
    """Refuse devices that only verl supports."""
    del values
    (key, name), *_ = typed.items()
    if name in ("npu", "mlu", "musa", "xpu"):
        return Converted(
            problems={key: "training runs on NVIDIA or AMD GPUs (cuda) and on CPUs (cpu)"}
        )
    return Converted(overrides=(override(key, name),))


def min_lr(typed: Values, values: Values) -> Converted:
    """Convert the final learning rate to a share of the peak."""
    texts: list[str] = []
    for key, last in typed.items():
        optim = key.removesuffix(".min_lr")
        peak = values.get(f"{optim}.lr", look_up(Config(), f"{optim}.lr"))
        ratio = float(last) / float(peak) if peak else 0.0
        texts.append(override(f"{optim}.min_lr_ratio", ratio))
    return Converted(overrides=tuple(texts))


def adam_betas(typed: Values, values: Values) -> Converted:
    """Convert adam_beta1 and adam_beta2 to optim.betas."""
    del values
    texts: list[str] = []
    sections = [key.partition(".override_optimizer_config")[0] for key in typed]
    for optim in dict.fromkeys(sections):
        first, second = look_up(Config(), f"{optim}.betas")
        key = f"{optim}.override_optimizer_config.adam_beta"
        betas = [typed.get(f"{key}1", first), typed.get(f"{key}2", second)]
        texts.append(override(f"{optim}.betas", betas))
    return Converted(overrides=tuple(texts))


def rollout_name(typed: Values, values: Values) -> Converted:
    """Replace verl's other names for an engine."""
    del values
    (key, name), *_ = typed.items()
    return Converted(overrides=(override(key, _ENGINES.get(name, name)),))


def expert_parallel(typed: Values, values: Values) -> Converted:
    """Convert how experts are distributed over an engine's devices."""
    (key, size), *_ = typed.items()
    if size in (None, 1):
        return Converted(idle={key: ""})
    if values.get(f"{_ROLLOUT}.name", "vllm") not in ("vllm", "vllm_async"):
        return Converted(
            idle={
                key: (
                    "the placement of experts in an engine changes no number; use"
                    " rollout.engine_kwargs"
                )
            }
        )
    return Converted(
        overrides=(override(f"{_ROLLOUT}.engine_kwargs.vllm.enable_expert_parallel", True),)
    )


def lengths(typed: Values, values: Values) -> Converted:
    """Compare the lengths below rollout with those below data, which they repeat."""
    problems: dict[str, str] = {}
    idle: dict[str, str] = {}
    for key, value in typed.items():
        data_key = f"data.max_{key.rpartition('.')[2]}"
        actual = values.get(data_key, look_up(Config(), data_key))
        if value in (None, actual):
            idle[key] = ""
        else:
            problems[key] = f"{data_key} is {actual}; give that alone"
    return Converted(problems=problems, idle=idle)


def filter_metric(typed: Values, values: Values) -> Converted:
    """Convert the quantity by which dynamic sampling filters groups."""
    (key, metric), *_ = typed.items()
    if metric == "seq_final_reward" and values.get("algorithm.use_kl_in_reward") is True:
        return Converted(
            problems={
                key: (
                    "groups are chosen before the KL penalty is taken off; use"
                    " algorithm.filter_groups.metric=reward"
                )
            }
        )
    return Converted(overrides=(override(key, _METRICS.get(metric, metric)),))


def rollout_correction(typed: Values, values: Values) -> Converted:
    """Convert rejection by K1 bounds and two-sided thresholds. In verl, weights with two thresholds
    are IcePop's: 0 outside."""
    rejection_key = f"{_CORRECTION}.rollout_rs"
    bound_key = f"{_CORRECTION}.rollout_rs_threshold"
    weight_key = f"{_CORRECTION}.rollout_is_threshold"
    problems: dict[str, str] = {}
    texts: list[str] = []
    rejection = typed.get(rejection_key)
    if rejection not in (None, "token", "sequence", "geometric", *_REJECTIONS):
        problems[rejection_key] = (
            "rejection compares one ratio: use token (token_k1), sequence (seq_sum_k1) or geometric"
            " (seq_mean_k1)"
        )
    elif rejection_key in typed:
        texts.append(override(rejection_key, _REJECTIONS.get(str(rejection), rejection)))
    try:
        weights = _thresholds(weight_key, typed.get(weight_key))
        if isinstance(typed.get(weight_key), str):
            weights.append(override(f"{_CORRECTION}.rollout_is_outside", "zero"))
        texts += weights
    except ValueError:
        problems[weight_key] = "give one number, or lower_upper such as 0.5_5.0"
    if bound_key in typed:
        bound = typed[bound_key]
        if bound is None and rejection is not None:
            bound = values.get(weight_key, 2.0)
        try:
            texts += _thresholds(bound_key, bound)
        except ValueError:
            problems[bound_key] = "give one number, or lower_upper such as 0.5_2.0"
    return Converted(overrides=tuple(texts), problems=problems)


def _thresholds(key: str, value: Any) -> list[str]:
    """Overrides from a number, from "lower_upper", or from None, which sets nothing. Raises
    ValueError for another text."""
    if value is None:
        return []
    if not isinstance(value, str):
        return [override(key, value)]
    lower, _, upper = value.partition("_")
    return [override(key, float(upper)), override(f"{key}_lower", float(lower))]


def bypass(typed: Values, values: Values) -> Converted:
    """Use the rollout engine's log-probabilities as the old policy's."""
    switches = ("bypass_mode", "bypass_old_logprob_for_rollout")
    if not any(typed.get(f"{_CORRECTION}.{name}") for name in switches):
        idle: dict[str, str] = {
            key: "it is read with bypass_mode=True alone" if value else ""
            for key, value in typed.items()
        }
        return Converted(idle=idle)
    problems: dict[str, str] = {}
    for key, value in typed.items():
        name = key.rpartition(".")[2]
        unclipped = name in ("use_policy_gradient", "use_pure_rollout_correction") and value
        if unclipped or (name == "loss_type" and value not in (None, "ppo_clip")):
            problems[key] = (
                "with bypass_mode the loss is the clipped one (ppo_clip); use that, or, for token"
                " weights up to a threshold without clipping, actor.policy_loss.loss_mode=cispo"
                " with actor.clip_ratio_low=1 and actor.clip_ratio_high=<threshold - 1>"
            )
    if values.get(f"{_CORRECTION}.rollout_rs") is not None:
        first_set = next(key for key, value in typed.items() if value)
        problems[first_set] = (
            "rollout_rs rejects by pi_old / pi_rollout, which is 1 with bypass_mode; leave one of"
            " the two out"
        )
    return Converted(
        overrides=() if problems else (override(f"{_CORRECTION}.bypass_mode", True),),
        problems=problems,
    )


def tis_cap(typed: Values, values: Values) -> Converted:
    """Convert an older key for truncated importance weights."""
    del values
    (key, cap), *_ = typed.items()
    if cap is None or cap <= 0:
        return Converted(idle={key: ""})
    return Converted(
        overrides=(
            override(f"{_CORRECTION}.rollout_is", "token"),
            override(f"{_CORRECTION}.rollout_is_threshold", cap),
        )
    )


def gen_batch_size(typed: Values, values: Values) -> Converted:
    """Check how many prompts a dynamic sampling round, or else a step, has."""
    (key, size), *_ = typed.items()
    if size is None:
        return Converted(idle={key: ""})
    if values.get("algorithm.filter_groups.enable") is True:
        return Converted(overrides=(override(key, size),))
    batch = values.get("data.train_batch_size", Config().data.train_batch_size)
    if size == batch:
        return Converted(idle={key: ""})
    return Converted(
        problems={
            key: (
                "without algorithm.filter_groups.enable=True a step samples"
                f" data.train_batch_size={batch} prompts; leave it out"
            )
        }
    )


def critic_checkpoints(typed: Values, values: Values) -> Converted:
    """Check how many critic checkpoints to keep."""
    (key, count), *_ = typed.items()
    if count is None or count == values.get("trainer.max_actor_ckpt_to_keep"):
        return Converted(idle={key: ""})
    return Converted(
        problems={key: "one checkpoint holds policy and critic; use trainer.max_actor_ckpt_to_keep"}
    )


def _per_process(total: Any, values: Values) -> int:
    """Return one process's share in `total` responses, at least 1. The process count defaults to
    verl's."""
    nodes = int(values.get("trainer.nnodes") or 1)
    devices = int(values.get("trainer.n_gpus_per_node") or _DEVICES)
    return max(1, int(total) // max(1, nodes * (devices if devices > 0 else _DEVICES)))


def _actor_value(key: str, values: Values) -> Any:
    """Return the value under one of the actor's keys, or its default; None for an entry in a
    free-form section that is not set."""
    key = key.replace(".mixed_precision.", ".").replace(
        ".fsdp_config.dtype", ".fsdp_config.param_dtype"
    )
    flat = {name.replace(".mixed_precision.", "."): value for name, value in values.items()}
    if key in flat:
        return flat[key]
    if key == f"{_ACTOR}.strategy" and values.get("model_engine") == "megatron":
        return "megatron"
    try:
        return look_up(Config(), key)
    except AttributeError:
        return None


def _canonical(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = _DTYPES.get(value, value)
    return _SAME_NUMBERS.get(name, name)


CONVERSIONS: dict[str, Callable[[Values, Values], Converted]] = {
    "model_engine": model_engine,
    "global_micro_batch": global_micro_batch,
    "logprob_batches": logprob_batches,
    "as_actor": as_actor,
    "min_lr": min_lr,
    "adam_betas": adam_betas,
    "rollout_name": rollout_name,
    "expert_parallel": expert_parallel,
    "lengths": lengths,
    "filter_metric": filter_metric,
    "rollout_correction": rollout_correction,
    "bypass": bypass,
    "tis_cap": tis_cap,
    "gen_batch_size": gen_batch_size,
    "critic_checkpoints": critic_checkpoints,
    "dist_checkpoint": dist_checkpoint,
    "expert_layout": expert_layout,
    "device": device,
}
"""Name in the table -> function."""
