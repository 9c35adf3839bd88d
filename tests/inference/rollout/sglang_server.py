"""Stand-ins for a server of SGLang: one replays recorded exchanges, one follows the documented
protocol. Both speak real HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from tests.rewards.remote.server import Reply, Seen, Server, serving

RECORDING = Path(__file__).with_name("sglang_recording.json")
VOCABULARY, END = 256, 2
SAMPLE_S = 600.0
"""Longest time of a sample: no test waits for it."""
FIELDS = {"rid", "input_ids", "sampling_params", "return_logprob", "logprob_start_len"}


@contextlib.contextmanager
def recorded(name: str) -> Iterator[Server]:
    """Knows the recorded requests and no others; `rid` is the asker's own and not compared."""
    entries = json.loads(RECORDING.read_text(encoding="utf-8"))[name]

    def replay(seen: Seen) -> Reply:
        body = (
            {k: v for k, v in seen.body.items() if k != "rid"}
            if isinstance(seen.body, dict)
            else seen.body
        )
        for entry in entries:
            if (entry["path"], entry["request"]) == (seen.path, body):
                return Reply(entry["response"], entry["status"])
        return Reply({"error": {"message": f"not recorded: {seen.path} {json.dumps(body)}"}}, 501)

    with serving(replay) as server:
        yield server


class Protocol:
    """What a server of SGLang with a random model would do, and complaints (status 400) about what
    it would not understand.

    A sample's tokens follow from weights, prompt and seed. It waits while the server is paused, and
    while `may_answer` is not set.
    """

    def __init__(
        self, *, backup: bool = True, may_answer: bool = True, memory_saver: bool = True
    ) -> None:
        self.info = {
            "enable_memory_saver": memory_saver,
            "enable_weights_cpu_backup": backup,
            "model_path": "policy",
            "version": "0.5.6",
        }
        self.weights: str | None = "checkpoint"
        """Name the weights; None: released without a copy."""
        self.released: set[str] = set()
        self.aborted: list[str] = []
        self.may_answer = threading.Event()
        if may_answer:
            self.may_answer.set()
        self._running = threading.Event()
        self._running.set()

    def answer(self, seen: Seen) -> Reply:
        """To any request."""
        ways = {
            "/health": self._health, "/get_model_info": self._model, "/get_server_info": self._server, "/generate": self._generate,
            "/release_memory_occupation": self._release, "/resume_memory_occupation": self._resume, "/abort_request": self._abort,
            "/update_weights_from_disk": self._update, "/pause_generation": self._pause, "/continue_generation": self._continue,
        }  # fmt: skip
        return ways[seen.path](seen.body or {})

    def _health(self, _: Any) -> Reply:
        return Reply(b"")

    def _model(self, _: Any) -> Reply:
        return Reply({"model_path": "policy", "is_generation": True, "weight_version": "default"})

    def _server(self, _: Any) -> Reply:
        return Reply(
            {**self.info, "internal_states": [{"memory_usage": {"weight": 1.0, "kvcache": 0.25}}]}
        )

    def _release(self, body: dict[str, Any]) -> Reply:
        if set(body["tags"]) & self.released:
            return Reply({"error": {"message": "released twice"}}, 400)
        self.released |= set(body["tags"])
        if "weights" in body["tags"] and not self.info["enable_weights_cpu_backup"]:
            self.weights = None
        return Reply(None)

    def _resume(self, body: dict[str, Any]) -> Reply:
        if not set(body["tags"]) <= self.released:
            return Reply({"error": {"message": "resumed what was not released"}}, 400)
        self.released -= set(body["tags"])
        return Reply(None)

    def _update(self, body: dict[str, Any]) -> Reply:
        if "weights" in self.released or set(body) != {"model_path", "weight_version"}:
            return Reply({"error": {"message": f"cannot update now, or with {sorted(body)}"}}, 400)
        files = sorted(Path(body["model_path"]).glob("*.safetensors"))
        if not files:
            return Reply({"success": False, "message": f"no safetensors in {body['model_path']}"})
        with safe_open(str(files[0]), framework="pt") as file:
            self.weights = hashlib.sha256(
                b"".join(file.get_tensor(n).float().numpy().tobytes() for n in sorted(file.keys()))
            ).hexdigest()
        return Reply(
            {
                "success": True,
                "message": "Succeeded to update model weights.",
                "num_paused_requests": 0,
            }
        )

    def _pause(self, body: dict[str, Any]) -> Reply:
        assert body == {"mode": "retract"}
        self._running.clear()
        return Reply({"status": "ok"})

    def _continue(self, _: Any) -> Reply:
        self._running.set()
        return Reply({"status": "ok"})

    def _abort(self, body: dict[str, Any]) -> Reply:
        self.aborted.append(body["rid"])
        return Reply(b"")

    def _generate(self, body: dict[str, Any]) -> Reply:
        if set(body) != FIELDS or self.released or self.weights is None:
            return Reply(
                {
                    "error": {
                        "message": (
                            f"released {sorted(self.released)}, weights {self.weights}, fields"
                            f" {sorted(body)}"
                        )
                    }
                },
                400,
            )
        self.may_answer.wait(SAMPLE_S)
        self._running.wait(SAMPLE_S)
        params = body["sampling_params"]
        seed = (
            0 if params["temperature"] == 0 else params.get("sampling_seed", random.getrandbits(32))
        )
        draw = random.Random(
            hashlib.sha256(json.dumps([self.weights, body["input_ids"], seed]).encode()).digest()
        )
        tokens = [draw.randrange(3, VOCABULARY) for _ in range(params["max_new_tokens"])]
        length = len(tokens) if params["ignore_eos"] else draw.randint(1, 2 * len(tokens))
        ended = length <= len(tokens) and not params["ignore_eos"]
        tokens = [*tokens[: length - 1], END] if ended else tokens
        finish = (
            {"type": "stop", "matched": END} if ended else {"type": "length", "length": len(tokens)}
        )
        meta = {
            "id": body["rid"], "finish_reason": finish, "prompt_tokens": len(body["input_ids"]), "completion_tokens": len(tokens),
            "input_token_logprobs": [], "output_token_logprobs": [[-draw.random(), token, None] for token in tokens],
        }  # fmt: skip
        return Reply({"text": " ".join(map(str, tokens)), "output_ids": tokens, "meta_info": meta})
