"""Reference implementation of a reward engine on transformers: padded batches, sorted by length. Slow, and easy to believe.

The last real token is found by the attention mask. Searching for the pad token instead, as model classes do, goes wrong for
the many checkpoints whose pad token is their end token.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError
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
from rmrl.serving.sampling import cut_at_end, cut_at_stops, generation_options
from rmrl.serving.worker_extension import resident_bytes
from rmrl.types import Sampling


class HFEngine:
    """A `RewardEngine` on transformers. Of the settings it honours dtype, max_model_len, max_num_seqs and max_num_batched_tokens."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._model: Any = None
        self._tokenizer: Any = None
        self._asleep = 0

    def start(self) -> None:
        """Raises RewardError when a scalar head is missing, EngineLoadError when loading fails."""
        if self.spec.runner == "pooling":
            check_scalar_head(self.spec.path)
        self.context_length = self.spec.context_length()
        torch.set_num_threads(max(1, self.spec.threads))
        torch.manual_seed(self.spec.seed)
        self._load()

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """One prompt at a time, its samples together. Structured output (choice, regex) is refused with ConfigError."""
        return [self._texts(r) if len(r.token_ids) < self.context_length else overlong_texts(r, self.context_length) for r in requests]

    @torch.inference_mode()
    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """Raw logits; batches hold at most max_num_seqs rows and max_num_batched_tokens padded tokens."""
        model = self._awake()
        outputs: list[ValueOutput | None] = [None] * len(requests)
        for indices in self._batches([len(r.token_ids) for r in requests]):
            values = _last_logits(model, [requests[i] for i in indices])
            for i, value in zip(indices, values, strict=True):
                outputs[i] = ValueOutput(value, len(requests[i].token_ids))
        return [o if o is not None else overlong_value(r, self.context_length) for o, r in zip(outputs, requests, strict=True)]

    def sleep(self, level: int = 1) -> None:
        """1: weights to host memory; 2: weights dropped."""
        if level >= 2:
            self._model = None
        elif self._model is not None:
            self._model.to("cpu")
        self._asleep = max(self._asleep, level)
        gc.collect()
        if self.spec.device == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Undo `sleep`; after level 2 the checkpoint is read again."""
        if self._model is None:
            self._load()
        else:
            self._model.to(self.spec.device)
        self._asleep = 0

    def resident_bytes(self) -> int:
        """As in `RewardEngine`."""
        return torch.cuda.memory_reserved() if self.spec.device == "cuda" else resident_bytes()

    def ping(self) -> str:
        """ "cold", "awake" or "asleep <level>"."""
        if self._asleep:
            return f"asleep {self._asleep}"
        return "cold" if self._model is None else "awake"

    def _load(self) -> None:
        import transformers

        options = {"dtype": getattr(torch, self.spec.dtype), "trust_remote_code": self.spec.trust_remote_code}
        try:
            loader = getattr(transformers, self._loader_name())
            self._model = loader.from_pretrained(self.spec.path, **options).eval().to(self.spec.device)
            if self.spec.runner == "generate":
                trust = self.spec.trust_remote_code
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(self.spec.path, trust_remote_code=trust)
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            raise EngineLoadError(f"transformers could not load '{self.spec.path}': {error}") from error

    def _loader_name(self) -> str:
        if self.spec.runner == "generate":
            return "AutoModelForCausalLM"
        per_token = architecture(self.spec.path).endswith("ForTokenClassification")
        return "AutoModelForTokenClassification" if per_token else "AutoModelForSequenceClassification"

    def _awake(self) -> Any:
        if self._model is None or self._asleep:
            raise InfrastructureError(f"the engine of '{self.spec.path}' is {self.ping()}; start or wake it first")
        return self._model

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Indices of what fits the context, sorted by length and cut so that padding stays small."""
        batch: list[int] = []
        for i in sorted((i for i, n in enumerate(lengths) if 0 < n <= self.context_length), key=lambda i: lengths[i]):
            full = len(batch) >= self.spec.max_num_seqs or (len(batch) + 1) * lengths[i] > self.spec.max_num_batched_tokens
            if batch and full:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    @torch.inference_mode()
    def _texts(self, request: GenerateRequest) -> list[TextOutput]:
        sampling = request.sampling
        if sampling.choice or sampling.regex:
            raise ConfigError("reward.engine.name=hf cannot restrict the output to a choice or regex; use reward.engine.name=vllm")
        model, length, greedy = self._awake(), len(request.token_ids), sampling.temperature == 0
        ids = torch.tensor([request.token_ids], device=self.spec.device)
        if sampling.seed is not None:
            torch.manual_seed(sampling.seed)
        options = generation_options(sampling, self._tokenizer, self.context_length - length)
        rows = model.generate(ids, attention_mask=torch.ones_like(ids), **options, num_return_sequences=1 if greedy else sampling.n)
        texts = [self._text(row[length:].tolist(), length, sampling) for row in rows]
        return texts * sampling.n if greedy else texts

    def _text(self, tokens: list[int], tokens_in: int, sampling: Sampling) -> TextOutput:
        tokens, ended = cut_at_end(tokens, None if sampling.ignore_eos else self._tokenizer.eos_token_id)
        text, stopped = cut_at_stops(self._tokenizer.decode(tokens, skip_special_tokens=True), sampling.stop)
        return TextOutput(text, "stop" if ended or stopped else "length", tokens_in, len(tokens))


def _last_logits(model: Any, requests: Sequence[PoolingRequest]) -> list[float]:
    """The raw scalar of each row: of the whole sequence where the model pools itself over a mask (encoders), else at the last token."""
    lengths = torch.tensor([len(r.token_ids) for r in requests])
    width = int(lengths.max())
    mask = (torch.arange(width)[None, :] < lengths[:, None]).long()
    ids, types = torch.zeros(len(requests), width, dtype=torch.long), torch.zeros(len(requests), width, dtype=torch.long)
    for row, request in enumerate(requests):
        ids[row, : lengths[row]] = torch.tensor(request.token_ids)
        if request.token_type_ids is not None:
            types[row, : lengths[row]] = torch.tensor(request.token_type_ids)
    inputs = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}
    if any(r.token_type_ids is not None for r in requests):
        inputs["token_type_ids"] = types.to(model.device)
    head = getattr(model, "score", None)
    if head is None:  # encoders pool over their mask, or read the first token
        logits = model(**inputs).logits
        logits = logits[torch.arange(len(requests)), lengths - 1] if logits.ndim == 3 else logits
    else:
        hidden = model.base_model(**inputs).last_hidden_state
        logits = head(hidden[torch.arange(len(requests)), (lengths - 1).to(hidden.device)])
    return logits.float().reshape(len(requests)).tolist()
