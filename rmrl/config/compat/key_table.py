"""Every entry of the older section `reward_model`: translated, without effect here, or refused with
what to use instead.

The entries are those of the section as VeRL-with-RMs and verl have it (their ppo_trainer.yaml and
reward_model.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean


def _below(section: str, *names: str) -> tuple[str, ...]:
    """Keys of the entries `names` of a section."""
    return tuple(f"{section}.{name}" for name in names)


SAMPLING = ("temperature", "top_p", "top_k", "n", "max_tokens", "seed", "stop")
"""Entries of reward_vllm_rollout that move to a judge's `sampling` under the same names."""
ENGINE = {
    "tensor_model_parallel_size": "tensor_parallel_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "dtype": "dtype",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
}
"""Entry of reward_vllm_rollout -> entry of `engine`."""

_ROLLOUT_ENTRIES = (
    *SAMPLING,
    *ENGINE,
    "response_length",
    "prompt_length",
    "do_sample",
    "name",
    "engine_kwargs.vllm",
)
_OVERLONG_ENTRIES = ("enable", "len", "penalty_factor", "log")
_IDLE_ROLLOUT_ENTRIES = (
    "reward_batch_name", "rm_prompt_name", "mode", "enforce_eager", "free_cache_engine", "load_format", "layered_summon",
    "log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu",
    "disable_log_stats", "enable_chunked_prefill", "enable_prefix_caching", "val_kwargs", "engine_kwargs.sglang",
    "cudagraph_capture_sizes",
    "data_parallel_size", "expert_parallel_size", "skip_tokenizer_init", "disable_mm_preprocessor_cache",
)  # fmt: skip

FORK_KEYS = (
    "reward_worker_idx", "combine_reward", "reward_model_type", "reward_weight", "reward_combine_func", "reward_function", "use_bge",
    "bge_weight", "reward_vllm_rollout",
)  # fmt: skip
"""Entries that only VeRL-with-RMs has: a command line with one of them gets its defaults, and its
rule beside the models."""

TRANSLATED = (
    "enable", "combine_reward", "reward_model_type", "reward_weight", "reward_combine_func", "reward_function", "use_bge", "bge_weight",
    "model.path", "model.tensor_model_parallel_size", "num_workers", "reward_manager", "reward_kwargs.max_resp_len",
    *_below("overlong_buffer", *_OVERLONG_ENTRIES), *_below("reward_kwargs.overlong_buffer_cfg", *_OVERLONG_ENTRIES),
    *_below("reward_vllm_rollout", *_ROLLOUT_ENTRIES, "rollout_response_length"), *_below("rollout", *_ROLLOUT_ENTRIES),
)  # fmt: skip

IDLE = (
    "micro_batch_size", "micro_batch_size_per_gpu", "strategy", "model.fsdp_config", "model.input_tokenizer", "reward_worker_idx",
    "model.use_shm", "model.use_remove_padding", "model.use_fused_kernels", "model.enable_gradient_checkpointing",
    "ulysses_sequence_parallel_size", "use_dynamic_bsz", "forward_max_token_len_per_gpu", "forward_micro_batch_size_per_gpu",
    "launch_reward_fn_async", "param_offload", "megatron", "load_weight", "profiler", "profile", "use_reward_loop", "dtype",
    *_below("reward_vllm_rollout", *_IDLE_ROLLOUT_ENTRIES), *_below("rollout", *_IDLE_ROLLOUT_ENTRIES),
)  # fmt: skip
"""Placement and batching of reward models in verl. Here they run in inference engines that form
their own batches and read text, not the policy's tokens; no score depends on these entries."""

