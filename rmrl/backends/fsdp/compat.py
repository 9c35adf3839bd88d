"""The compatibility layer over torch.distributed: everything that differs between devices, and every call whose name may change with torch.

CPU processes talk through gloo, CUDA processes through NCCL (and gloo for what lies in host memory); nothing above this file asks which.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from rmrl.backends.base import ProcessSettings
from rmrl.errors import ConfigError

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def join_group(process: ProcessSettings, device: str) -> torch.device:
    """Join the process group (once per process; a second engine shares it) and return this process's device."""
    if device == "cuda":
        _require_cuda(process.local_rank)
        torch.cuda.set_device(process.local_rank)
    if process.threads is not None:
        torch.set_num_threads(process.threads)
    if dist.is_initialized():
        assert dist.get_world_size() == process.world_size, "the process group of this process has another size"
    else:
        dist.init_process_group(
            BACKENDS[device],
            init_method=process.init_method or f"tcp://127.0.0.1:{_free_port(process)}",
            rank=process.rank,
            world_size=process.world_size,
            timeout=timedelta(seconds=process.timeout_s),
        )
    return torch.device("cuda", process.local_rank) if device == "cuda" else torch.device("cpu")


def leave_group() -> None:
    """Leave the process group; does nothing outside one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _require_cuda(local_rank: int) -> None:
    if not torch.cuda.is_available():
        raise ConfigError("trainer.device=cuda, but torch sees no CUDA device: set trainer.device=cpu, or install a CUDA build of torch")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(f"training process {local_rank} of this machine has no GPU (torch sees {torch.cuda.device_count()}): "
                          f"set trainer.n_gpus_per_node={torch.cuda.device_count()}")  # fmt: skip


def _free_port(process: ProcessSettings) -> int:
    if process.world_size > 1:
        raise ValueError(f"a group of {process.world_size} processes needs ProcessSettings.init_method, e.g. tcp://127.0.0.1:29500")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def device_mesh(device: str, fsdp_size: int) -> DeviceMesh:
    """All processes in one shard group, or replicas of shard groups of `fsdp_size` processes. Raises ConfigError if it does not divide."""
    world = dist.get_world_size()
    if fsdp_size in (-1, world):
        return init_device_mesh(device, (world,), mesh_dim_names=("shard",))
    if fsdp_size < 1 or world % fsdp_size:
        raise ConfigError(
            f"actor_rollout_ref.actor.fsdp_config.fsdp_size={fsdp_size} does not divide the {world} training processes: "
            f"set fsdp_size=-1 (all of them) or to a divisor of {world}"
        )
    return init_device_mesh(device, (world // fsdp_size, fsdp_size), mesh_dim_names=("replicate", "shard"))


def shard(
    model: nn.Module, *, mesh: DeviceMesh, param_dtype: torch.dtype | None, reduce_dtype: torch.dtype, reshard_after_forward: bool
) -> None:
    """Shard `model` in place: each decoder layer is a unit, the rest (embedding, norm, head) belongs to the root.

    Parameters keep their dtype as master weights; compute runs in `param_dtype` (None: the master's). The root stays gathered between
    its forward and backward pass, since it is needed again at once; `free_gathered` frees it where no backward pass follows.
    """
    policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks: the longest list of modules that is not inside another (experts are inside their layer)."""
    return list(max(_outer_lists(model), key=len, default=nn.ModuleList()))


def _outer_lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outer_lists(child)


def free_gathered(model: nn.Module) -> None:
    """Back to shards everywhere: frees the gathered root, and makes `parameters()` the shards that checkpoints and exports read."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def full_tensor(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The whole tensor on every process, cast to `dtype` before it travels. All processes must call this together."""
    local = tensor.detach() if dtype is None or not tensor.is_floating_point() else tensor.detach().to(dtype)
    return local.full_tensor() if isinstance(local, DTensor) else local


def full_tensors(named: Iterable[tuple[str, Tensor]], dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Gather one tensor after another, so that memory holds one whole tensor at a time."""
    for name, tensor in named:
        yield name, full_tensor(tensor, dtype)


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """Scale the gradients to a global norm of at most `max_norm` (0 or less: leave them) and return the norm before; may be nan or inf.

    Gradients of a non-finite norm are left alone.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    if max_norm > 0 and math.isfinite(norm.item()):
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()


def all_sum(values: Sequence[float], device: torch.device) -> list[float]:
    """Sums over all processes, in float64."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.tolist()


def all_max(value: int, device: torch.device) -> int:
    """The largest value of all processes."""
    largest = torch.tensor(value, device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest.item())


def barrier(device: torch.device) -> None:
    """Wait for all processes, at most the group's timeout."""
    all_max(0, device)


def move_model(model: nn.Module, device: torch.device) -> None:
    """Move the shards of parameters and their gradients; gathered copies are freed first."""
    free_gathered(model)
    model.to(device)


def move_optimizer(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move the optimizer's tensors; step counters stay where the optimizer wants them."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim > 0:
                state[name] = value.to(device, non_blocking=True)


def settle() -> None:
    """Wait for copies under way and give device memory that no tensor uses back to the other processes of the device (CUDA)."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
