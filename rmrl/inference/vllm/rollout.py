"""The policy's sampler on vLLM: continuous batching, every sample returned as soon as it is
finished.

The engine runs in this process, on its own thread. vLLM's AsyncLLM would put it into a second
process, which starts later, holds the libraries' memory once more and outlives a killed parent.
Here the event loop stays free because the thread releases the interpreter lock inside every kernel
and hands control back after a few steps.

Logprobs are training's: log softmax(logits / temperature)[token], before top-k and top-p
(`WorkerExtension.report_tempered_logprobs`). Greedy samples (temperature 0) report temperature 1.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from rmrl.clock import Clock
from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError, RmrlError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput, overlong_texts
from rmrl.inference.rollout_base import (
    KV_CACHE,
    WEIGHTS,
    RolloutEngineSettings,
    TaggedSleep,
    call_seed,
    overdue,
    refuse_overlong,
    sample_seed,
    samples_to_draw,
)
from rmrl.inference.vllm import batch_invariance, compat
from rmrl.inference.vllm.arguments import can_widen_head, engine_arguments, with_wide_head
from rmrl.inference.vllm.sampling import sampling_params
from rmrl.inference.vllm.texts import SampleTexts, text_output
from rmrl.startup import quick_imports
from rmrl.types import Generation, Sampling

Result = TypeVar("Result")
Answer: TypeAlias = tuple[int, int, TextOutput]
"""Number of a reward's request in its call, number of the sample, and its text."""
Arrivals: TypeAlias = "asyncio.Queue[Generation | Answer | RmrlError]"

_SLICE_S = 0.02
"""Engine steps are run in slices of at most this long (a started step is finished), so that new
requests get in between."""
_REASON_CHARACTERS = 1500


@dataclass(slots=True)
class _Pending:
    """A request in the engine."""

    prompt_index: int
    sample_index: int
    version: int
    arrivals: asyncio.Queue[Generation | Answer | RmrlError]
    params: Any = None
    """vLLM's SamplingParams."""
    request: GenerateRequest | None = None
    """Request of a reward. None: a sample to train on."""

    def result(self, output: Any) -> Generation | Answer:
        """Return what vLLM's completion `output` answers this request with."""
        if self.request is not None:
            return self.prompt_index, self.sample_index, text_output(self.request, output)
        return Generation(
            prompt_index=self.prompt_index,
            sample_index=self.sample_index,
            text=output.text,
            token_ids=np.asarray(output.token_ids, dtype=np.int32),
            logprobs=np.asarray(output.logprobs.logprobs, dtype=np.float32),
            finish_reason=output.finish_reason or "stop",
            policy_version=self.version,
        )


