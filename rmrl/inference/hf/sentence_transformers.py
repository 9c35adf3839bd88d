"""Embeddings by sentence-transformers: its own folders (modules.json), and plain encoders with the
mean over their tokens.

Vectors have length 1. A text that does not fit is marked; sentence-transformers itself would
cut it silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import torch

from rmrl.errors import ConfigError, EngineLoadError
from rmrl.inference.fitting import overlong_vector, sorted_batches
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
)
from rmrl.models.checkpoint_inspect import local_checkpoint, sentence_settings

_UNCUT = 1 << 30
"""Token limit that no text reaches: overlong texts are marked before they are computed."""


class SentenceTransformersEngine:
    """A `RewardEngine` for runner=embed. `spec.kwargs` reach `SentenceTransformer`'s constructor.

    Supported settings: dtype, max_model_len, max_num_seqs, max_num_batched_tokens and
    batch_invariant. On CPU it embeds a text at a time in any case: that takes no longer there
    (measured), and a text's vector then never depends on its batch.
    """

    package: ClassVar[str] = "sentence_transformers"
    runners: ClassVar[tuple[str, ...]] = ("embed",)
    sleeps_on: ClassVar[tuple[str, ...]] = ()
    reserves_gpu_share: ClassVar[bool] = False
    loads_checkpoint: ClassVar[bool] = True
    single_process: ClassVar[bool] = True

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._progress = Progress()
        self._resident = ResidentModel(spec, self._load)

    def start(self) -> None:
        """Load the model. Raises ConfigError when the package is missing or the spec names another
        runner, EngineLoadError when loading fails."""
        if self.spec.runner != "embed":
            self._refuse()
        max_tokens = sentence_settings(self.spec.path).max_tokens
        self.context_length = min(self.spec.context_length(), max_tokens)
        self._resident.start()

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]:
        """Embed in batches with similar lengths, each with at most max_num_seqs rows and
        max_num_batched_tokens padded tokens. See the class."""
        model = self._resident.awake()
        # With special tokens and the folder's default prompt, as the model reads a text.
        prompt = model.prompts.get(model.default_prompt_name)
        lengths: list[int] = []
        short: list[int] = []
        outputs: list[EmbedOutput] = []
        for i, request in enumerate(requests):
            mask = model.preprocess([request.text], prompt=prompt)["attention_mask"]
            lengths.append(int(mask.sum()))
            outputs.append(overlong_vector(lengths[i], self.context_length))
            if lengths[i] <= self.context_length:
                short.append(i)
        alone = self.spec.batch_invariant or self.spec.device == "cpu"
        limits = {
            "max_rows": 1 if alone else self.spec.max_num_seqs,
            "max_tokens": self.spec.max_num_batched_tokens,
        }
        for batch in sorted_batches([lengths[i] for i in short], **limits):
            indices = [short[i] for i in batch]
            texts = [requests[i].text for i in indices]
            vectors = model.encode(
                texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
            )
            # Of length 1 in float32, for every compute type.
            units = torch.nn.functional.normalize(vectors.float(), dim=-1).tolist()
            for i, unit in zip(indices, units, strict=True):
                outputs[i] = EmbedOutput(tuple(unit), lengths[i])
            self._progress.add(len(batch))
        return outputs

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:  # noqa: ARG002
        """Raise ConfigError: this engine makes embeddings only."""
        self._refuse()

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:  # noqa: ARG002
        """Raise ConfigError: this engine makes embeddings only."""
        self._refuse()

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:  # noqa: ARG002
        """Raise ConfigError: this engine makes embeddings only."""
        self._refuse()

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]:  # noqa: ARG002
        """Raise ConfigError: this engine makes embeddings only."""
        self._refuse()

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:  # noqa: ARG002
        """Raise ConfigError: this engine makes embeddings only."""
        self._refuse()

    def sleep(self, level: int = 1) -> None:
        """Move the weights to host memory (1) or drop them (2)."""
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
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ConfigError(
                "reward.engine.name=sentence_transformers needs the package sentence-transformers,"
                ' which is not installed: pip install "rmrl-toolkit[similarity]", or use'
                " reward.engine.name=vllm"
            ) from error
        options: dict[str, Any] = {
            "device": self.spec.device,
            "trust_remote_code": self.spec.trust_remote_code,
            "model_kwargs": {"dtype": getattr(torch, self.spec.dtype)},
            **self.spec.kwargs,
        }
        try:
            model = SentenceTransformer(self.spec.path, **options)
        except (OSError, ValueError, RuntimeError, KeyError, ImportError, TypeError) as error:
            raise EngineLoadError(
                f"sentence-transformers could not load '{self.spec.path}': {error}"
            ) from error
        model.max_seq_length = _UNCUT
        if not (local_checkpoint(self.spec.path) / "modules.json").is_file():
            # Where a plain checkpoint's tokenizer has a chat template, every text would be wrapped
            # in it.
            getattr(model[0], "modality_config", {}).pop("message", None)
        return model.eval()

    def _refuse(self) -> NoReturn:
        raise ConfigError(
            "reward.engine.name=sentence_transformers makes embeddings only, and"
            f" '{self.spec.path}' is used as a {self.spec.runner} model; use"
            " reward.engine.name=vllm"
        )
