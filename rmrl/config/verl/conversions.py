"""Keys of verl whose meaning depends on others: one function each.

A function gets its own keys with their values and those of the whole command line; the last value
of a key counts, as for Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmrl.config.plain_checks import look_up
from rmrl.config.schema import Config
from rmrl.config.verl.given import override

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
"""Folders that training writes, not a converter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a conversion makes of its keys. A key that stands nowhere here has become part of
    `overrides`."""

    overrides: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key -> why it is refused and what to use."""
    idle: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key -> why it has no effect; "": it asks for what is so anyway."""


def model_engine(own: Values, values: Values) -> Converted:
    """The training backend by its name."""
    del values
    (key, name), *_ = own.items()
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


def global_micro_batch(own: Values, values: Values) -> Converted:
    """Responses per forward pass over all processes -> of one process."""
    texts: list[str] = []
    for key, total in own.items():
        if total is not None and values.get(f"{key}_per_gpu") is None:
            texts.append(override(f"{key}_per_gpu", _per_process(total, values)))
    return Converted(
        overrides=tuple(texts), idle={key: "" for key, total in own.items() if total is None}
    )


def logprob_batches(own: Values, values: Values) -> Converted:
    """Forward passes by rows or by tokens; the tokens' own key has the same name here."""
    texts: list[str] = []
    idle: dict[str, str] = {}
    for part in (_ROLLOUT, _REF):
        keys = {
            name: f"{part}.log_prob_{name}"
            for name in ("use_dynamic_bsz", "micro_batch_size", "micro_batch_size_per_gpu")
        }
        rows = own.get(keys["micro_batch_size_per_gpu"])
        if rows is None and own.get(keys["micro_batch_size"]) is not None:
            rows = _per_process(own[keys["micro_batch_size"]], values)
        if own.get(keys["use_dynamic_bsz"]) is True:
            reason = f"{keys['use_dynamic_bsz']}=True: micro-batches are cut by tokens alone"
            idle |= {
                keys[name]: reason
                for name in ("micro_batch_size", "micro_batch_size_per_gpu")
                if keys[name] in own
            }
        elif rows is not None:
            texts.append(override(keys["micro_batch_size_per_gpu"], rows))
    return Converted(overrides=tuple(texts), idle=idle)


def as_actor(own: Values, values: Values) -> Converted:
    """Keys of the reference, which has what the actor has."""
    problems: dict[str, str] = {}
    for key, value in own.items():
        ours = key.replace(_REF, _ACTOR, 1)
        actual = _of_actor(ours, values)
        if not _alike(value, actual):
            what = _COPIED[key.removeprefix(f"{_REF}.").partition(".")[0]]
            problems[key] = (
                f"the reference has the actor's {what}, and {ours} is {_shown(actual)}; leave"
                " it out"
            )
    return Converted(problems=problems, idle={key: "" for key in own if key not in problems})


def dist_checkpoint(own: Values, values: Values) -> Converted:
    """Weights of a distributed Megatron checkpoint: one that was made of model.path holds the same,
    one that a run saved holds others."""
    problems: dict[str, str] = {}
    idle: dict[str, str] = {}
    for key, value in own.items():
        section = key.rpartition(".")[0]
        read = values.get(f"{section}.use_dist_checkpointing") is True
        path = str(values.get(f"{section}.dist_checkpointing_path") or "")
        if not read or value in (None, ""):
            idle[key] = ""
        elif _OF_A_RUN.search(path) and value is not True:
            idle[key] = "named with use_dist_checkpointing"
        elif _OF_A_RUN.search(path):
            problems[key] = (
                f"{path} is of a run, and weights are read from model.path: convert it into a"
                " Hugging Face folder, give that as model.path, and leave use_dist_checkpointing"
                " and dist_checkpointing_path out"
            )
        else:
            idle[key] = (
                "a distributed checkpoint is model.path converted for Megatron; the same weights"
                " are read from model.path itself"
            )
    return Converted(problems=problems, idle=idle)


