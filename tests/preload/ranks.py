"""What a training process imports."""

from tests.fork_server import preloaded

STATE = preloaded(
    "numpy",
    "torch",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3_moe.modeling_qwen3_moe",
    "rmrl.backends",
    "rmrl.backends.fsdp.part",
    "rmrl.backends.megatron.core",
    "rmrl.config.schema",
)
