"""Reference reward engine on transformers: padded batches, sorted by length. Slow, and easy to
believe.

The last real token is found by the attention mask. Searching for the pad token instead, as model
classes do, goes wrong for the many checkpoints whose pad token is their end token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import torch

from rmrl.errors import ConfigError, EngineLoadError
from rmrl.inference.fitting import (
    answered,
    by_adapter,
    overlong_logits,
    rateable,
    sorted_batches,
    unrateable,
    up_to_padding,
)
from rmrl.inference.hf.adapters import Adapters, adapter_problem
from rmrl.inference.hf.resident_model import ResidentModel
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
from rmrl.inference.vllm.sampling import decoded, generation_options
from rmrl.models.checkpoint_inspect import architecture, check_label_head, check_token_head
from rmrl.models.classifier_padding import padding_token
from rmrl.models.linear_head import widen

_SHOWN = 5
"""Names of tensors that an error lists."""
_LOADERS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForProcessRewardModel": "AutoModel",  # brought by the checkpoint's own code
}


class HFEngine:
    """A `RewardEngine` on transformers.

    Supported settings: dtype, max_model_len, max_num_seqs, max_num_batched_tokens and
    batch_invariant (a row at a time).
    """

    runners: ClassVar[tuple[str, ...]] = ("generate", "pooling", "token_pooling")
    sleeps_on: ClassVar[tuple[str, ...]] = ()
    reserves_gpu_share: ClassVar[bool] = False
    loads_checkpoint: ClassVar[bool] = True
    single_process: ClassVar[bool] = True
    structured_output: ClassVar[bool] = False
    adapter_problem = staticmethod(adapter_problem)

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._progress = Progress()
        self._resident = ResidentModel(spec, self._load)
        self._tokenizer: Any = None
        self._adapters: Any = None
        self._padding: int | None = None

    def start(self) -> None:
        """Load the model. Raises RewardError when the head is missing, ConfigError for embeddings,
        EngineLoadError when loading fails."""
        if self.spec.runner == "embed":
            self._refuse_embeddings()
        if self.spec.runner == "pooling":
            check_label_head(self.spec.path)
            self._padding = padding_token(self.spec.path)
        if self.spec.runner == "token_pooling":
            check_token_head(self.spec.path)
        self.context_length = self.spec.context_length()
        self._resident.start()

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Generate for one prompt at a time, its samples together. Structured output (choice,
        regex, json_schema) is refused with ConfigError."""
        return answered(
            requests,
            lambda r: len(r.token_ids) < self.context_length,
            run=lambda fitting: list(map(self._texts, fitting)),
            mark=lambda r: overlong_texts(r, self.context_length),
        )

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """Return raw logits; batches as in `label_logits`."""
        return list(map(only_label, self.label_logits(requests)))

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:
        """Return raw logits. Batches hold at most max_num_seqs rows and max_num_batched_tokens
        padded tokens."""

        def run(fitting: list[PoolingRequest]) -> list[LabelOutput]:
            outputs: list[LabelOutput] = []
            logits = self._batched(fitting, _sequence_logits)
            for request, row in zip(fitting, logits, strict=True):
                outputs.append(LabelOutput(row, len(request.token_ids)))
            return outputs

        return answered(
            up_to_padding(requests, self._padding),
            self._fits,
            run=run,
            mark=lambda r: overlong_labels(r, self.context_length),
        )

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]:
        """Return every label's raw logits at the requested positions; batches as in
        `label_logits`."""

        def run(fitting: list[PoolingRequest]) -> list[TokenOutput]:
            outputs: list[TokenOutput] = []
            logits = self._batched(fitting, _position_logits)
            for request, rows in zip(fitting, logits, strict=True):
                outputs.append(TokenOutput(rows, len(request.token_ids)))
            return outputs

        return answered(
            requests, self._fits, run=run, mark=lambda r: overlong_logits(r, self.context_length)
        )

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
        """See `RewardEngine.token_logprobs`; batches as in `classify`."""
        vocabulary = int(self._resident.awake().get_input_embeddings().num_embeddings)

        def run(fitting: list[LogprobsRequest]) -> list[LogprobsOutput]:
            return self._batched(fitting, _token_logprobs)

        return answered(
            requests,
            lambda r: rateable(r, self.context_length, vocabulary),
            run=run,
            mark=lambda r: unrateable(r, self.context_length, vocabulary),
        )

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]:  # noqa: ARG002
        """Raise ConfigError: this engine makes no embeddings."""
        self._refuse_embeddings()

    def sleep(self, level: int = 1) -> None:
        """Move the weights to host memory (1) or drop them (2)."""
        if level >= 2:
            self._adapters = None  # they hold the model
        self._resident.sleep(level)

    def wake(self) -> None:
        """Undo `sleep`. After level 2 the checkpoint is loaded again."""
        self._resident.wake()

    def resident_bytes(self) -> int:
        return self._resident.resident_bytes()

    def progress(self) -> int:
        return self._progress.count

    def ping(self) -> str:
        """Return "cold", "awake" or "asleep <level>"."""
        return self._resident.state()

    def _load(self) -> Any:
        import transformers

        trust = self.spec.trust_remote_code
        loader_name = "AutoModelForSequenceClassification"
        if self.spec.runner == "generate":
            loader_name = "AutoModelForCausalLM"
        else:
            for suffix, name in _LOADERS.items():
                if architecture(self.spec.path).endswith(suffix):
                    loader_name = name
                    break
        try:
            loader = getattr(transformers, loader_name)
            model, loading = loader.from_pretrained(
                self.spec.path,
                dtype=getattr(torch, self.spec.dtype),
                trust_remote_code=trust,
                output_loading_info=True,
            )
            if self.spec.runner == "generate":
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                    self.spec.path, trust_remote_code=trust
                )
            self._adapters = Adapters(model, self.spec.adapters)
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            raise EngineLoadError(
                f"transformers could not load '{self.spec.path}': {error}"
            ) from error
        missing = sorted(loading["missing_keys"])[:_SHOWN]
        if missing and loader_name.endswith("Classification") and not self.spec.adapters:
            # transformers draws them at random, and the scores would look like scores.
            surplus = sorted(loading["unexpected_keys"])[:_SHOWN]
            raise EngineLoadError(
                f"'{self.spec.path}' lacks {', '.join(missing)}, which its class reads, and holds"
                f" {', '.join(surplus) or 'nothing'} instead, so its scores would be random; a"
                " reward model that another trainer saved becomes a classifier with"
                " rmrl export reward_model=<folder> out=<folder>"
            )
        heads = (getattr(model, "score", None), getattr(model, "classifier", None))
        if self.spec.runner == "token_pooling" and heads == (None, None):
            raise EngineLoadError(
                f"transformers loads '{self.spec.path}' ({architecture(self.spec.path)}) without"
                " its head, which is code of the checkpoint's own; use reward.engine.name=vllm, or"
                " set trust_remote_code if you trust that code"
            )
        model = model.eval().to(self.spec.device)
        for head in (model.get_output_embeddings(), *heads):
            widen(head)
        return model

    def _refuse_embeddings(self) -> NoReturn:
        raise ConfigError(
            "reward.engine.name=hf makes no embeddings; use"
            " reward.engine.name=sentence_transformers or vllm"
        )

    def _fits(self, request: PoolingRequest) -> bool:
        return 0 < len(request.token_ids) <= self.context_length

    @torch.inference_mode()
    def _batched(
        self,
        requests: Sequence[Any],
        compute: Callable[[Any, list[Any]], list[Any]],
    ) -> list[Any]:
        """Return one `compute` result per request, in order."""
        model = self._resident.awake()
        results: list[Any] = [None] * len(requests)
        max_rows = 1 if self.spec.batch_invariant else self.spec.max_num_seqs
        max_tokens = self.spec.max_num_batched_tokens
        for adapter, positions in by_adapter(requests).items():
            self._adapters.activate(adapter)
            lengths = [len(requests[i].token_ids) for i in positions]
            for batch in sorted_batches(lengths, max_rows=max_rows, max_tokens=max_tokens):
                numbers = [positions[i] for i in batch]
                computed = compute(model, [requests[i] for i in numbers])
                for i, result in zip(numbers, computed, strict=True):
                    results[i] = result
                self._progress.add(len(batch))
        return results

    @torch.inference_mode()
    def _texts(self, request: GenerateRequest) -> list[TextOutput]:
        sampling = request.sampling
        if sampling.choice or sampling.regex or sampling.json_schema:
            raise ConfigError(
                "reward.engine.name=hf cannot restrict the output to a choice, regex or JSON"
                " schema; use reward.engine.name=vllm"
            )
        model = self._resident.awake()
        self._adapters.activate(request.adapter)
        length = len(request.token_ids)
        greedy = sampling.temperature == 0
        ids = torch.tensor([request.token_ids], device=self.spec.device)
        if sampling.seed is not None:
            torch.manual_seed(sampling.seed)
        options = generation_options(sampling, self._tokenizer, self.context_length - length)
        options |= {
            "num_return_sequences": 1 if greedy else sampling.n,
            "return_dict_in_generate": True,
        }
        generated = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            **options,
            output_logits=bool(request.choice_tokens),
        )
        choices: tuple[float, ...] = ()
        if request.choice_tokens:
            # Those of the first generated token, before temperature and filters: equal for all
            # samples.
            logprobs = generated.logits[0][0].float().log_softmax(dim=-1)
            choices = tuple(logprobs[list(request.choice_tokens)].tolist())
        texts: list[TextOutput] = []
        for row in generated.sequences[:, length:].tolist():
            text, tokens, finish_reason = decoded(row, self._tokenizer, sampling)
            texts.append(TextOutput(text, finish_reason, length, len(tokens), choices))
        self._progress.add()
        if greedy:
            return texts * sampling.n
        return texts