class VLLMRollout(TaggedSleep):
    """A `RolloutEngine` on vLLM. The process must have been given
    `rmrl.inference.environment.engine_environment`.

    All methods belong to one event loop. `generate` calls may overlap. They share the batch.
    """

    package: ClassVar[str] = "vllm"
    answers: ClassVar[bool] = True
    version_problem = staticmethod(compat.version_problem)
    kept_asleep_bytes = staticmethod(compat.kept_asleep_bytes)
    batch_invariant_on: ClassVar[tuple[str, ...]] = ("cuda",)
    transport_problem = staticmethod(compat.transport_problem)
    widens_head = staticmethod(compat.widens_head)
    weight_transports: ClassVar[tuple[str, ...]] = ("auto", "file", "ipc", "nccl", "nccl_m2n")

    @staticmethod
    def derived_arguments(overrides: Mapping[str, Any], weight_transport: str) -> dict[str, Any]:
        """Sample from the model that trains, and open vLLM's weight transfer where it is used."""
        arguments: dict[str, Any] = {}
        if overrides:
            arguments["hf_overrides"] = dict(overrides)
        if weight_transport in ("ipc", "nccl", "nccl_m2n"):
            arguments["weight_transfer_config"] = {"backend": weight_transport}
        return arguments

    def __init__(self, settings: RolloutEngineSettings, *, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self.settings = settings
        self._clock = clock
        self.version = 0
        self._engine: Any = None
        self._texts: SampleTexts
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout-engine")
        self._pending: dict[str, _Pending] = {}
        self._ids = itertools.count()
        self._pump: asyncio.Task[None] | None = None
        self._steps = 0
        self._last_output = 0.0
        """When the engine finished something last, by the clock."""
        self._logprobs_before_filters = True
        self._seeds_samples = True

    async def start(self) -> None:
        """Load the checkpoint. Raises EngineLoadError with how vLLM's own reason ends."""
        try:
            await self._run(self._load)
        except InfrastructureError as error:
            raise EngineLoadError(
                f"vLLM could not load the policy '{self.settings.path}' on {self.settings.device}:"
                f" {error}"
            ) from error

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        """Yield samples in the order in which they finish, `sampling.n` for each prompt. Closing
        the iterator aborts the rest.

        With `sampling.seed` every sample gets its own seed, so results do not depend on the batch's
        other rows. The engine's generator is seeded instead where `settings.seed_per_sample` says
        so. Raises DataError for a prompt that does not fit, StallError where the engine finishes
        nothing for `timeout_s`, InfrastructureError when the engine fails.
        """
        self.refuse_unready(started=self._engine is not None)
        filters = sampling.top_p < 1 or sampling.top_k > 0
        if filters and not self._logprobs_before_filters:
            raise ConfigError(
                "this vLLM reports logprobs after top_p/top_k only; use top_p=1 top_k=-1 or unset"
                " VLLM_USE_V2_MODEL_RUNNER"
            )
        refuse_overlong(prompts, self.settings.max_model_len)
        arrivals: Arrivals = asyncio.Queue()
        requests_by_id: dict[str, _Pending] = {}
        for prompt_index, sample_index in samples_to_draw(len(prompts), sampling.n, only):
            pending = _Pending(prompt_index, sample_index, self.version, arrivals)
            requests_by_id[str(next(self._ids))] = pending
        submit = partial(self._submit, requests_by_id, prompts, sampling)
        async with aclosing(self._finished(requests_by_id, arrivals, submit=submit)) as samples:
            async for sample in samples:
                assert isinstance(sample, Generation)
                yield sample

    async def answer(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Return `sampling.n` texts for each request from a reward, from the present weights. A
        prompt that does not fit is marked. `choice_tokens`' log-probabilities are at temperature 1.
        Errors as `generate`."""
        self.refuse_unready(started=self._engine is not None)
        arrivals: Arrivals = asyncio.Queue()
        outputs: list[list[TextOutput]] = [[] for _ in requests]
        requests_by_id: dict[str, _Pending] = {}
        for place, request in enumerate(requests):
            if len(request.token_ids) >= self.settings.max_model_len:
                outputs[place] = overlong_texts(request, self.settings.max_model_len)
                continue
            # Greedy samples are all the same.
            count = 1 if request.sampling.temperature == 0 else request.sampling.n
            for number in range(count):
                pending = _Pending(place, number, self.version, arrivals, request=request)
                requests_by_id[str(next(self._ids))] = pending
        submit = partial(self._submit_requests, requests_by_id)
        texts: dict[tuple[int, int], TextOutput] = {}
        async with aclosing(self._finished(requests_by_id, arrivals, submit=submit)) as answers:
            async for place, number, text in answers:
                texts[place, number] = text
        for place, number in sorted(texts):
            outputs[place].append(texts[place, number])
        for place, request in enumerate(requests):
            if request.sampling.temperature == 0 and len(outputs[place]) == 1:
                outputs[place] *= request.sampling.n
        return outputs

    def progress(self) -> int:
        """Return how many engine steps there were so far, for samples and answers alike: a call
        that waits behind others has not stopped while they are worked on."""
        return self._steps

    async def load_weights(self, path: str, *, version: int) -> None:
        """Replace the weights by a weight file's. Later samples carry `version`.

        Works on a sleeping engine too: its weights are restored, its KV cache stays freed until
        `wake`. Samples in progress continue under the new weights with their cached prefix
        recomputed, and keep the version they began with.
        """
        await self._wake({WEIGHTS})
        await self._run(lambda: self._engine.collective_rpc("load_weight_file", args=(str(path),)))
        await self._run(lambda: self._engine.reset_prefix_cache(reset_running_requests=True))
        self.version = version
        self._published = str(path)
        self._weights_dropped = False

    async def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Prepare for weights that vLLM itself transfers; needs
        engine_kwargs.vllm.weight_transfer_config. `init_info` may hold an engine_number."""
        if "engine_number" in init_info:
            number = init_info["engine_number"]
            info = {key: value for key, value in init_info.items() if key != "engine_number"}
            await self._rpc("join_weight_transfer", init_info=info, engine_number=number)
            return
        await self._rpc("init_weight_transfer_engine", init_info=init_info)

    async def start_weight_update(self) -> None:
        """Begin new weights. A sleeping engine's weights are restored, its KV cache is not."""
        await self._wake({WEIGHTS})
        await self._rpc("start_weight_update")

    async def update_weights(self, update_info: Any) -> None:
        """Receive some weights, as vLLM's trainer side describes it."""
        await self._rpc("update_weights", update_info=update_info)

    async def finish_weight_update(self, version: int) -> None:
        """Complete the new weights. Later samples carry `version`. Samples in progress continue as
        with `load_weights`."""
        await self._rpc("finish_weight_update")
        await self._run(lambda: self._engine.reset_prefix_cache(reset_running_requests=True))
        self.version = version
        self._published = "the weights sent last"
        self._weights_dropped = False

    async def sleep(self, level: int = 1) -> None:
        """Free the KV cache and keep the weights in host memory (1), or drop the weights too (2).
        Refused while samples are in progress."""
        if self._pending:
            raise InfrastructureError(
                f"the rollout engine was put to sleep with {len(self._pending)} samples under way;"
                " await them first"
            )
        if self._asleep and (self._weights_dropped or level < 2):
            return
        await self._wake(set(self._asleep))
        await self._run(lambda: self._engine.sleep(level=level))
        self._asleep = {WEIGHTS, KV_CACHE}
        self._weights_dropped = level >= 2

    async def resident_bytes(self) -> int:
        """Return resident memory on CPU, device bytes on CUDA, summed over a tensor-parallel
        group."""
        return sum(await self._run(lambda: self._engine.collective_rpc("worker_bytes")))

    async def shutdown(self) -> None:
        """Stop the engine; samples in progress raise InfrastructureError. The object cannot be
        started again."""
        self._fail_all(
            InfrastructureError("the rollout engine was shut down while samples were under way")
        )
        if self._engine is not None:
            await self._run(lambda: self._engine.engine_core.shutdown())
            self._engine = None
        self._thread.shutdown(wait=False)

    async def _finished(
        self,
        requests_by_id: Mapping[str, _Pending],
        arrivals: Arrivals,
        *,
        submit: Callable[[], None],
    ) -> AsyncGenerator[Any]:
        """Hand the requests to the engine and yield what they become. The rest is aborted
        when the iterator is closed."""
        timeout_s = self.settings.timeout_s
        self._pending |= requests_by_id
        try:
            await self._run(submit)
            begun = self._clock()
            if self._pump is None or self._pump.done():
                self._pump = asyncio.get_running_loop().create_task(self._pump_outputs())
            for _ in requests_by_id:
                arrival: Generation | Answer | RmrlError | None = None
                while arrival is None:
                    last = max(begun, self._last_output)
                    # What is there already is taken, however late.
                    seconds_left = max(_SLICE_S, last + timeout_s - self._clock())
                    try:
                        arrival = await asyncio.wait_for(arrivals.get(), seconds_left)
                    except TimeoutError as error:
                        if self._last_output <= last:
                            raise overdue(timeout_s) from error
                if isinstance(arrival, RmrlError):
                    raise arrival
                yield arrival
        finally:
            unfinished = [i for i in requests_by_id if self._pending.pop(i, None)]
            if unfinished:
                await self._run(lambda: self._engine.abort_request(unfinished))

    # --- on the engine thread ---

    def _load(self) -> None:
        compat.refuse_version()
        batch_invariance.check_device()
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        with quick_imports():
            from vllm import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine

        settings = self.settings
        arguments: dict[str, Any] = {
            "enable_chunked_prefill": settings.enable_chunked_prefill,
            "enable_prefix_caching": settings.enable_prefix_caching,
            "logprobs_mode": "processed_logprobs",
        }
        if settings.device == "cuda":
            arguments["enforce_eager"] = settings.enforce_eager
        arguments |= engine_arguments(
            settings,
            runner="generate",
            max_model_len=settings.max_model_len,
            tokenizer=settings.tokenizer,
            chunks=settings.enable_chunked_prefill,
        )
        widens = settings.float32_head and can_widen_head(settings)
        if widens and settings.device == "cuda":
            arguments = with_wide_head(arguments)
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(**compat.known_arguments(arguments, EngineArgs.__dataclass_fields__))
        )
        self._engine.collective_rpc("end_with_parent", args=(os.getpid(),))
        if widens and settings.device == "cpu":
            self._engine.collective_rpc("widen_heads", args=(True,))
        self._texts = SampleTexts(self._engine.get_tokenizer())
        self._logprobs_before_filters = all(self._engine.collective_rpc("report_tempered_logprobs"))
        self._seeds_samples = seeds_samples(settings, first_runner=self._logprobs_before_filters)

    def _submit(
        self,
        requests_by_id: Mapping[str, _Pending],
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
    ) -> None:
        of_samples = sampling.seed if self._seeds_samples else None
        if sampling.seed is not None and not self._seeds_samples:
            drawn = [(each.prompt_index, each.sample_index) for each in requests_by_id.values()]
            seed = call_seed(sampling.seed, self.settings.seed, prompts, drawn)
            self._engine.collective_rpc("seed_sampling", args=(seed,))
        for request_id, pending in requests_by_id.items():
            seed = sample_seed(
                of_samples, pending.prompt_index, pending.sample_index, samples=sampling.n
            )
            pending.params = sampling_params(
                sampling,
                n=1,
                seed=seed,
                logprobs=0,
                flat_logprobs=True,
                detokenize=self._texts.needs_vllm(sampling),
            )
            prompt = {"prompt_token_ids": list(prompts[pending.prompt_index])}
            self._engine.add_request(request_id, prompt, pending.params)

    def _submit_requests(self, requests_by_id: Mapping[str, _Pending]) -> None:
        for request_id, pending in requests_by_id.items():
            request = pending.request
            assert request is not None
            sampling = request.sampling
            pending.params = sampling_params(
                sampling,
                n=1,
                seed=sample_seed(sampling.seed, 0, pending.sample_index, samples=sampling.n),
                logprob_token_ids=list(request.choice_tokens) or None,
                flat_logprobs=True,
                detokenize=self._texts.needs_vllm(sampling),
            )
            prompt = {"prompt_token_ids": list(request.token_ids)}
            self._engine.add_request(request_id, prompt, pending.params)

    def _advance(self) -> list[Any]:
        """Step until an output is finished or the slice is over. Return the finished outputs."""
        end = self._clock() + _SLICE_S
        finished: list[Any] = []
        while not finished and self._engine.has_unfinished_requests() and self._clock() < end:
            finished = [output for output in self._engine.step() if output.finished]
            self._steps += 1
        for output in finished:
            pending = self._pending.get(output.request_id)
            if pending is not None:
                self._texts.fill(output, pending.params)
        return finished

    # --- on the event loop ---

    async def _run(self, work: Callable[[], Result]) -> Result:
        """Run `work` on the engine thread, in order; vLLM's errors become InfrastructureError."""
        if self._engine is None and work != self._load:
            raise InfrastructureError("the rollout engine is not started; start it first")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RmrlError:
            raise
        except Exception as error:  # vLLM raises every kind of error
            reason = f"{type(error).__name__}: {error}"[-_REASON_CHARACTERS:]
            raise InfrastructureError(f"the rollout engine failed: {reason}") from error

    async def _rpc(self, method: str, **kwargs: Any) -> None:
        """Call a method on vLLM's worker in every process in a tensor-parallel group."""
        await self._run(lambda: self._engine.collective_rpc(method, kwargs=kwargs))

    async def _pump_outputs(self) -> None:
        while self._pending:
            try:
                outputs = await self._run(self._advance)
            except RmrlError as error:
                self._fail_all(error)
                return
            if outputs:
                self._last_output = self._clock()
            for output in outputs:
                pending = self._pending.pop(output.request_id, None)
                if pending is not None:
                    pending.arrivals.put_nowait(pending.result(output.outputs[0]))

    def _fail_all(self, error: RmrlError) -> None:
        for pending in self._pending.values():
            pending.arrivals.put_nowait(error)
        self._pending.clear()

    async def _wake(self, tags: set[str]) -> None:
        sleeping = sorted(tags & self._asleep)
        if sleeping:
            await self._run(lambda: self._engine.wake_up(sleeping))
            self._asleep -= set(sleeping)

    async def _read_checkpoint(self) -> None:
        await self._run(lambda: self._engine.collective_rpc("reload_weights"))


def seeds_samples(settings: RolloutEngineSettings, *, first_runner: bool) -> bool:
    """Return whether every sample gets its own seed. vLLM's first model runner draws from one
    generator after another, which takes about 10 microseconds a sequence and step on a GPU by
    reading. The second runner has one kernel for all."""
    if settings.seed_per_sample is not None:
        return settings.seed_per_sample
    return settings.device == "cpu" or not first_runner
