"""Names that this package uses from megatron-core, imported in the one order that works without
CUDA: the adaptation first.

The package's other files take megatron-core's names from here.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import warnings

from rmrl.backends.megatron import cpu
from rmrl.errors import first_line

transformer_engine_error = ""
"""Error of an installed TransformerEngine's import with which that of megatron-core would end: it
does without the library after an ImportError alone, and kernels that do not fit torch are an
OSError."""
if importlib.util.find_spec("transformer_engine") is not None:
    try:
        importlib.import_module("transformer_engine.pytorch")
    except ImportError:
        pass
    except Exception as _error:  # whatever it is, training can do without
        transformer_engine_error = f"{type(_error).__name__}: {first_line(_error)}"
        sys.modules["transformer_engine"] = None  # type: ignore[assignment]  (an ImportError)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about libraries that are not installed and not needed
    cpu.install()

    from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.mlp import MLPSubmodules
    from megatron.core.transformer.moe.experts import TEGroupedMLP
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import (
        TransformerBlockSubmodules,
        get_num_layers_to_build,
    )
    from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

__all__ = [
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "GPTModel",
    "IdentityOp",
    "MLPSubmodules",
    "ModuleSpec",
    "OptimizerConfig",
    "PackedSeqParams",
    "TEGroupedMLP",
    "TransformerBlockSubmodules",
    "TransformerConfig",
    "dist_checkpointing",
    "finalize_model_grads",
    "get_forward_backward_func",
    "get_gpt_layer_local_spec",
    "get_megatron_optimizer",
    "get_num_layers_to_build",
    "make_sharded_tensors_for_checkpoint",
    "parallel_state",
    "tensor_parallel",
    "transformer_engine_error",
]

ADVICE_TO_OTHERS = {
    # The supported versions have it; the class that comes after it is not in all of them.
    "megatron.core.models.gpt.gpt_model": "GPTModel IS DEPRECATED",
    "megatron.core.distributed.distributed_data_parallel": "full_param_layout not provided",
}
"""Loggers of megatron-core -> start of a message that is left out of a run's log."""

# torch's own renaming of collectives that megatron-core calls by their older names.
warnings.filterwarnings(
    "ignore", message=r"`torch\.distributed\.\w+` is deprecated", category=FutureWarning
)
for _logger, _start in ADVICE_TO_OTHERS.items():
    logging.getLogger(_logger).addFilter(
        lambda record, start=_start: start not in record.getMessage()
    )
