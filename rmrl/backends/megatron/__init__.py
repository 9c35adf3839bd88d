"""Training through megatron-core: tensor, pipeline, context, expert and data parallel."""
