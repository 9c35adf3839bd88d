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

SAMPLING = {
    key: key for key in ("temperature", "top_p", "top_k", "n", "max_tokens", "seed", "stop")
}
"""Entries of reward_vllm_rollout that go to a judge's `sampling` under their own names."""
ENGINE = {"tensor_model_parallel_size": "tensor_parallel_size"} | {
    key: key
    for key in (
        "gpu_memory_utilization",
        "dtype",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
    )
}
"""Entries of reward_vllm_rollout that go to `engine`."""

_ROLLOUT = tuple(
    f"reward_vllm_rollout.{key}"
    for key in (
        *SAMPLING,
        *ENGINE,
        "response_length",
        "rollout_response_length",
        "prompt_length",
        "do_sample",
        "name",
        "engine_kwargs.vllm",
    )
)
_NEWER_ROLLOUT = tuple(
    f"rollout.{key}"
    for key in (
        *SAMPLING,
        *ENGINE,
        "response_length",
        "prompt_length",
        "do_sample",
        "name",
        "engine_kwargs.vllm",
    )
)
_OVERLONG = tuple(
    f"{where}.{key}"
    for where in ("overlong_buffer", "reward_kwargs.overlong_buffer_cfg")
    for key in ("enable", "len", "penalty_factor", "log")
)

FORK_KEYS = (
    "reward_worker_idx", "combine_reward", "reward_model_type", "reward_weight", "reward_combine_func", "reward_function", "use_bge",
    "bge_weight", "reward_vllm_rollout",
)  # fmt: skip
"""Entries that only VeRL-with-RMs has: a line that types one of them has its defaults, and its rule
beside the models."""

TRANSLATED = (
    "enable", "combine_reward", "reward_model_type", "reward_weight", "reward_combine_func", "reward_function", "use_bge", "bge_weight",
    "model.path", "model.tensor_model_parallel_size", "num_workers", "reward_manager", "reward_kwargs.max_resp_len",
    *_OVERLONG, *_ROLLOUT, *_NEWER_ROLLOUT,
)  # fmt: skip

IDLE = (
    "micro_batch_size", "micro_batch_size_per_gpu", "strategy", "model.fsdp_config", "model.input_tokenizer", "reward_worker_idx",
    "model.use_shm", "model.use_remove_padding", "model.use_fused_kernels", "model.enable_gradient_checkpointing",
    "ulysses_sequence_parallel_size", "use_dynamic_bsz", "forward_max_token_len_per_gpu", "forward_micro_batch_size_per_gpu",
    "launch_reward_fn_async", "param_offload", "megatron", "load_weight", "profiler", "profile", "use_reward_loop", "dtype",
    *(
        f"{rollout}.{key}"
        for rollout in ("reward_vllm_rollout", "rollout")
        for key in (
            "reward_batch_name", "rm_prompt_name", "mode", "enforce_eager", "free_cache_engine", "load_format", "layered_summon",
            "log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu",
            "disable_log_stats", "enable_chunked_prefill", "enable_prefix_caching", "val_kwargs", "engine_kwargs.sglang",
            "cudagraph_capture_sizes",
            "data_parallel_size", "expert_parallel_size", "skip_tokenizer_init", "disable_mm_preprocessor_cache",
        )
    ),
)  # fmt: skip
"""Where and how reward models run there. Here they run in inference engines that batch by
themselves and read text, not the policy's tokens; no score depends on these."""

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
ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "model.external_lib": (
        (None,),
        "install models as packages that transformers knows, or allow model.trust_remote_code",
    ),
    "max_length": (
        (None,),
        (
            "nothing is cut before a reward model reads it; inputs longer than"
            " reward.engine.max_model_len have no verdict"
        ),
    ),
    "sandbox_fusion.url": (
        (None,),
        (
            "code is not run in sandboxes here; call the service in a rule,"
            " custom_reward_function.path=<file>"
        ),
    ),
    "sandbox_fusion.max_concurrent": (
        (None, 64),
        "it belongs to sandbox_fusion.url, which has no counterpart here; leave it out",
    ),
    "sandbox_fusion.memory_limit_mb": (
        (None, 1024),
        "it belongs to sandbox_fusion.url, which has no counterpart here; leave it out",
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
    **{
        f"{rollout}.{key}": entry
        for rollout in ("reward_vllm_rollout", "rollout")
        for key, entry in {
            "use_fire_sampling": (
                (False,),
                (
                    "no token has a temperature of its own here; leave it out, or raise the"
                    " temperature"
                ),
            ),
            "ignore_eos": (
                (False,),
                "a judge that goes on behind its end writes no verdict; leave it out",
            ),
            "multi_turn.enable": ((False,), _NO_TOOLS),
            "multi_turn.tool_config_path": ((None,), _NO_TOOLS),
            "multi_turn.completion_callback": ((None,), _NO_TOOLS),
            "multi_turn.max_turns": ((None,), _NO_TOOLS),
            "multi_turn.use_inference_chat_template": ((False,), _NO_TOOLS),
            "multi_turn.enable_tokenization_sanity_check": ((True, False), ""),
        }.items()
    },
}
"""Entry (or a section of them) -> the values that ask for what is always so, and what to do instead
of any other."""


def leaves(section: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """("model.path", value) of every entry typed, in order; what is a list or a table of values is
    one."""
    for name, value in section.items():
        key = f"{where}{name}"
        if isinstance(value, Mapping) and not _known(key, (*TRANSLATED, *IDLE, *ONLY)):
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def problems(section: Mapping[str, Any]) -> list[str]:
    """What is unknown, not a section, or asks for something that is not here: one sentence each."""
    found: list[str] = []
    known = (*TRANSLATED, *IDLE, *ONLY)
    for key, value in leaves(section):
        entry = _known(key, tuple(ONLY))
        below = [each for each in known if each.startswith(f"{key}.")]
        if entry and value not in ONLY[entry][0]:
            found.append(f"reward_model.{key}={value}: {ONLY[entry][1]}")
        elif below and value is not None and not _known(key, known):
            example = below[0].removeprefix(f"{key}.")
            names = ", ".join(
                dict.fromkeys(each.removeprefix(f"{key}.").partition(".")[0] for each in below)
            )
            found.append(
                f"reward_model.{key}={value!r}: give entries, e.g."
                f" reward_model.{key}.{example}=...; known: {names}"
            )
        elif not below and not _known(key, known):
            parent = key.rpartition(".")[0]
            beside = [
                each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == parent
            ]
            found.append(
                f"reward_model.{key}: no such"
                f" key{did_you_mean(key.rpartition('.')[2], beside or list(known))}"
            )
    return found


def idle(section: Mapping[str, Any]) -> list[str]:
    """Entries that were typed and have no effect here, in the order of IDLE."""
    typed = [key for key, _ in leaves(section)]
    return [entry for entry in IDLE if any(_known(key, (entry,)) for key in typed)]


def is_of_the_fork(section: Mapping[str, Any]) -> bool:
    """Whether an entry is typed that only VeRL-with-RMs has."""
    of_model = section.get("model")
    return any(key in section for key in FORK_KEYS) or (
        isinstance(of_model, Mapping) and "tensor_model_parallel_size" in of_model
    )


def given(section: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The entries of a sub-section; {} where none is typed. ConfigError where it is no section."""
    found = section.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ConfigError(problems({key: found}))
    return found


def _known(key: str, known: tuple[str, ...]) -> str:
    """The entry of `known` that is `key` or holds it; "" where there is none."""
    return next((entry for entry in known if key == entry or key.startswith(f"{entry}.")), "")
