"""A rollout engine's settings, and the checks that every engine makes on a call. Imports nothing
heavy."""

from __future__ import annotations

import itertools
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import DataError, InfrastructureError, StallError
from rmrl.inference.settings import ROLLOUT_SEQUENCES, EngineSettings

WEIGHTS, KV_CACHE = "weights", "kv_cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEngineSettings(EngineSettings):
    """One rollout engine's settings: the section `actor_rollout_ref.rollout`, and the facts that
    other sections decide."""

    tokenizer: str | None
    """Tokenizer folder or hub id. None: `path`."""
    max_model_len: int
    """Prompt + response, tokens."""
    enforce_eager: bool
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    timeout_s: float
    """Deadline for one `generate` call, from its first request to its last sample."""
    seed_per_sample: bool | None = None
    """None: where own seeds cost nothing."""
    float32_head: bool = False
    """Compute logits in float32."""

    @classmethod
    def of(cls, config: RolloutConfig, **decided: Any) -> RolloutEngineSettings:
        """Build the settings from the configuration section. `decided`: path, tokenizer, device,
        threads, max_model_len, trust_remote_code, and `seed` where several engines must draw
        differently."""
        shared = (
            "dtype", "seed", "max_num_batched_tokens", "tensor_parallel_size",
            "gpu_memory_utilization", "kv_cache_bytes", "enforce_eager", "enable_chunked_prefill",
            "enable_prefix_caching", "timeout_s", "seed_per_sample",
        )  # fmt: skip
        fields: dict[str, Any] = {name: getattr(config, name) for name in shared}
        fields["max_num_seqs"] = config.max_num_seqs or ROLLOUT_SEQUENCES[decided["device"]]
        fields["kwargs"] = dict(config.engine_kwargs.get(config.name) or {})
        return cls(**{**fields, **decided})


class TaggedSleep(ABC):
    """A rollout engine's sleeping parts, and the order in which they wake."""

    version: int

    def __init__(self) -> None:
        self._asleep: set[str] = set()
        self._weights_dropped = False
        """Sleep left no copy of the weights."""
        self._published = ""
        """File of the weights published last, or a phrase for weights that came without one. "":
        the checkpoint's."""

    async def wake(self, tags: Sequence[str] | None = None) -> None:
        """Undo `sleep`, or only for "weights" or "kv_cache".

        Without tags, dropped weights are read again: the last published weights, else the
        checkpoint's. To publish new weights instead, call `load_weights` before `wake` (or after
        `wake(["weights"])`), and nothing is read twice. Raises InfrastructureError when the last
        published weights are gone.
        """
        await self._wake(set(tags) if tags else {WEIGHTS})
        if tags:
            return
        if self._weights_dropped and not self._published:
            await self._read_checkpoint()
            self._weights_dropped = False
        elif self._weights_dropped:
            if not Path(self._published).is_file():
                raise InfrastructureError(
                    f"the rollout engine dropped its weights and {self._published} cannot be read"
                    " again; publish weights before waking it fully"
                )
            await self.load_weights(self._published, version=self.version)
        await self._wake({KV_CACHE})

    def refuse_unready(self, *, started: bool) -> None:
        """Raise InfrastructureError unless the engine is started and fully awake."""
        if not started:
            raise not_ready("not started")
        if self._asleep:
            raise not_ready("asleep")
        if self._weights_dropped:
            raise not_ready("without weights")

    @abstractmethod
    async def load_weights(self, path: str, *, version: int) -> None:
        """Replace the weights by those in a file."""

    @abstractmethod
    async def _wake(self, tags: set[str]) -> None:
        """Wake the sleeping parts among `tags`."""

    @abstractmethod
    async def _read_checkpoint(self) -> None:
        """Read the weights that the engine was started with."""


def samples_to_draw(
    prompts: int, samples: int, only: Sequence[tuple[int, int]] | None
) -> list[tuple[int, int]]:
    """Return (prompt, sample) for each sample in a call. `only`: these samples and no others."""
    if only is not None:
        return list(only)
    return list(itertools.product(range(prompts), range(samples)))


def refuse_overlong(prompts: Sequence[Sequence[int]], max_model_len: int) -> None:
    """Raise DataError when a prompt is empty or leaves no room for one sampled token."""
    for index, prompt in enumerate(prompts):
        if not 0 < len(prompt) < max_model_len:
            raise DataError(
                f"prompt {index} of the call has {len(prompt)} tokens and the rollout engine takes"
                f" 1 to {max_model_len - 1}; lower data.max_prompt_length or raise"
                " actor_rollout_ref.rollout.max_model_len"
            )


def refuse_missing(path: str) -> None:
    """Raise InfrastructureError where there is no weight file to read."""
    if not Path(path).is_file():
        raise InfrastructureError(
            f"the weights to load were to be in '{path}', and there is no such file; publish them"
            " again"
        )


def not_ready(state: str) -> InfrastructureError:
    """Return the error for a call that came in a state such as "asleep"."""
    return InfrastructureError(f"the rollout engine is {state}; start or wake it before generating")


def overdue(timeout_s: float) -> StallError:
    """Return the error for an engine that has finished nothing for `timeout_s` seconds."""
    return StallError(
        "the rollout engine finished nothing for"
        f" actor_rollout_ref.rollout.timeout_s={timeout_s:g} s; raise it or let it write fewer"
        " tokens"
    )


def sample_seed(
    seed: int | None, prompt_index: int, sample_index: int, *, samples: int
) -> int | None:
    """Return a different seed for every sample in a call. None stays None (the engine's own
    generator)."""
    if seed is None:
        return None
    return seed + prompt_index * samples + sample_index


def call_seed(
    seed: int,
    engine_seed: int,
    prompts: Sequence[Sequence[int]],
    drawn: Sequence[tuple[int, int]],
) -> int:
    """Return the seed for one call whose samples have no own seeds. The same call has the same
    seed. Other prompts, other samples or another engine give another seed, so that no two calls
    draw the same numbers."""
    content = zlib.crc32(repr(([list(prompt) for prompt in prompts], list(drawn))).encode())
    return int(np.random.SeedSequence([seed, engine_seed, content]).generate_state(1)[0])
