"""Reward models on SGLang, asked over its native HTTP server: generative judges, scalar heads,
embeddings.

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
has no counterpart there. Scalars are what /classify returns: raw logits for decoder models with a
classification head; SGLang gives pair encoders a sigmoid, so those are refused. Sleeping needs
--enable-memory-saver (given to our own server on CUDA, with a copy of the weights in host memory,
which level 2 keeps as well); where an attached server has none, sleeping frees nothing.
"""

from __future__ import annotations

import importlib.util
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import httpx

from rmrl.errors import EngineLoadError, InfrastructureError, RewardError
from rmrl.inference.scoring_base import (
    EmbedOutput,
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
    TextOutput,
    TokenOutput,
    ValueOutput,
    overlong_texts,
    overlong_value,
)
from rmrl.inference.sglang.child_server import ChildServer, free_port
from rmrl.inference.sglang.launch import (
    ATTACH_TIMEOUT_S,
    LOAD_TIMEOUT_S,
    REASON_CHARACTERS,
    refusal,
    server_environment,
)
from rmrl.inference.sglang.scoring_wire import (
    asked,
    generate_body,
    launch_command,
    text_output,
    value_output,
)
from rmrl.models.checkpoint_inspect import architecture, check_scalar_head

REQUEST_TIMEOUT_S, PING_TIMEOUT_S = 600.0, 1.0


