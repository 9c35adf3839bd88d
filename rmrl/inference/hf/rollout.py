"""Reference rollout on transformers' `generate`: left-padded batches, logprobs recomputed in one
clean forward pass. Slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError
from rmrl.inference.rollout_base import (
    RolloutEngineSettings,
    not_ready,
    refuse_missing,
    refuse_overlong,
    sample_seed,
    samples_to_draw,
)
from rmrl.inference.vllm.sampling import decoded, generation_options
from rmrl.inference.vllm.worker_extension import resident_bytes
from rmrl.inference.weights.file import read_weights
from rmrl.models.linear_head import widen
from rmrl.startup import quick_imports
from rmrl.types import Generation, Sampling

Result = TypeVar("Result")


class HFRollout:
    """A `RolloutEngine` on transformers. Batches hold at most max_num_seqs samples; structured
    output is refused.

    All methods belong to one event loop. Calls may overlap: batches and new weights take turns on
    one thread, because torch has one random state and the model its weights once.
    """

    sleeps_on: ClassVar[tuple[str, ...]] = ("cuda",)
    reserves_gpu_share: ClassVar[bool] = False
    ignores_overrides: ClassVar[bool] = True
    widens_head: ClassVar[Callable[[], bool]] = staticmethod(lambda: True)

    def __init__(self, settings: RolloutEngineSettings) -> None:
        self.settings = settings
        self.version = 0
        self._model: Any = None
        self._tokenizer: Any = None
        self._asleep = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout-engine")

    async def start(self) -> None:
        """Load the model. Raises EngineLoadError when the checkpoint cannot be loaded."""
        await self._run(self._load)

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        """See `RolloutEngine.generate`; samples arrive batch by batch."""
        if self._model is None or self._asleep:
            raise not_ready("asleep or not started")
        if sampling.choice or sampling.regex or sampling.json_schema:
            raise ConfigError(
                "actor_rollout_ref.rollout.name=hf cannot restrict the output to a choice, regex or"
                " JSON schema; use vllm"
            )
        refuse_overlong(prompts, self.settings.max_model_len)
        indices = samples_to_draw(len(prompts), sampling.n, only)
        for start in range(0, len(indices), self.settings.max_num_seqs):
            batch = indices[start : start + self.settings.max_num_seqs]
            for generation in await self._run(self._sample, prompts, batch, sampling):
                yield generation

    async def load_weights(self, path: str, *, version: int) -> None:
        """Copy in a weight file's tensors. Later samples carry `version`."""
        refuse_missing(path)
        await self._run(self._copy_weights, path, version)

    async def sleep(self, level: int = 1) -> None:  # noqa: ARG002 (part of the interface)
        """Move the weights to host memory, at either level: the reference has no place to read
        published weights from again."""
        if self._model is None:
            raise InfrastructureError("the rollout engine is not started; start it first")
        self._asleep = True
        await self._run(self._model.to, "cpu")

    async def wake(self, tags: Sequence[str] | None = None) -> None:
        """Undo `sleep`. The engine is awake once no tags, or "kv_cache", were named."""
        if self._asleep:
            await self._run(self._model.to, self.settings.device)
        if not tags or "kv_cache" in tags:
            self._asleep = False

    async def resident_bytes(self) -> int:
        """Return resident memory on CPU, reserved device bytes on CUDA."""
        if self.settings.device == "cuda":
            return torch.cuda.memory_reserved()
        return resident_bytes()

    async def shutdown(self) -> None:
        """Release the model. The object cannot be started again."""
        self._model = None
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[..., Result], *args: Any) -> Result:
        """Run `work` on the engine's thread, in order."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _load(self) -> None:
        with quick_imports():
            from transformers import AutoModelForCausalLM, AutoTokenizer

        settings = self.settings
        trust = self.settings.trust_remote_code
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                settings.path, dtype=getattr(torch, settings.dtype), trust_remote_code=trust
            )
            self._tokenizer = AutoTokenizer.from_pretrained(
                settings.tokenizer or settings.path, trust_remote_code=trust
            )
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            raise EngineLoadError(
                f"transformers could not load the policy '{settings.path}': {error}"
            ) from error
        if settings.float32_head:
            widen(model.get_output_embeddings())
        self._model = model.eval().to(settings.device)
        torch.manual_seed(settings.seed)

    def _copy_weights(self, path: str, version: int) -> None:
        from rmrl.models.stored_tensors import StoredTensors  # here: it imports transformers

        try:
            StoredTensors(self._model).copy(read_weights(path))
        except KeyError as error:
            raise InfrastructureError(
                f"'{path}' holds tensor {error}, which the policy '{self.settings.path}' does not"
                " have"
            ) from None
        self.version = version

    @torch.inference_mode()
    def _sample(
        self, prompts: Sequence[Sequence[int]], batch: list[tuple[int, int]], sampling: Sampling
    ) -> list[Generation]:
        rows = [list(prompts[p]) for p, _ in batch]
        width = max(map(len, rows))
        device = self.settings.device
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, width - len(row) :] = torch.tensor(row)
            mask[i, width - len(row) :] = 1
        seed = sample_seed(sampling.seed, *batch[0], samples=sampling.n)
        if seed is not None:
            torch.manual_seed(seed)
        options = generation_options(sampling, self._tokenizer, self.settings.max_model_len - width)
        out = self._model.generate(ids.to(device), attention_mask=mask.to(device), **options)
        generations: list[Generation] = []
        for (p, s), row, sampled in zip(batch, rows, out[:, width:].tolist(), strict=True):
            text, tokens, finish_reason = decoded(sampled, self._tokenizer, sampling)
            # Without padding, one row per batch: log softmax(logits / temperature)[token].
            whole = torch.tensor([row + tokens], device=device)
            logits = self._model(whole).logits[0, len(row) - 1 : -1].float()
            logits = logits / (sampling.temperature or 1.0)
            logprobs = logits.log_softmax(-1).gather(1, whole[0, len(row) :, None])[:, 0]
            generation = Generation(
                prompt_index=p,
                sample_index=s,
                text=text,
                token_ids=np.asarray(tokens),
                logprobs=logprobs.cpu().numpy(),
                finish_reason=finish_reason,
                policy_version=self.version,
            )
            generations.append(generation)
        return generations
