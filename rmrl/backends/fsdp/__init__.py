"""Sharded training through torch.distributed: FSDP2 (`fully_shard`), the same calls on CPU with
gloo and on CUDA with NCCL."""