def expert_layout(own: Values, values: Values) -> Converted:
    """Shares of the experts: verl's own tensor parallelism of theirs -> that of the other layers,
    with as many processes to a layer's experts.

        expert_model_parallel_size here = there x expert_tensor_parallel_size / tensor_parallel_size
    """
    texts: list[str] = []
    idle: dict[str, str] = {}
    for section in dict.fromkeys(key.rpartition(".")[0] for key in own):
        count_key = f"{section}.expert_model_parallel_size"
        cut_key = f"{section}.expert_tensor_parallel_size"
        count = own.get(count_key)
        cut = own.get(cut_key)
        tensor = values.get(f"{section}.tensor_model_parallel_size") or 1
        if cut_key in own and (cut in (None, tensor) or count in (None, 1)):
            idle[cut_key] = "" if cut in (None, tensor) else _EXPERTS_CUT
        if count_key in own:
            processes = (count or 1) * (cut or tensor)
            texts.append(override(count_key, max(1, processes // tensor) if count else count))
    return Converted(overrides=tuple(texts), idle=idle)


def device(own: Values, values: Values) -> Converted:
    """Kinds of devices that verl knows and rmrl does not."""
    del values
    (key, name), *_ = own.items()
    if name in ("npu", "mlu", "musa", "xpu"):
        return Converted(
            problems={key: "training runs on NVIDIA or AMD GPUs (cuda) and on CPUs (cpu)"}
        )
    return Converted(overrides=(override(key, name),))


def min_lr(own: Values, values: Values) -> Converted:
    """The last learning rate -> its share of the first."""
    texts: list[str] = []
    for key, last in own.items():
        optim = key.removesuffix(".min_lr")
        first = values.get(f"{optim}.lr", look_up(Config(), f"{optim}.lr"))
        texts.append(
            override(f"{optim}.min_lr_ratio", float(last) / float(first) if first else 0.0)
        )
    return Converted(overrides=tuple(texts))


def adam_betas(own: Values, values: Values) -> Converted:
    """adam_beta1 and adam_beta2 -> optim.betas."""
    del values
    texts: list[str] = []
    for optim in dict.fromkeys(key.partition(".override_optimizer_config")[0] for key in own):
        default = look_up(Config(), f"{optim}.betas")
        names = [f"{optim}.override_optimizer_config.adam_beta{number}" for number in (1, 2)]
        texts.append(
            override(
                f"{optim}.betas",
                [own.get(name, beta) for name, beta in zip(names, default, strict=True)],
            )
        )
    return Converted(overrides=tuple(texts))


def rollout_name(own: Values, values: Values) -> Converted:
    """Engines under verl's other names for them."""
    del values
    (key, name), *_ = own.items()
    return Converted(overrides=(override(key, _ENGINES.get(name, name)),))


def expert_parallel(own: Values, values: Values) -> Converted:
    """How vLLM spreads experts over the devices of an engine."""
    (key, size), *_ = own.items()
    if size in (None, 1):
        return Converted(idle={key: ""})
    if values.get(f"{_ROLLOUT}.name", "vllm") not in ("vllm", "vllm_async"):
        return Converted(
            idle={
                key: (
                    "how an engine spreads its experts changes no number; use rollout.engine_kwargs"
                )
            }
        )
    return Converted(
        overrides=(override(f"{_ROLLOUT}.engine_kwargs.vllm.enable_expert_parallel", True),)
    )


def lengths(own: Values, values: Values) -> Converted:
    """Lengths that stand a second time below rollout."""
    problems: dict[str, str] = {}
    for key, value in own.items():
        ours = f"data.max_{key.rpartition('.')[2]}"
        actual = values.get(ours, look_up(Config(), ours))
        if value is not None and value != actual:
            problems[key] = f"{ours} is {actual}; give that alone"
    return Converted(problems=problems, idle={key: "" for key in own if key not in problems})


def filter_metric(own: Values, values: Values) -> Converted:
    """What dynamic sampling looks at."""
    (key, metric), *_ = own.items()
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


def rollout_correction(own: Values, values: Values) -> Converted:
    """Rejection by K1 bounds and two-sided thresholds."""
    keys = {
        name: f"{_CORRECTION}.{name}"
        for name in ("rollout_rs", "rollout_rs_threshold", "rollout_is_threshold")
    }
    problems: dict[str, str] = {}
    texts: list[str] = []
    rejection = own.get(keys["rollout_rs"])
    if rejection not in (None, "token", "sequence", "geometric", *_REJECTIONS):
        problems[keys["rollout_rs"]] = (
            "rejection looks at one ratio: use token (token_k1), sequence (seq_sum_k1) or geometric"
            " (seq_mean_k1)"
        )
    elif keys["rollout_rs"] in own:
        texts.append(override(keys["rollout_rs"], _REJECTIONS.get(str(rejection), rejection)))
    weights = own.get(keys["rollout_is_threshold"])
    if isinstance(weights, str):
        problems[keys["rollout_is_threshold"]] = (
            "weights are cut off above one number and none is set to 0; use e.g."
            " rollout_is_threshold=4.0, and rollout_rs=token with rollout_rs_threshold and"
            " rollout_rs_threshold_lower to leave tokens out"
        )
    elif weights is not None:
        texts.append(override(keys["rollout_is_threshold"], weights))
    if keys["rollout_rs_threshold"] in own:
        bound = own[keys["rollout_rs_threshold"]]
        bound = (
            values.get(keys["rollout_is_threshold"], 2.0)
            if bound is None and rejection is not None
            else bound
        )
        overrides = _bounds(bound)
        if overrides is None:
            problems[keys["rollout_rs_threshold"]] = (
                "give one number, or lower_upper such as 0.5_2.0"
            )
        texts += overrides or []
    return Converted(overrides=tuple(texts), problems=problems)


def bypass(own: Values, values: Values) -> Converted:
    """The rollout engine's log-probabilities as those of the old policy."""
    by_name = {key.rpartition(".")[2]: value for key, value in own.items()}
    on = bool(by_name.get("bypass_mode") or by_name.get("bypass_old_logprob_for_rollout"))
    if not on:
        return Converted(
            idle={
                key: "it is read with bypass_mode=True alone" if value else ""
                for key, value in own.items()
            }
        )
    problems: dict[str, str] = {}
    for key, value in own.items():
        name = key.rpartition(".")[2]
        unclipped = name in ("use_policy_gradient", "use_pure_rollout_correction") and value
        if unclipped or (name == "loss_type" and value not in (None, "ppo_clip")):
            problems[key] = (
                "with bypass_mode the loss is the clipped one (ppo_clip); use that, or"
                " bypass_mode=False with rollout_is and actor.policy_loss.loss_mode=gpg for a loss"
                " without clipping"
            )
    if values.get(f"{_CORRECTION}.rollout_rs") is not None:
        wrong = next(key for key, value in own.items() if value)
        problems[wrong] = (
            "rollout_rs rejects by pi_old / pi_rollout, which is 1 with bypass_mode; leave one of"
            " the two out"
        )
    return Converted(
        overrides=() if problems else (override(f"{_CORRECTION}.bypass_mode", True),),
        problems=problems,
    )


def tis_cap(own: Values, values: Values) -> Converted:
    """An older key of truncated importance weights."""
    del values
    (key, cap), *_ = own.items()
    if cap is None or cap <= 0:
        return Converted(idle={key: ""})
    return Converted(
        overrides=(
            override(f"{_CORRECTION}.rollout_is", "token"),
            override(f"{_CORRECTION}.rollout_is_threshold", cap),
        )
    )


def gen_batch_size(own: Values, values: Values) -> Converted:
    """Prompts that are sampled at a time: of a round of dynamic sampling, else of a step."""
    (key, size), *_ = own.items()
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


def critic_checkpoints(own: Values, values: Values) -> Converted:
    """How many of the critic's checkpoints stay."""
    (key, count), *_ = own.items()
    if count is None or count == values.get("trainer.max_actor_ckpt_to_keep"):
        return Converted(idle={key: ""})
    return Converted(
        problems={key: "one checkpoint holds policy and critic; use trainer.max_actor_ckpt_to_keep"}
    )


def _per_process(total: Any, values: Values) -> int:
    """Of a number of responses over all processes, at least 1. Where the processes are not typed
    they are verl's default."""
    nodes = int(values.get("trainer.nnodes") or 1)
    devices = int(values.get("trainer.n_gpus_per_node") or _DEVICES)
    return max(1, int(total) // max(1, nodes * (devices if devices > 0 else _DEVICES)))


def _of_actor(key: str, values: Values) -> Any:
    """Value of a key of the actor, or its default; None for an entry of a free-form section that is
    not given."""
    key = key.replace(".mixed_precision.", ".").replace(
        ".fsdp_config.dtype", ".fsdp_config.param_dtype"
    )
    given = {name.replace(".mixed_precision.", "."): value for name, value in values.items()}
    if key in given:
        return given[key]
    if key == f"{_ACTOR}.strategy" and values.get("model_engine") == "megatron":
        return "megatron"
    try:
        return look_up(Config(), key)
    except AttributeError:
        return None


def _alike(one: Any, other: Any) -> bool:
    """Equal, up to names of dtypes and strategies with the same numbers; no size is 1."""
    if one is None or other is None:
        return all(value in (None, 1, False) for value in (one, other))
    return _plain(one) == _plain(other)


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = _DTYPES.get(value, value)
    return _SAME_NUMBERS.get(name, name)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _bounds(bound: Any) -> list[str] | None:
    """Overrides for a threshold; None for what is none."""
    key = f"{_CORRECTION}.rollout_rs_threshold"
    if bound is None:
        return []
    if not isinstance(bound, str):
        return [override(key, bound)]
    lower, _, upper = bound.partition("_")
    try:
        return [override(key, float(upper)), override(f"{key}_lower", float(lower))]
    except ValueError:
        return None


CONVERSIONS: dict[str, Callable[[Values, Values], Converted]] = {
    function.__name__: function
    for function in (
        model_engine, global_micro_batch, logprob_batches, as_actor, min_lr, adam_betas, rollout_name, expert_parallel, lengths,
        filter_metric, rollout_correction, bypass, tis_cap, gen_batch_size, critic_checkpoints,
        dist_checkpoint, expert_layout, device,
    )
}  # fmt: skip
"""Name in the table -> function."""
