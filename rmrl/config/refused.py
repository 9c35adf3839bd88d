"""Keys that users of similar trainers type and that have no effect here: refused with what to use instead, never ignored silently."""

from __future__ import annotations

from typing import Any

# Entries of `megatron` of the policy and of the critic.
_OF_MEGATRON: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_mbridge": ((True, False), ""),  # Hugging Face's checkpoints are always read and written
    "use_dist_checkpointing": ((False,), "training starts from model.path, a Hugging Face checkpoint; leave it out"),
    "dist_checkpointing_path": ((None,), "training starts from model.path, a Hugging Face checkpoint; leave it out"),
    "expert_tensor_parallel_size": ((None,), "experts' matrices are cut by tensor_model_parallel_size, as the others; leave it out"),
    "seed": ((), "use trainer.seed"),
}
# key -> (values that ask for nothing and are accepted, sentence). "" as a sentence: accepted, because what it asks for is always so.
_TABLE: dict[str, tuple[tuple[Any, ...], str]] = {
    **{f"{part}.megatron.{name}": entry for part in ("actor_rollout_ref.actor", "critic") for name, entry in _OF_MEGATRON.items()},
    "trainer.default_hdfs_dir": ((None,), "copies to HDFS are not made; use trainer.default_local_dir on a mounted folder"),
    "trainer.balance_batch": ((True,), "batches are always balanced over processes by length; leave it out"),
    "trainer.max_critic_ckpt_to_keep": ((None,), "one checkpoint holds policy and critic; use trainer.max_actor_ckpt_to_keep"),
    "trainer.rollout_data_dir": (
        (None,),
        "scored samples are always written to <output>/samples.jsonl; use trainer.rollout_samples_per_step",
    ),
    "trainer.validation_data_dir": ((None,), "validation samples are always written to <output>/val_samples.jsonl"),
    "data.validation_shuffle": ((False,), "validation rows keep their order; shuffle the file instead"),
    "data.return_raw_input_ids": ((True, False), ""),
    "data.return_raw_chat": ((True, False), ""),
    "data.return_full_prompt": ((True, False), ""),
    "data.dataloader_num_workers": ((0,), "rows are tokenized once, before training; leave it out"),
    "data.filter_overlong_prompts_workers": ((), ""),
    "data.custom_cls.path": ((None,), "bring rows in the parquet schema instead; see data_preprocess/"),
    "data.custom_cls.name": ((None,), "bring rows in the parquet schema instead; see data_preprocess/"),
    "actor_rollout_ref.model.use_liger": ((False,), "fused kernels are not used; leave it out"),
    "actor_rollout_ref.model.use_fused_kernels": ((False,), "fused kernels are not used; leave it out"),
    "actor_rollout_ref.model.external_lib": (
        (None,),
        "install models as packages that transformers knows, or allow model.trust_remote_code",
    ),
    "actor_rollout_ref.model.is_custome_model": ((True, False), ""),  # its chat template is the tokenizer's there, too
    "actor_rollout_ref.rollout.mode": (("async",), "the rollout engine is always asynchronous; leave it out"),
    "actor_rollout_ref.rollout.calculate_log_probs": ((True,), "rollout logprobs are always returned; leave it out"),
}
_SECTIONS = {
    "actor_rollout_ref.ref.megatron": "the reference has the actor's layout (actor.megatron); use actor_rollout_ref.ref.param_offload",
    "actor_rollout_ref.ref.strategy": "the reference has the actor's strategy (actor.strategy); leave it out",
    "actor_rollout_ref.ref.fsdp_config": "use actor_rollout_ref.ref.param_offload",
    "actor_rollout_ref.actor.checkpoint.load_contents": "everything saved is loaded; use actor.checkpoint.save_contents",
    "actor_rollout_ref.actor.checkpoint.async_save": "checkpoints are written before the next step starts; leave it out",
}


def refusal(key: str, value: Any) -> str | None:
    """None: `key` is not in the table. "": accepted, because it asks for what is always so. Else: why not and what to type."""
    if key in _TABLE:
        accepted, sentence = _TABLE[key]
        return "" if value in accepted or not sentence else f"{key}={value}: {sentence}"
    for section, sentence in _SECTIONS.items():
        if key == section or key.startswith(section + "."):
            return "" if value is None or value is False else f"{key}={value}: {sentence}"
    return None
