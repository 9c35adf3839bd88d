"""Reward models on vLLM, in this process: judges, scalar and token heads, embeddings, chosen by
`spec.runner`.

Heads give raw logits: vLLM's own default passes them through a sigmoid, which saturates and cannot
be undone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from rmrl.errors import EngineLoadError, InfrastructureError, RmrlError
from rmrl.inference.fitting import (
    answered,
    overlong_logits,
    overlong_vector,
    rateable,
    unrateable,
    up_to_padding,
)
from rmrl.inference.progress import Progress
from rmrl.inference.reward_engine_base import (
    EmbedOutput,
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    LabelOutput,
    LogprobsOutput,
    LogprobsRequest,
    PoolingRequest,
    TextOutput,
    TokenOutput,
    ValueOutput,
    only_label,
    overlong_labels,
    overlong_texts,
)
from rmrl.inference.vllm import batch_invariance, compat
from rmrl.inference.vllm.adapters import adapter_arguments, adapter_problem, lora_requests
from rmrl.inference.vllm.arguments import (
    EXACT_ARGUMENTS,
    EXACT_ENVIRONMENT,
    can_widen_head,
    engine_arguments,
    with_known_class,
    with_wide_head,
)
from rmrl.inference.vllm.sampling import sampling_params
from rmrl.inference.vllm.texts import SampleTexts, text_output
from rmrl.models.checkpoint_inspect import (
    architecture,
    check_label_head,
    check_token_head,
    local_checkpoint,
    read_config,
    sentence_settings,
    tensor_headers,
    vocabulary_size,
)
from rmrl.models.classifier_padding import padding_token
from rmrl.startup import quick_imports
from rmrl.types import Sampling

Result = TypeVar("Result")

_REASON_CHARACTERS = 1500


class VLLMEngine:
    """A `RewardEngine` on vLLM. The process must have been given
    `rmrl.inference.environment.engine_environment`.

    With tensor_parallel_size above 1 vLLM starts one process per device. They end by themselves
    when this process ends, however it does.
    """

    package: ClassVar[str] = "vllm"
    version_problem = staticmethod(compat.version_problem)
    kept_asleep_bytes = staticmethod(compat.kept_asleep_bytes)
    rated_at_once = staticmethod(compat.rated_at_once)
    adapter_problem = staticmethod(adapter_problem)
    loads_checkpoint: ClassVar[bool] = True
    batch_invariant_on: ClassVar[tuple[str, ...]] = ("cuda",)
    batch_invariance: ClassVar[str] = (
        "vLLM has batch-invariant kernels for NVIDIA GPUs of compute capability 8.0 or higher"
    )

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._progress = Progress()
        self._llm: Any = None
        self._asleep = 0
        self._task = ""
        self._prefix = ""
        self._padding: int | None = None
        self._deepest = 2
        self._widens = False

    def start(self) -> None:
        """Check the checkpoint, then load it.

        Raises RewardError when its head is missing and EngineLoadError when the GPU lacks what
        `spec.batch_invariant` needs or, with how vLLM's own reason ends, when loading fails.
        """
        compat.refuse_version()
        batch_invariance.check_device()
        self._inspect()
        arguments: dict[str, Any] = engine_arguments(
            self.spec,
            runner="generate" if self.spec.runner == "generate" else "pooling",
            max_model_len=self.context_length,
        )
        arguments = adapter_arguments(self.spec) | arguments
        if self._is_exact:
            # Entries of spec.kwargs take precedence.
            arguments = EXACT_ARGUMENTS | arguments
            for name, value in EXACT_ENVIRONMENT.items():
                os.environ.setdefault(name, value)
        self._widens = self.spec.runner == "generate" and can_widen_head(self.spec)
        if self._widens and self.spec.device == "cuda" and compat.widens_head():
            arguments = with_wide_head(arguments)
        if self.spec.runner == "pooling":
            arguments = with_known_class(arguments, self.spec.path)
        if self._task:
            user_settings = dict(arguments.get("pooler_config") or {})
            arguments["pooler_config"] = _pooler(self._task, self.spec.path) | user_settings
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        if self.spec.device == "cpu" and self.spec.tensor_parallel_size > 1:
            # vLLM would bind each worker to a NUMA node of its own, which most machines do not
            # have.
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        try:
            with quick_imports():
                from vllm import LLM, EngineArgs

            fields = EngineArgs.__dataclass_fields__
            self._llm = LLM(**compat.known_arguments(arguments, fields))
            self._llm.collective_rpc("end_with_parent", args=(os.getpid(),))
            if self._is_exact:
                self._llm.collective_rpc("pair_lone_rows")
        except Exception as error:  # vLLM raises every kind of error here
            reason = f"{type(error).__name__}: {error}"[-_REASON_CHARACTERS:]
            raise EngineLoadError(
                f"vLLM could not load '{self.spec.path}' as a {self.spec.runner} model on"
                f" {self.spec.device}: {reason}"
            ) from error

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """See `RewardEngine.generate`. All requests are batched, with any sampling."""
        return answered(
            requests,
            lambda r: len(r.token_ids) < self.context_length,
            run=lambda fitting: self._guarded(lambda: self._texts(fitting)),
            mark=lambda r: overlong_texts(r, self.context_length),
        )

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """See `RewardEngine.classify`. Read as in `label_logits`."""
        return list(map(only_label, self.label_logits(requests)))

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:
        """See `RewardEngine.label_logits`. A token-level head is read at the last token."""

        def run(fitting: list[PoolingRequest]) -> list[LabelOutput]:
            outputs: list[LabelOutput] = []
            for request, logits in zip(fitting, self._pooled(fitting), strict=True):
                row = logits.reshape(-1, logits.shape[-1])[-1]
                outputs.append(LabelOutput(tuple(row.tolist()), len(request.token_ids)))
            return outputs

        return answered(
            up_to_padding(requests, self._padding),
            self._fits,
            run=run,
            mark=lambda r: overlong_labels(r, self.context_length),
        )

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]:
        """See `RewardEngine.token_logits`. The head is computed at every token and read at the
        requested ones."""

        def run(fitting: list[PoolingRequest]) -> list[TokenOutput]:
            outputs: list[TokenOutput] = []
            for request, logits in zip(fitting, self._pooled(fitting), strict=True):
                if logits.ndim != 2 or len(logits) != len(request.token_ids):
                    raise InfrastructureError(
                        f"the engine of '{self.spec.path}' gave logits of shape"
                        f" {list(logits.shape)} for {len(request.token_ids)} tokens; each token"
                        " needs its own, so kwargs.pooler_config must not choose among them"
                    )
                rows = logits[list(request.positions)].tolist()
                outputs.append(TokenOutput(tuple(map(tuple, rows)), len(request.token_ids)))
            return outputs

        return answered(
            requests, self._fits, run=run, mark=lambda r: overlong_logits(r, self.context_length)
        )

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
        """See `RewardEngine.token_logprobs`: vLLM's prompt_logprobs, which are those of the raw
        logits in float32. It computes them for the prompt as well, and reads no prefix cache."""
        vocabulary = vocabulary_size(self.spec.path)

        def run(fitting: list[LogprobsRequest]) -> list[LogprobsOutput]:
            prompts = [{"prompt_token_ids": list(request.token_ids)} for request in fitting]
            params = sampling_params(
                Sampling(max_tokens=1, temperature=0.0),
                prompt_logprobs=0,
                flat_logprobs=True,
                detokenize=False,
            )
            answers = self._guarded(
                lambda: self._llm.generate(
                    prompts,
                    params,
                    use_tqdm=self._progress.bar,
                    lora_request=lora_requests(self.spec, fitting),
                )
            )
            outputs: list[LogprobsOutput] = []
            for request, answer in zip(fitting, answers, strict=True):
                # One number a token; the first token has none.
                rated = answer.prompt_logprobs.logprobs
                tokens = len(request.token_ids)
                if len(rated) != tokens - 1:
                    raise InfrastructureError(
                        f"the engine of '{self.spec.path}' gave {len(rated)} log-probabilities"
                        f" for {tokens} tokens, of which all but the first have one"
                    )
                outputs.append(LogprobsOutput.of(rated[request.start - 1 :], tokens))
            return outputs

        return answered(
            requests,
            lambda r: rateable(r, self.context_length, vocabulary),
            run=run,
            mark=lambda r: unrateable(r, self.context_length, vocabulary),
        )

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]:
        """Return vectors with length 1; pooled by the folder's sentence-transformers settings, else
        the mean over the tokens."""

        def tokenized() -> list[PoolingRequest]:
            tokenizer = self._llm.get_tokenizer()
            texts = [self._prefix + request.text for request in requests]
            return [PoolingRequest(tuple(tokenizer(text)["input_ids"])) for text in texts]

        def run(fitting: list[PoolingRequest]) -> list[EmbedOutput]:
            outputs: list[EmbedOutput] = []
            for request, vector in zip(fitting, self._pooled(fitting), strict=True):
                unit = vector / vector.norm().clamp_min(1e-12)
                outputs.append(EmbedOutput(tuple(unit.tolist()), len(request.token_ids)))
            return outputs

        return answered(
            self._guarded(tokenized),
            self._fits,
            run=run,
            mark=lambda r: overlong_vector(len(r.token_ids), self.context_length),
        )

    def sleep(self, level: int = 1) -> None:
        """Free the KV cache and keep the weights in host memory (1), or drop the weights too (2).

        A linear head with a bias sleeps at level 1 at most: vLLM cannot reload it.
        """
        level = min(level, self._deepest)
        if level > self._asleep:
            if self._asleep:
                self.wake()
            self._guarded(lambda: self._llm.sleep(level=level))
            self._asleep = level

    def wake(self) -> None:
        """Undo `sleep`. After level 2 the weights are read from the checkpoint again."""
        if self._asleep >= 2:
            self._guarded(lambda: self._llm.wake_up(tags=["weights"]))
            self._guarded(lambda: self._llm.collective_rpc("reload_weights"))
            self._guarded(lambda: self._llm.wake_up(tags=["kv_cache"]))
        elif self._asleep:
            self._guarded(self._llm.wake_up)
        self._asleep = 0

    def resident_bytes(self) -> int:
        """Return the sum over a tensor-parallel group's workers."""
        return sum(self._guarded(lambda: self._llm.collective_rpc("worker_bytes")))

    def progress(self) -> int:
        return self._progress.count

    def ping(self) -> str:
        """Return "cold", "awake" or "asleep <level>"."""
        if self._llm is None:
            return "cold"
        if self._asleep:
            return f"asleep {self._asleep}"
        return "awake"

    def _inspect(self) -> None:
        """Set the pooling task, the prefix, the deepest sleep and the context length from the
        checkpoint."""
        path = self.spec.path
        self.context_length = self.spec.context_length()
        if self.spec.runner == "pooling":
            check_label_head(path)
            self._padding = padding_token(path)
            if read_config(path).get("type_vocab_size", 1) > 1:
                compat.refuse_pairs(path)
            is_token_head = architecture(path).endswith("ForTokenClassification")
            self._task = "token_classify" if is_token_head else "classify"
        elif self.spec.runner == "token_pooling":
            check_token_head(path)
            self._task = "token_classify"
        if self.spec.runner in ("pooling", "token_pooling"):
            # vLLM sets the bias of a linear head aside while loading, and only the first time: it
            # could not read all weights again.
            names = {header.name for header in tensor_headers(path)}
            self._deepest = 1 if "score.bias" in names else 2
        elif self.spec.runner == "embed":
            settings = sentence_settings(path)
            self.context_length = min(self.context_length, settings.max_tokens)
            self._task = "embed"
            self._prefix = settings.prefix

    @property
    def _is_exact(self) -> bool:
        """Whether a score is the same in every batch, to the last bit: in float32 on CPU."""
        return self.spec.device == "cpu" and self.spec.dtype == "float32"

    def _fits(self, request: PoolingRequest) -> bool:
        return 0 < len(request.token_ids) <= self.context_length

    def _texts(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        if not self._widens or self.spec.device != "cpu":
            return self._answers(requests)
        # Answers' probabilities are read in float32; in texts it would take time and change little.
        outputs: list[list[TextOutput]] = [[]] * len(requests)
        reads_labels = [bool(request.choice_tokens) for request in requests]
        for labels in set(reads_labels):
            self._llm.collective_rpc("widen_heads", args=(labels,))
            places = [place for place, reads in enumerate(reads_labels) if reads is labels]
            answers = self._answers([requests[place] for place in places])
            for place, texts in zip(places, answers, strict=True):
                outputs[place] = texts
        return outputs

    def _answers(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        decoder = SampleTexts(self._llm.get_tokenizer())
        prompts = [{"prompt_token_ids": list(request.token_ids)} for request in requests]
        params: list[Any] = []
        for request in requests:
            choices = list(request.choice_tokens) or None
            params.append(
                sampling_params(
                    request.sampling,
                    logprob_token_ids=choices,
                    flat_logprobs=True,
                    detokenize=decoder.needs_vllm(request.sampling),
                )
            )
        answers = self._llm.generate(
            prompts,
            params,
            use_tqdm=self._progress.bar,
            lora_request=lora_requests(self.spec, requests),
        )
        outputs: list[list[TextOutput]] = []
        for request, answer, settings in zip(requests, answers, params, strict=True):
            decoder.fill(answer, settings)
            texts: list[TextOutput] = [text_output(request, sample) for sample in answer.outputs]
            if request.sampling.temperature == 0:
                texts = texts * request.sampling.n  # a greedy prompt is sampled once
            outputs.append(texts)
        return outputs

    def _pooled(self, requests: Sequence[PoolingRequest]) -> list[Any]:
        """Return a float32 tensor for each request: [labels], [tokens, labels] or [dimensions],
        depending on the task."""
        from vllm import PoolingParams

        prompts: list[dict[str, Any]] = []
        params: list[PoolingParams] = []
        for request in requests:
            prompts.append({"prompt_token_ids": list(request.token_ids)})
            extra = None
            if request.token_type_ids is not None and 1 in request.token_type_ids:
                extra = compat.pair_argument(request.token_type_ids)
            params.append(PoolingParams(use_activation=False, extra_kwargs=extra))
        task = self._task
        outputs = self._guarded(
            lambda: self._llm.encode(
                prompts,
                pooling_params=params,
                pooling_task=task,
                use_tqdm=self._progress.bar,
                lora_request=lora_requests(self.spec, requests),
            )
        )
        return [output.outputs.data.float() for output in outputs]

    def _guarded(self, work: Callable[[], Result]) -> Result:
        if self._llm is None:
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' was used before start(); start it first"
            )
        try:
            return work()
        except RmrlError:
            raise
        # vLLM raises every kind of error; the batch is lost and the caller needs one type
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[-_REASON_CHARACTERS:]
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' failed on a batch: {reason}"
            ) from error


def _pooler(task: str, path: str) -> dict[str, Any]:
    """Return vLLM's pooler_config for raw values. Plain checkpoints are pooled like
    sentence-transformers: causal models' last token, else the mean."""
    pooler: dict[str, Any] = {"task": task, "use_activation": False}
    if task == "token_classify":
        # Process reward models would otherwise return values at step markers only.
        pooler["tok_pooling_type"] = "ALL"
    if task == "embed" and not (local_checkpoint(path) / "modules.json").is_file():
        causal = architecture(path).endswith("ForCausalLM")
        causal = causal and read_config(path).get("is_causal", True)
        pooler["seq_pooling_type"] = "LAST" if causal else "MEAN"
    return pooler
