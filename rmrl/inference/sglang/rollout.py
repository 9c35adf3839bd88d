"""The policy's sampler on SGLang's native HTTP server: one that is started here, or one that runs
already.

This file has been run against recorded answers of that server only
(tests/inference/rollout/sglang_recording.json, shapes as SGLang documents them, 0.5), not against a
live SGLang. vLLM is the engine that is measured.

`engine_kwargs.sglang`:
    base_url           attach to this running server, e.g. http://127.0.0.1:30000; it must read the
      same file system. Without it, one is
                       started here: it listens on 127.0.0.1 only and ends with this process
    load_timeout_s     until the server is healthy (default 900; attached: 30), and of one exchange
      of weights (default 900)
    anything else      an option of `python -m sglang.launch_server`: {attention_backend: triton} ->
      --attention-backend triton

Logprobs are training's: log softmax(logits / temperature)[token], before top-k and top-p, which is
what SGLang returns unless SGLANG_RETURN_ORIGINAL_LOGPROB is set in its environment. Seeds count
under {enable_deterministic_inference: true} only. Else equal seeds give different samples.
`kv_cache_bytes` has no counterpart. Sleeping frees memory on CUDA, with --enable-memory-saver.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from rmrl.clock import Clock
from rmrl.errors import EngineLoadError, InfrastructureError, RmrlError
from rmrl.inference.rollout_base import (
    KV_CACHE,
    WEIGHTS,
    RolloutEngineSettings,
    TaggedSleep,
    overdue,
    refuse_missing,
    refuse_overlong,
    sample_seed,
    samples_to_draw,
)
from rmrl.inference.sglang.launch import (
    ATTACH_TIMEOUT_S,
    LOAD_TIMEOUT_S,
    REASON_CHARACTERS,
    refusal,
)
from rmrl.inference.sglang.rollout_wire import Sample, generate_body, generation, launch_command
from rmrl.inference.sglang.server import Server, device_bytes
from rmrl.types import Generation, Sampling

_SLICE_S = 0.05
"""Shortest wait for a sample: one that is there already is found in it."""
_LOOK_S = 1.0
"""Longest wait before the clock is looked at again."""


class SGLangRollout(TaggedSleep):
    """A `RolloutEngine` on SGLang. All methods belong to one event loop; calls of `generate` may
    overlap, the server batches them."""

    package: ClassVar[str] = "sglang"
    sleeps_on: ClassVar[tuple[str, ...]] = ("cuda",)
    ignores_overrides: ClassVar[bool] = True

    def __init__(self, settings: RolloutEngineSettings, *, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self.settings = settings
        self._clock = clock
        self.version = 0
        self._http: httpx.AsyncClient | None = None
        self._server = Server(
            model=f"the policy '{settings.path}'",
            device=settings.device,
            threads=settings.threads,
            kwargs=settings.kwargs,
        )
        self._slots = asyncio.Semaphore(settings.max_num_seqs)
        self._calls = itertools.count()
        self._under_way: set[str] = set()
        self._last_finish = 0.0

    async def start(self) -> None:
        """Attach to `base_url` or start a server, and wait until it is healthy.

        Raises EngineLoadError where SGLang is missing, does not become healthy or serves a model
        that writes no text.
        """
        base_url = self._server.open(
            lambda port: launch_command(self.settings, port),
            not_installed=(
                "actor_rollout_ref.rollout.name=sglang, and SGLang is not installed: give"
                " actor_rollout_ref.rollout.engine_kwargs.sglang.base_url with the address of a"
                " running server, or install it (pip install sglang), or set rollout.name=vllm"
            ),
        )
        limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=self.settings.max_num_seqs
        )
        self._http = httpx.AsyncClient(
            base_url=base_url, timeout=self._load_timeout_s, limits=limits, trust_env=False
        )
        try:
            await asyncio.to_thread(self._server.wait_until_healthy)
            self._server.info = await self._get("/get_server_info")
            if (await self._get("/get_model_info")).get("is_generation") is False:
                raise EngineLoadError(
                    f"the SGLang server at {base_url} serves a model that writes no text; start it"
                    " without --is-embedding"
                )
        except BaseException:
            await self.shutdown()
            raise

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        """Yield samples in the order in which they finish, `sampling.n` for each prompt. Closing
        the iterator aborts the rest.

        Raises DataError for a prompt that does not fit, StallError where the engine finishes
        nothing for `timeout_s`, InfrastructureError when the server fails.
        """
        self.refuse_unready(started=self._http is not None)
        refuse_overlong(prompts, self.settings.max_model_len)
        call = next(self._calls)
        timeout_s = self.settings.timeout_s
        begun = self._clock()
        samples: list[Sample] = []
        tasks: list[asyncio.Task[Generation]] = []
        finished: asyncio.Queue[asyncio.Task[Generation]] = asyncio.Queue()
        for p, s in samples_to_draw(len(prompts), sampling.n, only):
            seed = sample_seed(sampling.seed, p, s, samples=sampling.n)
            sample = Sample(p, s, f"rmrl-{id(self):x}-{call}-{p}-{s}", seed)
            samples.append(sample)
            task = asyncio.ensure_future(self._sample(sample, prompts[p], sampling))
            task.add_done_callback(finished.put_nowait)
            tasks.append(task)
        try:
            for _ in tasks:
                done: asyncio.Task[Generation] | None = None
                while done is None:
                    seconds_left = max(begun, self._last_finish) + timeout_s - self._clock()
                    # What is there already is taken, however late.
                    wait_s = min(_LOOK_S, max(_SLICE_S, seconds_left))
                    try:
                        done = await asyncio.wait_for(finished.get(), wait_s)
                    except TimeoutError as error:
                        if self._clock() >= max(begun, self._last_finish) + timeout_s:
                            raise overdue(timeout_s) from error
                yield done.result()
        finally:
            await self._abandon(tasks, samples)

    async def load_weights(self, path: str, *, version: int) -> None:
        """Replace the weights by a weight file's. Later samples carry `version`.

        Works on a sleeping engine too: its weights are restored, its KV cache stays freed until
        `wake`. Samples in progress are paused, continue under the new weights with their cached
        prefix recomputed, and keep the version they began with.
        """
        refuse_missing(path)
        await self._wake({WEIGHTS})
        paused = bool(self._under_way)
        if paused:
            await self._post("/pause_generation", {"mode": "retract"})
        try:
            parent = Path(path).parent
            with tempfile.TemporaryDirectory(prefix="rmrl-sglang-", dir=parent) as folder:
                # the server reads folders
                link = Path(folder) / "model.safetensors"
                link.symlink_to(Path(path).resolve())
                await self._update_weights(folder, version)
        finally:
            if paused:
                await self._post("/continue_generation", {})
        self.version = version
        self._published = str(path)
        self._weights_dropped = False

    async def sleep(self, level: int = 1) -> None:  # noqa: ARG002 (part of the interface)
        """Free the device's memory, weights and KV cache. Level 2 is the same as 1: the copy in
        host memory stays. Refused while samples are in progress."""
        if self._under_way:
            raise InfrastructureError(
                f"the rollout engine was put to sleep with {len(self._under_way)} samples under"
                " way; await them first"
            )
        awake = [tag for tag in (KV_CACHE, WEIGHTS) if tag not in self._asleep]
        if awake and self._server.saves_memory:
            await self._post("/release_memory_occupation", {"tags": awake})
            if not self._server.keeps_weights:
                self._weights_dropped = True
        self._asleep = {WEIGHTS, KV_CACHE}

    async def resident_bytes(self) -> int:
        """CPU: resident memory in the server's processes; CUDA: weights and KV cache by the
        server's own figures, without released ones."""
        if self.settings.device == "cpu":
            return self._server.process_bytes()
        freed = self._asleep if self._server.saves_memory else set[str]()
        if freed >= {WEIGHTS, KV_CACHE}:
            return 0
        return device_bytes(await self._get("/get_server_info"), freed=freed)

    async def shutdown(self) -> None:
        """Disconnect from the server; end it if it was started here. Samples in progress raise
        InfrastructureError."""
        http = self._http
        self._http = None
        if http is not None:
            await http.aclose()
        await asyncio.to_thread(self._server.stop)

    # --- the server

    @property
    def _load_timeout_s(self) -> float:
        return float(self.settings.kwargs.get("load_timeout_s", LOAD_TIMEOUT_S))

    async def _wake(self, tags: set[str]) -> None:
        sleeping = sorted(tags & self._asleep)
        if sleeping and self._server.saves_memory:
            await self._post("/resume_memory_occupation", {"tags": sleeping})
        self._asleep -= set(sleeping)

    async def _read_checkpoint(self) -> None:
        await self._update_weights(self.settings.path, self.version)

    async def _update_weights(self, folder: str, version: int) -> None:
        answer = await self._post(
            "/update_weights_from_disk", {"model_path": str(folder), "weight_version": str(version)}
        )
        message = answer
        if isinstance(answer, Mapping):
            if answer.get("success") is True:
                return
            message = answer.get("message", answer)
        raise InfrastructureError(
            f"SGLang did not take the weights of version {version}: {message}"
        )

    # --- requests

    async def _sample(
        self, sample: Sample, prompt: Sequence[int], sampling: Sampling
    ) -> Generation:
        async with self._slots:
            self._under_way.add(sample.rid)
            version = self.version
            try:
                room = self.settings.max_model_len - len(prompt)
                body = generate_body(sample, prompt, sampling, room=room)
                answer = await self._post("/generate", body, timeout_s=math.inf)
                self._last_finish = self._clock()
                return generation(sample, answer, version)
            finally:
                self._under_way.discard(sample.rid)

    async def _abandon(
        self, tasks: Sequence[asyncio.Task[Generation]], samples: Iterable[Sample]
    ) -> None:
        """Abort the samples in progress and cancel the tasks; do nothing where all are finished."""
        rids = [sample.rid for sample in samples if sample.rid in self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is None:
            return
        aborts: list[Any] = [
            self._post("/abort_request", {"rid": rid}, timeout_s=ATTACH_TIMEOUT_S) for rid in rids
        ]
        # errors are dropped: a server that has ended has no samples in progress
        await asyncio.gather(*aborts, return_exceptions=True)

    async def _post(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Any:
        """Return the parsed answer, None where it is empty or no JSON is expected. `timeout_s`:
        math.inf for no limit, None for a weight exchange's."""
        http = self._connected()
        limit = timeout_s or self._load_timeout_s
        try:
            answer = await http.post(
                path, json=dict(body), timeout=None if math.isinf(limit) else limit
            )
            if answer.is_error:
                raise InfrastructureError(
                    f"SGLang refused {path} with {answer.status_code}: {refusal(answer)}"
                )
            if answer.content and path != "/abort_request":
                return answer.json()
            return None
        # RuntimeError: the client was closed meanwhile
        except (httpx.HTTPError, ValueError, RuntimeError) as error:
            raise self._lost(path, error) from error

    async def _get(self, path: str) -> Mapping[str, Any]:
        http = self._connected()
        try:
            answer = await http.get(path, timeout=ATTACH_TIMEOUT_S)
            answer.raise_for_status()
            content = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._lost(path, error) from error
        return content if isinstance(content, Mapping) else {}

    def _connected(self) -> httpx.AsyncClient:
        if self._http is None:
            raise InfrastructureError(
                "the rollout engine is not started, or was shut down; start it first"
            )
        return self._http

    def _lost(self, path: str, error: Exception) -> RmrlError:
        reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]
        gone = self._http is None or self._server.ended()
        printed = self._server.printed() if gone else ""
        state = " was shut down or has ended" if gone else ""
        return InfrastructureError(
            f"the SGLang server of the rollout engine{state} ({path}): {reason}{printed}"
        )