def _inputs(requests: Sequence[PoolingRequest], device: Any) -> dict[str, torch.Tensor]:
    """Return right-padded ids and mask, and token types where a request has them; each of shape
    [requests, longest]."""
    lengths = torch.tensor([len(r.token_ids) for r in requests])
    width = int(lengths.max())
    mask = (torch.arange(width)[None, :] < lengths[:, None]).long()
    ids = torch.zeros(len(requests), width, dtype=torch.long)
    types = torch.zeros(len(requests), width, dtype=torch.long)
    for row, request in enumerate(requests):
        ids[row, : lengths[row]] = torch.tensor(request.token_ids)
        if request.token_type_ids is not None:
            types[row, : lengths[row]] = torch.tensor(request.token_type_ids)
    inputs = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
    if any(r.token_type_ids is not None for r in requests):
        inputs["token_type_ids"] = types.to(device)
    return inputs


def _sequence_logits(model: Any, requests: Sequence[PoolingRequest]) -> list[tuple[float, ...]]:
    """Return each row's raw logits, [request][label]: of the whole sequence where the model
    pools over a mask itself (encoders), else at the last token."""
    inputs = _inputs(requests, model.device)
    rows = torch.arange(len(requests))
    last = torch.tensor([len(r.token_ids) - 1 for r in requests])
    head = getattr(model, "score", None)
    if head is None:  # encoders pool over their mask, or read the first token
        logits = model(**inputs).logits
        if logits.ndim == 3:
            logits = logits[rows, last]
    else:
        hidden = model.base_model(**inputs).last_hidden_state
        logits = head(hidden[rows, last.to(hidden.device)])
    return list(map(tuple, logits.float().reshape(len(requests), -1).tolist()))


