"""An SGLang server for rollout or rewards: one that runs already, or one that is started here and
ends with this process."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from rmrl.errors import EngineLoadError
from rmrl.inference.sglang.child_server import ChildServer
from rmrl.inference.sglang.launch import ATTACH_TIMEOUT_S, LOAD_TIMEOUT_S, server_environment
from rmrl.ports import HeldPort

WEIGHTS = "weights"
KV_CACHE = "kv_cache"
_PROBE_TIMEOUT_S = 5.0
_PROBE_INTERVAL_S = 0.2
_GIBIBYTE = 2**30


@dataclass(slots=True, kw_only=True)
class Server:
    """One server's launch, health and memory. Methods block; `start` may run in a thread."""

    model: str
    """What it is to serve, for error texts, e.g. the policy 'Qwen/Qwen3-4B'."""
    device: str
    threads: int
    kwargs: Mapping[str, Any]
    """The user's: `base_url` attaches to a running server, `load_timeout_s` is the deadline of
    `start`."""
    child: ChildServer | None = None
    """The server that was started here."""
    base_url: str = ""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What /get_server_info answered after the start."""
    _port: HeldPort | None = None
    _stopped: bool = False

    def open(self, command: Callable[[int], list[str]], *, not_installed: str) -> str:
        """Return the running server's address, or start one with `command(port)`.

        Raises EngineLoadError(not_installed) where SGLang would have to be started and is missing.
        """
        self.base_url = str(self.kwargs.get("base_url", "")).rstrip("/")
        if self.base_url:
            return self.base_url
        if importlib.util.find_spec("sglang") is None:
            raise EngineLoadError(not_installed)
        self._port = HeldPort("127.0.0.1")
        environment = server_environment(device=self.device, threads=self.threads)
        self.child = ChildServer(command(self._port.number), environment)
        self.base_url = f"http://127.0.0.1:{self._port.number}"
        return self.base_url

    def wait_until_healthy(self) -> None:
        """Raises EngineLoadError where the server has ended or the deadline has passed."""
        default_s = ATTACH_TIMEOUT_S if self.child is None else LOAD_TIMEOUT_S
        timeout_s = float(self.kwargs.get("load_timeout_s", default_s))
        deadline = time.monotonic() + timeout_s
        problem = "it has not answered yet"
        with httpx.Client(base_url=self.base_url, trust_env=False) as http:
            while not self._stopped:
                if self.ended():
                    assert self.child is not None
                    raise EngineLoadError(
                        f"SGLang could not load {self.model}: {self.child.last_words()}"
                    )
                try:
                    answer = http.get("/health", timeout=_PROBE_TIMEOUT_S)
                    if answer.is_success:
                        return
                    problem = f"it answered {answer.status_code}"
                except httpx.TransportError as error:
                    problem = f"{type(error).__name__}: {error}"
                if time.monotonic() >= deadline:
                    break
                time.sleep(_PROBE_INTERVAL_S)
        raise EngineLoadError(
            f"the SGLang server at {self.base_url} was not healthy within {timeout_s:g} s:"
            f" {problem}{self.printed()}"
        )

    def ended(self) -> bool:
        """Whether the server that was started here has ended."""
        return self.child is not None and not self.child.alive()

    def printed(self) -> str:
        """An error text's end: the last words that a server started here wrote."""
        return "" if self.child is None else f"; it printed: {self.child.last_words()}"

    @property
    def saves_memory(self) -> bool:
        """Sleeping frees memory on its device."""
        return bool(self.info.get("enable_memory_saver"))

    @property
    def keeps_weights(self) -> bool:
        """Sleeping keeps the weights in host memory too."""
        return bool(self.info.get("enable_weights_cpu_backup"))

    def process_bytes(self) -> int:
        """Resident memory in all processes that were started here."""
        return 0 if self.child is None else self.child.resident_bytes()

    def stop(self) -> None:
        """End the server if it was started here."""
        self._stopped = True
        child = self.child
        self.child = None
        if child is not None:
            child.stop()
        if self._port is not None:
            self._port.close()


def device_bytes(info: Mapping[str, Any], *, freed: Collection[str] = ()) -> int:
    """Weights and KV cache by the server's own figures, without those in `freed`."""
    gibibytes = 0.0
    for state in info.get("internal_states") or ():
        usage = state.get("memory_usage", {}) if isinstance(state, Mapping) else {}
        if WEIGHTS not in freed:
            gibibytes += float(usage.get("weight") or 0)
        if KV_CACHE not in freed:
            gibibytes += float(usage.get("kvcache") or 0)
    return int(_GIBIBYTE * gibibytes)
