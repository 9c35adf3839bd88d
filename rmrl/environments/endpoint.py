"""HTTP endpoint on the loopback from which an environment samples: token ids in, ids and
log-probabilities out.

Each request names its trace (X-Session-ID). So the endpoint knows to which sample a turn belongs,
counts its tokens, and draws the same turn with the same seed in every run. The run decides
temperature, top_p and top_k, since training divides logits by the same temperature.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rmrl.environments.generate_wire import PATH, RefusedError, read_request, reply
from rmrl.errors import RmrlError
from rmrl.types import Generation, Sampling

Draw = Callable[[Sequence[int], Sampling, str], Awaitable[Generation]]
"""Tokens, sampling and the trace -> the next turn."""

_MOST_BYTES = 2**26
_UNKNOWN_S = 30.0
"""Longest time in which a trace is announced, on another way than its first request."""


def digest(tokens: Sequence[int]) -> bytes:
    """Return what tells a prompt from others."""
    return hashlib.sha256(np.asarray(tokens, dtype=np.int64).tobytes()).digest()


@dataclass(slots=True, kw_only=True)
class Conversing:
    """A trace under way."""

    draw: Draw
    sampling: Sampling
    """`max_tokens` holds for all turns together."""
    turns: dict[bytes, list[Generation]] = field(default_factory=dict[bytes, list[Generation]])
    """A prompt's digest -> the turns that were drawn behind it."""
    begun: Counter[bytes] = field(default_factory=Counter[bytes])
    """How often each prompt came. The same prompt draws with another seed."""
    limit: str = ""
    """The limit for which the latest turn was refused, in verifiers' words."""

    @property
    def remaining(self) -> int:
        """How many tokens the trace may still have."""
        drawn = sum(len(turn.token_ids) for turns in self.turns.values() for turn in turns)
        return self.sampling.max_tokens - drawn

    def turn(self, prompt: Sequence[int], tokens: Sequence[int]) -> Generation | None:
        """Return the turn that was drawn behind a prompt and has these tokens."""
        for turn in self.turns.get(digest(prompt), ()):
            if turn.token_ids.tolist() == list(tokens):
                return turn
        return None

    def sampling_behind(self, prompt: Sequence[int], **changes: Any) -> Sampling:
        """Return how to sample the next turn. Its seed depends on the prompt, and not on the order
        in which turns arrive."""
        own = digest(prompt)
        self.begun[own] += 1
        seed = self.sampling.seed
        if seed is not None:
            text = own + f"{seed}|{self.begun[own]}".encode()
            seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1
        return replace(self.sampling, n=1, seed=seed, **changes)


class Endpoint:
    """Answers the turns that all samples ask for."""

    def __init__(self, *, model: str, max_model_len: int) -> None:
        self.token = secrets.token_urlsafe(24)
        """Bearer token that every request has to carry."""
        self.url = ""
        """Address, while the endpoint listens."""
        self._model = model
        self._max_model_len = max_model_len
        self._traces: dict[str, Conversing | None] = {}
        """None: the trace is over."""
        self._announced = asyncio.Event()
        self._draws: dict[asyncio.Future[Generation], str] = {}
        """Turns that are being drawn -> their trace."""
        self.failure: asyncio.Future[RmrlError] | None = None
        """What ended an engine for good."""

    def open(self, trace: str, sample: Conversing) -> None:
        """Answer a trace's turns from here on."""
        self._traces[trace] = sample
        self._announced.set()
        self._announced = asyncio.Event()

    def end(self, trace: str) -> None:
        """Refuse further turns in a trace, and cancel those that are being drawn."""
        self._traces[trace] = None
        for draw, drawn_for in self._draws.items():
            if drawn_for == trace:
                draw.cancel()

    def forget(self) -> None:
        """Forget all traces; none is under way."""
        self._traces.clear()

    async def settled(self) -> None:
        """Wait until the engines have dropped all turns: they refuse to sleep before."""
        while self._draws:
            await asyncio.wait(self._draws)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen on a free port inside the block."""
        import uvicorn

        class Server(uvicorn.Server):
            """Leaves signals to the run."""

            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        place = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        place.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{place.getsockname()[1]}"
        self.failure = asyncio.get_running_loop().create_future()
        server = Server(
            uvicorn.Config(
                self.answer,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[place]))
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            place.close()
            self.failure.cancel()

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request (ASGI)."""
        status = 200
        try:
            headers = dict(scope["headers"])
            path = scope["path"]
            bearer = headers.get(b"authorization", b"")
            if not hmac.compare_digest(bearer, f"Bearer {self.token}".encode()):
                raise RefusedError(401, "this endpoint belongs to a training run: give its token")
            if path.endswith("/models"):
                card = {"id": self._model, "object": "model", "max_model_len": self._max_model_len}
                body: dict[str, Any] = {"object": "list", "data": [card]}
            elif path == PATH:
                trace = headers.get(b"x-session-id", b"").decode("latin-1")
                body = await self._generate(trace, await read_body(receive))
            else:
                raise RefusedError(404, f"{path}: give {PATH} or /v1/models")
        except RefusedError as error:
            status = error.status
            body = error.body()
        except RmrlError as error:
            # The run ends with this error. The environment only learns that its turn failed.
            if self.failure is not None and not self.failure.done():
                self.failure.set_result(error)
            status = 503
            body = RefusedError(status, "the rollout engine failed").body()
        content = json.dumps(body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _generate(self, trace: str, body: Any) -> dict[str, Any]:
        tokens, limit, stops = read_request(body)
        try:
            async with asyncio.timeout(_UNKNOWN_S):
                while trace not in self._traces:
                    await self._announced.wait()
        except TimeoutError as error:
            raise RefusedError(404, f"X-Session-ID={trace}: there is no such trace") from error
        sample = self._traces[trace]
        if sample is None:
            raise RefusedError(404, "this sample is over")
        room = self._max_model_len - len(tokens)
        if room < 1:
            sample.limit = "max_total_tokens"
            raise RefusedError(
                400,
                f"This model's maximum context length is {self._max_model_len} tokens, and the"
                f" prompt has {len(tokens)}",
            )
        tokens_left = min(room, sample.remaining)
        if tokens_left < 1:
            sample.limit = "max_output_tokens"
            raise RefusedError(
                400, f"the sample has its {sample.sampling.max_tokens} tokens already"
            )
        sampling = sample.sampling_behind(
            tokens, max_tokens=min(tokens_left, limit or room), stop_token_ids=stops
        )
        turn = await self._drawn(sample, tokens, sampling, trace)
        sample.turns.setdefault(digest(tokens), []).append(turn)
        sample.limit = ""
        return reply(turn, model=self._model, prompt_tokens=len(tokens))

    async def _drawn(
        self, sample: Conversing, tokens: Sequence[int], sampling: Sampling, trace: str
    ) -> Generation:
        draw = asyncio.ensure_future(sample.draw(tokens, sampling, trace))
        self._draws[draw] = trace
        try:
            return await draw
        except asyncio.CancelledError as error:
            if self._traces.get(trace) is None:
                raise RefusedError(404, "this sample is over") from error
            raise
        finally:
            del self._draws[draw]


async def read_body(receive: Any) -> Any:
    """Return a request's JSON. Raises RefusedError."""
    content = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the request broke off")
        content += message.get("body", b"")
        more = message.get("more_body", False)
        if len(content) > _MOST_BYTES:
            raise RefusedError(413, f"a request has at most {_MOST_BYTES} bytes")
    try:
        return json.loads(content)
    except ValueError as error:
        raise RefusedError(400, "the body is no JSON") from error