_NO_PRIME = (
    "PRIME trains its reward model along with the policy, and reward models are not trained here;"
    " use a trained process reward model, reward.models=[steps] reward.specs.steps={kind: process,"
    " path: <checkpoint>}"
)
_NO_TOOLS = (
    "one response per prompt is sampled here, without turns or tools; leave it out, or stay with a"
    " trainer that runs tools"
)
_NO_POOL = (
    "name a pool with trainer.resource_pools.<pool>.n_gpus_per_node=<devices> and put the engine"
    " into it with reward.engine.pool=<pool>"
)
_ROLLOUT_ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "use_fire_sampling": (
        (False,),
        "all tokens are sampled at one temperature; leave it out, or raise the temperature",
    ),
    "ignore_eos": (
        (False,),
        "a judge that continues past its end of text writes no verdict; leave it out",
    ),
    "multi_turn.enable": ((False,), _NO_TOOLS),
    "multi_turn.tool_config_path": ((None,), _NO_TOOLS),
    "multi_turn.completion_callback": ((None,), _NO_TOOLS),
    "multi_turn.max_turns": ((None,), _NO_TOOLS),
    "multi_turn.use_inference_chat_template": ((False,), _NO_TOOLS),
    "multi_turn.enable_tokenization_sanity_check": ((True, False), ""),
}
ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "model.external_lib": (
        (None,),
        "install models as packages that transformers knows, or allow model.trust_remote_code",
    ),
    "max_length": (
        (None,),
        (
            "the input of a reward model is never truncated; inputs longer than"
            " reward.engine.max_model_len have no verdict"
        ),
    ),
    "sandbox_fusion.url": (
        (None,),
        (
            "programs are run by a reward of kind code: reward.models=[tests]"
            " reward.specs.tests={kind: code, where: sandbox_fusion, url: <the same>, score: share}"
        ),
    ),
    "sandbox_fusion.max_concurrent": (
        (None, 64),
        "give reward.specs.<name>.max_concurrency to a reward of kind code",
    ),
    "sandbox_fusion.memory_limit_mb": (
        (None, 1024),
        "give reward.specs.<name>.extra_body={memory_limit_MB: <n>} to a reward of kind code",
    ),
    "reward_loop_source": ((None,), "name a function with custom_reward_function.path=<file>"),
    "reward_loop_module_path": ((None,), "name a function with custom_reward_function.path=<file>"),
    "reward_loop_class_name": ((None,), "name a function with custom_reward_function.path=<file>"),
    "enable_resource_pool": ((False, None), _NO_POOL),
    "n_gpus_per_node": ((0, None), _NO_POOL),
    "nnodes": ((0, None), _NO_POOL),
    "mini_batch_size": ((None,), _NO_PRIME),
    "model.optim": ((None,), _NO_PRIME),
    "model.update": ((None, "none"), _NO_PRIME),
    "model.beta_train": ((None,), _NO_PRIME),
    "model.loss_type": ((None,), _NO_PRIME),
    "model.ref_path": ((None,), _NO_PRIME),
    "model.ref_type": ((None,), _NO_PRIME),
    "model.prime_granularity": ((None,), _NO_PRIME),
    "model.prime_norm": ((None,), _NO_PRIME),
    "prime_granularity": ((None,), _NO_PRIME),
    "prime_norm": ((None,), _NO_PRIME),
    **dict(zip(_below("reward_vllm_rollout", *_ROLLOUT_ONLY), _ROLLOUT_ONLY.values(), strict=True)),
    **dict(zip(_below("rollout", *_ROLLOUT_ONLY), _ROLLOUT_ONLY.values(), strict=True)),
}
"""Entry (or a section of entries) -> the values that match the only behaviour there is, and the
advice for any other value."""
_ALL = (*TRANSLATED, *IDLE, *ONLY)


def leaves(section: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key and value of every entry that is set, e.g. ("model.path", value), in order; a list
    or a table of values is one entry."""
    for name, value in section.items():
        key = f"{where}{name}"
        if isinstance(value, Mapping) and not _entry_of(key, _ALL):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def problems(section: Mapping[str, Any]) -> list[str]:
    """Return one sentence per entry that is unknown, not a section, or not supported."""
    sentences: list[str] = []
    for key, value in leaves(section):
        entry = _entry_of(key, tuple(ONLY))
        head = f"{key}."
        below = [each.removeprefix(head) for each in _ALL if each.startswith(head)]
        if entry and value not in ONLY[entry][0]:
            sentences.append(f"reward_model.{key}={value}: {ONLY[entry][1]}")
        elif _entry_of(key, _ALL):
            continue
        elif not below:
            parent, _, name = key.rpartition(".")
            siblings = [
                each.rpartition(".")[2] for each in _ALL if each.rpartition(".")[0] == parent
            ]
            suggestion = did_you_mean(name, siblings or list(_ALL))
            sentences.append(f"reward_model.{key}: no such key{suggestion}")
        elif value is not None:
            names = ", ".join(dict.fromkeys(each.partition(".")[0] for each in below))
            sentences.append(
                f"reward_model.{key}={value!r}: give entries, e.g."
                f" reward_model.{key}.{below[0]}=...; known: {names}"
            )
    return sentences


def idle(section: Mapping[str, Any]) -> list[str]:
    """Return the entries that are set and have no effect here, in the order of IDLE."""
    entries = {_entry_of(key, IDLE) for key, _ in leaves(section)}
    return [entry for entry in IDLE if entry in entries]


def is_of_the_fork(section: Mapping[str, Any]) -> bool:
    """Return whether the section has an entry that only VeRL-with-RMs has."""
    model = section.get("model")
    if isinstance(model, Mapping) and "tensor_model_parallel_size" in model:
        return True
    return not section.keys().isdisjoint(FORK_KEYS)


def subsection(section: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the entries of a subsection, {} where it is not set. Raises ConfigError for another
    value."""
    value = section.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(problems({key: value}))
    return value


def _entry_of(key: str, entries: tuple[str, ...]) -> str:
    """Return the entry that is `key` or a section around it; "" where there is none."""
    return next((entry for entry in entries if key == entry or key.startswith(f"{entry}.")), "")
