"""Reward models on SGLang's native HTTP server: generative judges, scalar heads, embeddings.

This file has been run against recorded answers of that server only
(tests/inference/scoring/sglang_recording.json, shapes as SGLang documents them, 0.5), not against a
live SGLang. vLLM is the engine that is measured.

`engine.kwargs`:
    base_url           attach to this running server, e.g. http://127.0.0.1:30000; without it, one
      is started here
    load_timeout_s     until the server is healthy (default 900; attached: 30)
    request_timeout_s  of one request (default 600)
    anything else      an option of `python -m sglang.launch_server`: {attention_backend: triton} ->
      --attention-backend triton

The server that is started listens on 127.0.0.1 only and ends with this process. `kv_cache_bytes`
has no counterpart there. Heads give what /classify returns: raw logits, one per label, for decoder
models with a classification head; SGLang gives pair encoders a sigmoid, so those are refused.
Sleeping needs --enable-memory-saver (given to our own server on CUDA, with a copy of the weights in
host memory, which level 2 keeps as well). Where an attached server has none, sleeping frees
nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import httpx

from rmrl.errors import EngineLoadError, InfrastructureError, RewardError
from rmrl.inference.fitting import answered, up_to_padding
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
from rmrl.inference.sglang.launch import ATTACH_TIMEOUT_S, REASON_CHARACTERS, refusal
from rmrl.inference.sglang.reward_wire import (
    generate_body,
    label_output,
    launch_command,
    sample_count,
    text_output,
)
from rmrl.inference.sglang.server import Server, device_bytes
from rmrl.models.checkpoint_inspect import architecture, check_label_head
from rmrl.models.classifier_padding import padding_token

REQUEST_TIMEOUT_S = 600.0
PING_TIMEOUT_S = 1.0


class SGLangEngine:
    """A `RewardEngine` on SGLang's native server, attached to or started."""

    package: ClassVar[str] = "sglang"
    runners: ClassVar[tuple[str, ...]] = ("generate", "pooling", "embed")
    sleeps_on: ClassVar[tuple[str, ...]] = ("cuda",)
    loads_checkpoint: ClassVar[bool] = True
    batch_invariant_on: ClassVar[tuple[str, ...]] = ()
    rates_tokens: ClassVar[bool] = False

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._progress = Progress()
        self._http: httpx.Client | None = None
        self._asleep = 0
        self._padding: int | None = None
        self._server = Server(
            model=f"'{spec.path}'", device=spec.device, threads=spec.threads, kwargs=spec.kwargs
        )

    def start(self) -> None:
        """Attach to `base_url` or start a server, and wait until it is healthy.

        Raises EngineLoadError where SGLang is missing, does not become healthy or serves another
        kind of model, RewardError where a scalar head is missing.
        """
        if self.spec.runner == "token_pooling":
            raise EngineLoadError(
                "SGLang gives no logits per token; use engine.name=vllm for a reward of this kind"
            )
        base_url = self._server.open(
            self._launch_command,
            not_installed=(
                f"SGLang is not installed, and '{self.spec.path}' is to run on it: give"
                " engine.kwargs.base_url with the address of a running server, or install it: pip"
                " install sglang"
            ),
        )
        timeout_s = float(self.spec.kwargs.get("request_timeout_s", REQUEST_TIMEOUT_S))
        size = self.spec.max_num_seqs
        limits = httpx.Limits(max_connections=size, max_keepalive_connections=size)
        self._http = httpx.Client(
            base_url=base_url, timeout=timeout_s, limits=limits, trust_env=False
        )
        try:
            self._server.wait_until_healthy()
            self._check_model(base_url)
        except BaseException:
            self.close()
            raise

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """See `RewardEngine.generate`; `max_num_seqs` posts at once, batched by the server."""
        return self._each(requests, self._generate_one)

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """See `RewardEngine.classify`; posts as in `label_logits`."""
        return list(map(only_label, self.label_logits(requests)))

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:
        """See `RewardEngine.label_logits`; posts with `max_num_seqs` sequences."""
        self._connected()
        size = self.spec.max_num_seqs

        def run(fitting: list[PoolingRequest]) -> list[LabelOutput]:
            outputs: list[LabelOutput] = []
            if any(1 in (request.token_type_ids or ()) for request in fitting):
                raise RewardError(
                    f"SGLang takes no token types, and the pair encoder '{self.spec.path}' reads"
                    " them; use engine.name=vllm"
                )
            for start in range(0, len(fitting), size):
                rows = [list(request.token_ids) for request in fitting[start : start + size]]
                answer = self._answer("/classify", {"input_ids": rows})
                if isinstance(answer, str):
                    raise InfrastructureError(
                        f"the engine of '{self.spec.path}' failed on a batch: {answer}"
                    )
                if not isinstance(answer, list) or len(answer) != len(rows):
                    count = len(answer) if isinstance(answer, list) else 1
                    raise InfrastructureError(
                        f"SGLang gave {count} values for {len(rows)} sequences"
                    )
                for number, row in zip(answer, rows, strict=True):
                    outputs.append(label_output(number, len(row)))
                self._progress.add(len(rows))
            return outputs

        return answered(
            up_to_padding(requests, self._padding),
            lambda r: 0 < len(r.token_ids) <= self.context_length,
            run=run,
            mark=lambda r: overlong_labels(r, self.context_length),
        )

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]:
        """Raise InfrastructureError; `start` refuses this runner."""
        raise InfrastructureError(
            f"SGLang gives no logits per token ({len(requests)} sequences were sent); use"
            " engine.name=vllm"
        )

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
        """Raise InfrastructureError. Such rewards are refused before the start."""
        raise InfrastructureError(
            f"SGLang is not asked for log-probabilities of given tokens ({len(requests)} texts"
            " were sent); use engine.name=vllm"
        )

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]:
        """See `RewardEngine.embed`. An overlong text is marked by the server's refusal."""
        return self._each(requests, self._embed_one)

    def sleep(self, level: int = 1) -> None:
        """Free the device's memory, weights and KV cache. Level 2 is the same as 1: the copy in
        host memory stays."""
        if self._server.saves_memory and not self._asleep:
            self._post("/release_memory_occupation", {})
        self._asleep = max(level, self._asleep)

    def wake(self) -> None:
        """Undo `sleep`; weights without a copy in host memory are read from the checkpoint
        again."""
        if self._asleep and self._server.saves_memory:
            self._post("/resume_memory_occupation", {})
            if not self._server.keeps_weights:
                folder = self._server.info.get("model_path") or self.spec.path
                answer = self._post("/update_weights_from_disk", {"model_path": folder})
                if isinstance(answer, Mapping) and answer.get("success") is False:
                    raise InfrastructureError(
                        f"SGLang could not read '{self.spec.path}' again after its sleep:"
                        f" {answer.get('message')}"
                    )
        self._asleep = 0

    def resident_bytes(self) -> int:
        """CPU: resident memory in the server's processes; CUDA: weights and KV cache by the
        server's own figures, 0 while they are released."""
        if self.spec.device == "cpu":
            return self._server.process_bytes()
        if self._asleep and self._server.saves_memory:
            return 0
        return device_bytes(self._get("/get_server_info"))

    def progress(self) -> int:
        return self._progress.count

    def ping(self) -> str:
        """Return "cold", "awake" or "asleep <level>". Raises InfrastructureError when the server
        has ended."""
        if self._http is None:
            return "cold"
        if self._server.ended():
            raise InfrastructureError(
                f"the SGLang server of '{self.spec.path}' has ended{self._server.printed()}"
            )
        self._get("/get_model_info", PING_TIMEOUT_S)
        if self._asleep:
            return f"asleep {self._asleep}"
        return "awake"

    def close(self) -> None:
        """Disconnect from the server; end it if it was started here."""
        if self._http is not None:
            self._http.close()
            self._http = None
        self._server.stop()

    # --- the server

    def _launch_command(self, port: int) -> list[str]:
        if self.spec.runner == "pooling":
            check_label_head(self.spec.path)
            self._padding = padding_token(self.spec.path)
            if re.search(r"Bert|Roberta", architecture(self.spec.path)):
                raise EngineLoadError(
                    f"SGLang passes the scores of a pair encoder such as '{self.spec.path}' through"
                    " a sigmoid; use vllm"
                )
        return launch_command(self.spec, port)

    def _check_model(self, base_url: str) -> None:
        self._server.info = self._get("/get_server_info")
        writes = self._get("/get_model_info").get("is_generation")
        if isinstance(writes, bool) and writes != (self.spec.runner == "generate"):
            serves = "a model that writes text" if writes else "a model that scores or embeds"
            raise EngineLoadError(
                f"the SGLang server at {base_url} serves {serves}, and '{self.spec.path}' is used"
                f" as runner {self.spec.runner}; --is-embedding at its start decides"
            )
        limit = (
            self.spec.max_model_len if self._server.child is None else self.spec.context_length()
        )
        limits = (self._server.info.get("context_length"), limit)
        lengths = [length for length in limits if isinstance(length, int)]
        self.context_length = min(lengths) if lengths else self.spec.context_length()

    # --- requests

    def _generate_one(self, request: GenerateRequest) -> list[TextOutput]:
        if len(request.token_ids) >= self.context_length:
            return overlong_texts(request, self.context_length)
        answer = self._answer("/generate", generate_body(request))
        if isinstance(answer, str):
            tokens = len(request.token_ids)
            output = TextOutput("", "", tokens, 0, failure="provider_error", detail=answer)
            return [output] * request.sampling.n
        samples = answer if isinstance(answer, list) else [answer]
        count = sample_count(request.sampling)
        if len(samples) != count:
            raise InfrastructureError(
                f"SGLang gave {len(samples)} samples where {count} were asked for"
            )
        texts = [text_output(sample, request) for sample in samples]
        if count < request.sampling.n:
            return texts * request.sampling.n
        return texts

    def _embed_one(self, request: EmbedRequest) -> EmbedOutput:
        answer = self._answer("/encode", {"text": request.text})
        if isinstance(answer, str):
            overlong = "longer than" in answer or "exceeds" in answer
            failure = "overlong" if overlong else "provider_error"
            return EmbedOutput((), 0, failure=failure, detail=answer)
        vector = [float(part) for part in answer["embedding"]]
        length = math.sqrt(math.fsum(part * part for part in vector))
        tokens = int(answer.get("meta_info", {}).get("prompt_tokens", 0))
        if not (math.isfinite(length) and length > 0):
            detail = f"SGLang gave a vector of length {length}."
            return EmbedOutput((), tokens, failure="provider_error", detail=detail)
        return EmbedOutput(tuple(part / length for part in vector), tokens)

    def _each(self, requests: Sequence[Any], send: Callable[[Any], Any]) -> list[Any]:
        self._connected()
        if not requests:
            return []
        answers: list[Any] = []
        with ThreadPoolExecutor(min(len(requests), self.spec.max_num_seqs)) as pool:
            for answer in pool.map(send, requests):
                answers.append(answer)
                self._progress.add()
        return answers

    def _answer(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the parsed answer; a string where the server refuses this very request (4xx)."""
        http = self._connected()
        try:
            answer = http.post(path, json=body)
            if 400 <= answer.status_code < 500 and answer.status_code != 404:
                return f"SGLang refused the request with {answer.status_code}: {refusal(answer)}"
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._lost(path, error) from error

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        http = self._connected()
        try:
            answer = http.post(path, json=body)
            answer.raise_for_status()
            if answer.content:
                return answer.json()
            return None
        except (httpx.HTTPError, ValueError) as error:
            raise self._lost(path, error) from error

    def _get(self, path: str, timeout_s: float = ATTACH_TIMEOUT_S) -> Mapping[str, Any]:
        """Return the answer's object, {} where the server does not have this path."""
        http = self._connected()
        try:
            answer = http.get(path, timeout=timeout_s)
            if answer.status_code == 404:
                return {}
            answer.raise_for_status()
            content = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._lost(path, error) from error
        return content if isinstance(content, Mapping) else {}

    def _connected(self) -> httpx.Client:
        if self._http is None:
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' was used before start(); start it first"
            )
        return self._http

    def _lost(self, path: str, error: Exception) -> InfrastructureError:
        reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]
        printed = self._server.printed() if self._server.ended() else ""
        return InfrastructureError(
            f"the SGLang server of '{self.spec.path}' failed on {path}: {reason}{printed}"
        )