class SGLangEngine:
    """A `RewardEngine` on SGLang's native server, attached to or started."""

    package: ClassVar[str] = "sglang"
    sleeps_on: ClassVar[tuple[str, ...]] = ("cuda",)
    loads_checkpoint: ClassVar[bool] = True
    batch_invariant_on: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.context_length = 0
        self._child: ChildServer | None = None
        self._http: httpx.Client | None = None
        self._asleep = 0
        self._server: Mapping[str, Any] = {}

    def start(self) -> None:
        """Attach to `base_url` or start a server, and wait until it is healthy.

        Raises EngineLoadError where SGLang is missing, does not become healthy or serves another
        kind of model, RewardError where a scalar head is missing.
        """
        if self.spec.runner == "token_pooling":
            raise EngineLoadError(
                "SGLang gives no logits per token; use engine.name=vllm for a reward of this kind"
            )
        base_url = str(self.spec.kwargs.get("base_url", "")).rstrip("/")
        if not base_url:
            base_url = self._launch()
        timeout_s = float(self.spec.kwargs.get("request_timeout_s", REQUEST_TIMEOUT_S))
        limits = httpx.Limits(
            max_connections=self.spec.max_num_seqs, max_keepalive_connections=self.spec.max_num_seqs
        )
        self._http = httpx.Client(
            base_url=base_url, timeout=timeout_s, limits=limits, trust_env=False
        )
        try:
            self._wait_until_healthy(base_url)
            self._check_model(base_url)
        except BaseException:
            self.close()
            raise

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """See `RewardEngine.generate`; `max_num_seqs` posts at once, batched by the server."""
        return self._each(requests, self._generate_one)

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """See `RewardEngine.classify`; posts of `max_num_seqs` sequences."""
        self._connected()
        fits = [0 < len(r.token_ids) <= self.context_length for r in requests]
        run = [r for r, ok in zip(requests, fits, strict=True) if ok]
        size = self.spec.max_num_seqs
        values = iter(
            [value for i in range(0, len(run), size) for value in self._values(run[i : i + size])]
        )
        return [
            next(values) if ok else overlong_value(r, self.context_length)
            for r, ok in zip(requests, fits, strict=True)
        ]

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]:
        """Never: `start` refuses this runner."""
        raise InfrastructureError(
            f"SGLang gives no logits per token ({len(requests)} sequences were asked for); use"
            " engine.name=vllm"
        )

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]:
        """See `RewardEngine.embed`; an overlong text is marked by the server's refusal."""
        return self._each(requests, self._embed_one)

    def sleep(self, level: int = 1) -> None:
        """Give the device's memory back, weights and KV cache; 2 is as 1, the copy in host memory
        stays."""
        if self._server.get("enable_memory_saver") and not self._asleep:
            self._post("/release_memory_occupation", {})
        self._asleep = max(level, self._asleep)

    def wake(self) -> None:
        """Undo `sleep`; weights without a copy in host memory are read from the checkpoint
        again."""
        if self._asleep and self._server.get("enable_memory_saver"):
            self._post("/resume_memory_occupation", {})
            if not self._server.get("enable_weights_cpu_backup"):
                self._reload_weights()
        self._asleep = 0

    def resident_bytes(self) -> int:
        """CPU: of the server's processes; CUDA: weights and KV cache as the server tells them, 0
        while they are released."""
        if self.spec.device == "cpu":
            if self._child is not None:
                return self._child.resident_bytes()
            return 0
        if self._asleep and self._server.get("enable_memory_saver"):
            return 0
        states = self._server_info().get("internal_states") or [{}]
        used = [state.get("memory_usage", {}) for state in states if isinstance(state, Mapping)]
        return int(
            2**30
            * sum(float(memory.get(part) or 0) for memory in used for part in ("weight", "kvcache"))
        )

    def ping(self) -> str:
        """ "cold", "awake" or "asleep <level>". Raises InfrastructureError when the server has
        gone."""
        if self._http is None:
            return "cold"
        if self._child is not None and not self._child.alive():
            raise InfrastructureError(
                f"the SGLang server of '{self.spec.path}' has ended: {self._child.last_words()}"
            )
        self._get("/get_model_info", PING_TIMEOUT_S)
        if self._asleep:
            return f"asleep {self._asleep}"
        return "awake"

    def close(self) -> None:
        """Let go of the server; end it if it is ours."""
        if self._http is not None:
            self._http.close()
            self._http = None
        if self._child is not None:
            self._child.stop()
            self._child = None

    # --- the server

    def _launch(self) -> str:
        if importlib.util.find_spec("sglang") is None:
            raise EngineLoadError(
                f"SGLang is not installed, and '{self.spec.path}' was to run on it: give"
                " engine.kwargs.base_url with the address of a running server, or install it: pip"
                " install sglang"
            )
        if self.spec.runner == "pooling":
            check_scalar_head(self.spec.path)
            if re.search(r"Bert|Roberta", architecture(self.spec.path)):
                raise EngineLoadError(
                    f"SGLang passes the scores of a pair encoder such as '{self.spec.path}' through"
                    " a sigmoid; use vllm"
                )
        port = free_port()
        self._child = ChildServer(
            launch_command(self.spec, port),
            server_environment(device=self.spec.device, threads=self.spec.threads),
        )
        return f"http://127.0.0.1:{port}"

    def _wait_until_healthy(self, base_url: str) -> None:
        given = self.spec.kwargs.get(
            "load_timeout_s", LOAD_TIMEOUT_S if self._child is not None else ATTACH_TIMEOUT_S
        )
        deadline = time.monotonic() + float(given)
        problem = "it has not answered yet"
        while time.monotonic() < deadline:
            if self._child is not None and not self._child.alive():
                raise EngineLoadError(
                    f"SGLang could not load '{self.spec.path}': {self._child.last_words()}"
                )
            try:
                assert self._http is not None
                answer = self._http.get("/health", timeout=5.0)
                if answer.is_success:
                    return
                problem = f"it answered {answer.status_code}"
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            time.sleep(0.2)
        said = f"; it printed: {self._child.last_words()}" if self._child is not None else ""
        raise EngineLoadError(
            f"the SGLang server at {base_url} was not healthy within {float(given):g} s:"
            f" {problem}{said}"
        )

    def _check_model(self, base_url: str) -> None:
        self._server = self._server_info()
        writes = self._get("/get_model_info").get("is_generation")
        if isinstance(writes, bool) and writes != (self.spec.runner == "generate"):
            serves = "a model that writes text" if writes else "a model that scores or embeds"
            raise EngineLoadError(
                f"the SGLang server at {base_url} serves {serves}, and '{self.spec.path}' is used"
                f" as runner {self.spec.runner}; --is-embedding at its start decides"
            )
        told = self._server.get("context_length")
        known = self.spec.context_length() if self._child is not None else self.spec.max_model_len
        lengths = [length for length in (told, known) if isinstance(length, int)]
        if lengths:
            self.context_length = min(lengths)
        else:
            self.context_length = self.spec.context_length()

    def _server_info(self) -> Mapping[str, Any]:
        return self._get("/get_server_info")

    def _reload_weights(self) -> None:
        told = self._post(
            "/update_weights_from_disk",
            {"model_path": self._server.get("model_path") or self.spec.path},
        )
        if isinstance(told, Mapping) and told.get("success") is False:
            raise InfrastructureError(
                f"SGLang could not read '{self.spec.path}' again after its sleep:"
                f" {told.get('message')}"
            )

    # --- requests

    def _generate_one(self, request: GenerateRequest) -> list[TextOutput]:
        if len(request.token_ids) >= self.context_length:
            return overlong_texts(request, self.context_length)
        answer = self._answer("/generate", generate_body(request))
        if isinstance(answer, str):
            return [
                TextOutput(
                    "", "", len(request.token_ids), 0, failure="provider_error", detail=answer
                )
            ] * request.sampling.n
        samples = answer if isinstance(answer, list) else [answer]
        wanted = asked(request.sampling)
        if len(samples) != wanted:
            raise InfrastructureError(
                f"SGLang gave {len(samples)} samples where {wanted} were asked for"
            )
        texts = [text_output(sample, request) for sample in samples]
        if wanted < request.sampling.n:
            return texts * request.sampling.n
        return texts

    def _values(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        if any(1 in (r.token_type_ids or ()) for r in requests):
            raise RewardError(
                f"SGLang takes no token types, and the pair encoder '{self.spec.path}' reads them;"
                " use engine.name=vllm"
            )
        answer = self._answer("/classify", {"input_ids": [list(r.token_ids) for r in requests]})
        if isinstance(answer, str):
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' failed on a batch: {answer}"
            )
        if not isinstance(answer, list) or len(answer) != len(requests):
            count = len(answer) if isinstance(answer, list) else 1
            raise InfrastructureError(f"SGLang gave {count} values for {len(requests)} sequences")
        return [
            value_output(row, len(r.token_ids)) for row, r in zip(answer, requests, strict=True)
        ]

    def _embed_one(self, request: EmbedRequest) -> EmbedOutput:
        answer = self._answer("/encode", {"text": request.text})
        if isinstance(answer, str):
            too_long = "longer than" in answer or "exceeds" in answer
            return EmbedOutput(
                (), 0, failure="overlong" if too_long else "provider_error", detail=answer
            )
        vector = [float(part) for part in answer["embedding"]]
        length = math.sqrt(math.fsum(part * part for part in vector))
        tokens = int(answer.get("meta_info", {}).get("prompt_tokens", 0))
        if not (math.isfinite(length) and length > 0):
            return EmbedOutput(
                (),
                tokens,
                failure="provider_error",
                detail=f"SGLang gave a vector of length {length}.",
            )
        return EmbedOutput(tuple(part / length for part in vector), tokens)

    def _each(self, requests: Sequence[Any], ask: Callable[[Any], Any]) -> list[Any]:
        self._connected()
        if not requests:
            return []
        with ThreadPoolExecutor(min(len(requests), self.spec.max_num_seqs)) as pool:
            return list(pool.map(ask, requests))

    def _answer(self, path: str, body: Mapping[str, Any]) -> Any:
        """The parsed answer; a string where the server refuses this very request (4xx)."""
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
        """The answer's object; {} where the server does not have this path."""
        http = self._connected()
        try:
            answer = http.get(path, timeout=timeout_s)
            if answer.status_code == 404:
                return {}
            answer.raise_for_status()
            told = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._lost(path, error) from error
        if isinstance(told, Mapping):
            return told
        return {}

    def _connected(self) -> httpx.Client:
        if self._http is None:
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' was used before start(); start it first"
            )
        return self._http

    def _lost(self, path: str, error: Exception) -> InfrastructureError:
        reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]
        if self._child is not None and not self._child.alive():
            said = f"; it printed: {self._child.last_words()}"
        else:
            said = ""
        return InfrastructureError(
            f"the SGLang server of '{self.spec.path}' failed on {path}: {reason}{said}"
        )
