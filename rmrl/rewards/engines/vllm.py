"""Reward models on vLLM, in this process: generative judges and scalar heads, chosen by `spec.runner`.

Scalars are raw logits: vLLM's own default passes them through a sigmoid, which saturates and cannot be undone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rmrl.errors import EngineLoadError, InfrastructureError, RmrlError
from rmrl.models.checkpoint_inspect import architecture, check_scalar_head
from rmrl.rewards.engines.base import (
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
    TextOutput,
    ValueOutput,
    overlong_texts,
    overlong_value,
)
from rmrl.serving.arguments import ServingSettings, engine_arguments
from rmrl.serving.sampling import sampling_params

Result = TypeVar("Result")

_REASON_CHARACTERS = 1500


class VLLMEngine:
    """A `RewardEngine` on vLLM. The process must have been given `serving.environment.engine_environment`."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._llm: Any = None
        self._asleep = 0
        self._per_token = False

    def start(self) -> None:
        """Check the checkpoint, then load it.

        Raises RewardError when a scalar head is missing and EngineLoadError, with the end of vLLM's own reason, when loading fails.
        """
        if self.spec.runner == "pooling":
            check_scalar_head(self.spec.path)
            self._per_token = architecture(self.spec.path).endswith("ForTokenClassification")
        self.context_length = self.spec.context_length()
        arguments = engine_arguments(_settings(self.spec, self.context_length))
        if self.spec.runner == "pooling":
            arguments["pooler_config"] = {"use_activation": False, "task": self._task} | dict(arguments.get("pooler_config") or {})
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            from vllm import LLM

            self._llm = LLM(**arguments)
        except Exception as error:  # vLLM raises every kind of error here
            reason = f"{type(error).__name__}: {error}"[-_REASON_CHARACTERS:]
            raise EngineLoadError(
                f"vLLM could not load '{self.spec.path}' as a {self.spec.runner} model on {self.spec.device}: {reason}"
            ) from error

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """See `RewardEngine.generate`; all requests are batched, whatever their sampling."""
        fits = [len(r.token_ids) < self.context_length for r in requests]
        run = [r for r, ok in zip(requests, fits, strict=True) if ok]
        prompts = [{"prompt_token_ids": list(r.token_ids)} for r in run]
        params = [sampling_params(r.sampling) for r in run]
        answers = self._guarded(lambda: self._llm.generate(prompts, params, use_tqdm=False)) if run else []
        texts = iter([_texts(r, a) for r, a in zip(run, answers, strict=True)])
        return [next(texts) if ok else overlong_texts(r, self.context_length) for r, ok in zip(requests, fits, strict=True)]

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """See `RewardEngine.classify`; a token-level head is read at the last token."""
        fits = [0 < len(r.token_ids) <= self.context_length for r in requests]
        run = [r for r, ok in zip(requests, fits, strict=True) if ok]
        values = iter(self._guarded(lambda: self._values(run)) if run else [])
        return [ValueOutput(next(values), len(r.token_ids)) if ok else overlong_value(r, self.context_length) for r, ok in zip(requests, fits, strict=True)]

    def sleep(self, level: int = 1) -> None:
        """1: weights stay in host memory, the KV cache is freed; 2: weights are dropped as well."""
        if level > self._asleep:
            if self._asleep:
                self.wake()
            self._guarded(lambda: self._llm.sleep(level=level))
            self._asleep = level

    def wake(self) -> None:
        """Undo `sleep`; after level 2 the weights are read from the checkpoint again."""
        if self._asleep >= 2:
            self._guarded(lambda: self._llm.wake_up(tags=["weights"]))
            self._guarded(lambda: self._llm.collective_rpc("reload_weights"))
            self._guarded(lambda: self._llm.wake_up(tags=["kv_cache"]))
        elif self._asleep:
            self._guarded(self._llm.wake_up)
        self._asleep = 0

    def resident_bytes(self) -> int:
        """Summed over the workers of a tensor-parallel group."""
        return sum(self._guarded(lambda: self._llm.collective_rpc("worker_bytes")))

    def ping(self) -> str:
        """ "cold", "awake" or "asleep <level>"."""
        if self._llm is None:
            return "cold"
        return f"asleep {self._asleep}" if self._asleep else "awake"

    @property
    def _task(self) -> str:
        return "token_classify" if self._per_token else "classify"

    def _values(self, requests: Sequence[PoolingRequest]) -> list[float]:
        prompts = [{"prompt_token_ids": list(r.token_ids)} for r in requests]
        params = [_pooling_params(r) for r in requests]
        outputs = self._llm.encode(prompts, pooling_params=params, pooling_task=self._task, use_tqdm=False)
        return [float(output.outputs.data.float().reshape(-1)[-1]) for output in outputs]

    def _guarded(self, work: Callable[[], Result]) -> Result:
        if self._llm is None:
            raise InfrastructureError(f"the engine of '{self.spec.path}' was used before start(); start it first")
        try:
            return work()
        except RmrlError:
            raise
        except Exception as error:  # whatever vLLM raises, the batch is lost and the caller needs one type
            reason = f"{type(error).__name__}: {error}"[-_REASON_CHARACTERS:]
            raise InfrastructureError(f"the engine of '{self.spec.path}' failed on a batch: {reason}") from error


def _settings(spec: EngineSpec, context_length: int) -> ServingSettings:
    return ServingSettings(
        path=spec.path,
        tokenizer=None,
        runner=spec.runner,
        device=spec.device,
        dtype=spec.dtype,
        max_model_len=context_length,
        max_num_seqs=spec.max_num_seqs,
        max_num_batched_tokens=spec.max_num_batched_tokens,
        tensor_parallel_size=spec.tensor_parallel_size,
        gpu_memory_utilization=spec.gpu_memory_utilization,
        kv_cache_bytes=spec.kv_cache_bytes,
        trust_remote_code=spec.trust_remote_code,
        seed=spec.seed,
        kwargs=spec.kwargs,
    )


def _texts(request: GenerateRequest, answer: Any) -> list[TextOutput]:
    texts = [TextOutput(o.text, o.finish_reason or "stop", len(request.token_ids), len(o.token_ids)) for o in answer.outputs]
    return texts * request.sampling.n if request.sampling.temperature == 0 else texts  # a greedy prompt is sampled once


def _pooling_params(request: PoolingRequest) -> Any:
    from vllm import PoolingParams

    extra = None
    if request.token_type_ids is not None and 1 in request.token_type_ids:
        # vLLM's form of "zeros, then ones": the position of the first one.
        extra = {"compressed_token_type_ids": request.token_type_ids.index(1)}
    return PoolingParams(use_activation=False, extra_kwargs=extra)