def _position_logits(
    model: Any, requests: Sequence[PoolingRequest]
) -> list[tuple[tuple[float, ...], ...]]:
    """Return raw logits, [request][position][label]. A sequence head, made for the last token, is
    read at every position."""
    inputs = _inputs(requests, model.device)
    if type(model).__name__.endswith("ForSequenceClassification"):
        logits = model.score(model.base_model(**inputs).last_hidden_state)
    else:
        logits = model(**inputs).logits
    outputs: list[tuple[tuple[float, ...], ...]] = []
    for row, request in enumerate(requests):
        if request.positions:
            chosen = logits[row, list(request.positions)].float().tolist()
            outputs.append(tuple(map(tuple, chosen)))
        else:
            outputs.append(())
    return outputs


def _token_logprobs(model: Any, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
    """Return each row's token log-probabilities from `start` on, by a softmax in float32.

    Logits are computed from the earliest token on that predicts a wanted one.
    """
    inputs = _inputs([PoolingRequest(r.token_ids) for r in requests], model.device)
    first = min(r.start for r in requests) - 1
    width = inputs["input_ids"].shape[1]
    logits = model(**inputs, logits_to_keep=width - first).logits
    outputs: list[LogprobsOutput] = []
    for row, request in enumerate(requests):
        tokens = len(request.token_ids)
        predicting = logits[row, request.start - 1 - first : tokens - 1 - first].float()
        targets = inputs["input_ids"][row, request.start : tokens]
        chosen = predicting.log_softmax(dim=-1).gather(1, targets[:, None])[:, 0]
        outputs.append(LogprobsOutput.of(chosen.cpu().numpy(), tokens))
    return outputs
