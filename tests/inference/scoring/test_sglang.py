"""SGLang's native wire against a recorded server: a real HTTP server on 127.0.0.1 that knows the
recorded requests and no others."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rmrl.errors import EngineLoadError, InfrastructureError, RewardError
from rmrl.inference.reward_engine_base import (
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    LabelOutput,
    PoolingRequest,
    TextOutput,
)
from rmrl.inference.sglang.reward_engine import SGLangEngine
from rmrl.inference.sglang.reward_wire import launch_command
from rmrl.types import Sampling
from tests.patience import PATIENCE_S, expires
from tests.rewards.parts import checkpoint
from tests.rewards.remote.server import Reply, Seen, Server, serving
from tests.trainer.job import still_running, wait_for

RECORDING = Path(__file__).with_name("sglang_recording.json")
GREEDY = Sampling(max_tokens=8, temperature=0.0)

FAKE_SGLANG = """
import argparse, json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

if os.environ.get("FAKE_SGLANG_FAILS"):
    sys.exit("ValueError: unknown architecture")
parser = argparse.ArgumentParser()
parser.add_argument("--host"), parser.add_argument("--port", type=int)
known, rest = parser.parse_known_args()
entries = json.load(open(os.environ["FAKE_SGLANG_RECORDING"]))["reward"]

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        body = json.dumps(next(e["response"] for e in entries if (e["path"], e["request"]) == (self.path, asked))).encode()
        self.send_response(200), self.send_header("Content-Length", str(len(body))), self.end_headers(), self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *args): pass

print("serving with", rest, flush=True)
HTTPServer((known.host, known.port), Handler).serve_forever()
"""


@contextlib.contextmanager
def recorded(name: str) -> Iterator[Server]:
    entries = json.loads(RECORDING.read_text(encoding="utf-8"))[name]

    def replay(seen: Seen) -> Reply:
        for entry in entries:
            if (entry["path"], entry["request"]) == (seen.path, seen.body):
                return Reply(entry["response"], entry["status"])
        return Reply(
            {"error": {"message": f"not recorded: {seen.path} {json.dumps(seen.body)}"}}, 501
        )

    with serving(replay) as server:
        yield server


def spec_of(runner: Any = "generate", **changes: Any) -> EngineSpec:
    given: dict[str, Any] = {
        "path": "nowhere/at-all", "runner": runner, "name": "sglang", "dtype": "bfloat16", "max_model_len": 64, "max_num_seqs": 2,
        "max_num_batched_tokens": 512, "tensor_parallel_size": 1, "gpu_memory_utilization": 0.5, "kv_cache_bytes": 0, "device": "cuda",
        "threads": 1,
    }  # fmt: skip
    return EngineSpec(**(given | changes))


@contextlib.contextmanager
def attached(name: str, runner: Any, **kwargs: Any) -> Iterator[tuple[SGLangEngine, Server]]:
    with recorded(name) as server:
        engine = SGLangEngine(spec_of(runner, kwargs={"base_url": server.url + "/", **kwargs}))
        assert engine.ping() == "cold"
        engine.start()
        try:
            yield engine, server
        finally:
            engine.close()


def greedy(*ids: int, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(ids, Sampling(**{"max_tokens": 8, "temperature": 0.0, **sampling}))


def test_texts() -> None:
    sampled = greedy(21, 22, temperature=0.7, top_p=0.9, top_k=20, n=2, seed=5, stop=("###",))
    with attached("judge", "generate") as (engine, _):
        assert engine.ping() == "awake"
        outputs = engine.generate([sampled, greedy(11, 12, 13, 14)])
    assert outputs == [
        [TextOutput("a", "stop", 2, 1), TextOutput("b c d", "length", 2, 8)],
        [TextOutput("Score: 7", "stop", 4, 3)],
    ]


def test_structured_output() -> None:
    requests = [greedy(41, regex="[0-9]{3}"), greedy(42, json_schema='{"type": "object"}')]
    with attached("judge", "generate") as (engine, _):
        outputs = engine.generate(requests)
    assert [o.text for [o] in outputs] == ["123", "{}"]


def test_logprobs_of_choices_in_the_order_asked_for() -> None:
    sampling = Sampling(max_tokens=1, temperature=0.0, choice=("yes", "no."))
    with attached("judge", "generate") as (engine, _):
        [[output]] = engine.generate([GenerateRequest((31,), sampling, choice_tokens=(9693, 2152))])
    # recorded as [-1.6094, 2152], [-0.2231, 9693]
    assert output.choice_logprobs == (-0.2231, -1.6094)


def test_greedy_samples_are_drawn_once() -> None:
    with attached("judge", "generate") as (engine, server):
        [outputs] = engine.generate([greedy(11, 12, 13, 14, n=3)])
    assert [o.text for o in outputs] == ["Score: 7"] * 3
    assert [seen.path for seen in server.seen].count("/generate") == 1


def test_one_refused_or_broken_request_spoils_no_other() -> None:
    requests = [greedy(43, regex="("), greedy(44), greedy(*(9,) * 64), greedy(11, 12, 13, 14)]
    with attached("judge", "generate") as (engine, _):
        refused, broken, long, fine = [output for [output] in engine.generate(requests)]
    assert (refused.failure, broken.failure) == ("provider_error", "provider_error")
    assert (long.failure, fine.failure) == ("overlong", "")
    assert "Invalid grammar request" in refused.detail
    assert "Aborted by /abort_request" in broken.detail
    assert "64 tokens and max_model_len is 64" in long.detail


def test_a_failing_server_is_an_infrastructure_error() -> None:
    with attached("judge", "generate") as (engine, _):
        with pytest.raises(InfrastructureError, match="failed on /generate: HTTPStatusError"):
            engine.generate([greedy(45)])
        two = GenerateRequest((46,), Sampling(max_tokens=8, n=2))
        with pytest.raises(InfrastructureError, match="gave 1 samples where 2 were asked for"):
            engine.generate([two])


def test_an_engine_is_started_first() -> None:
    engine = SGLangEngine(spec_of())
    for ask in (
        lambda: engine.generate([GenerateRequest((45,), GREEDY)]),
        lambda: engine.classify([PoolingRequest((1,))]),
    ):
        with pytest.raises(InfrastructureError, match="start it first"):
            ask()


def test_values_are_raw_and_in_order() -> None:
    with attached("reward", "pooling") as (engine, server):
        # the server says 6, the spec 64: the smaller one counts
        assert engine.context_length == 6
        inputs = ((1, 2, 3), (1,) * 7, (4, 5), (6,))
        outputs = engine.classify(list(map(PoolingRequest, inputs)))
        assert [o.value for o in outputs if not o.failure] == [-3.296875, 12.1875, 0.5]
        assert [o.failure for o in outputs] == ["", "overlong", "", ""]
        assert math.isnan(outputs[1].value)
        posts = [len(s.body["input_ids"]) for s in server.seen if s.path == "/classify"]
        assert posts == [2, 1]  # of max_num_seqs = 2
        assert engine.classify([]) == []


def test_heads_that_are_no_scalars() -> None:
    with attached("reward", "pooling") as (engine, _):
        [output] = engine.classify([PoolingRequest((7, 7))])
        assert output.failure == "provider_error"
        assert "2 values" in output.detail
        assert engine.label_logits([PoolingRequest((7, 7))]) == [LabelOutput((0.5, -0.5), 2)]
        with pytest.raises(InfrastructureError, match="is broken"):
            engine.classify([PoolingRequest((8,))])
        with pytest.raises(RewardError, match="token types"):
            engine.classify([PoolingRequest((1, 2), token_type_ids=(0, 1))])
        with pytest.raises(InfrastructureError, match="no logits per token"):
            engine.token_logits([PoolingRequest((1,), positions=(0,))])


def test_vectors_have_length_one() -> None:
    texts = ("Once upon a time", "nothing", "too much")
    with attached("embedding", "embed") as (engine, _):
        outputs = engine.embed(list(map(EmbedRequest, texts)))
    # (3, 0, -4) has length 5
    assert outputs[0].vector == pytest.approx((0.6, 0.0, -0.8))
    assert outputs[0].tokens_in == 4
    assert [o.failure for o in outputs] == ["", "provider_error", "overlong"]


def test_sleep_and_wake() -> None:
    with attached("judge", "generate") as (engine, server):
        assert engine.resident_bytes() == int(1.25 * 2**30)  # weights 1.0, KV cache 0.25 GB
        engine.sleep(1)
        engine.sleep(2)
        assert (engine.ping(), engine.resident_bytes()) == ("asleep 2", 0)
        engine.wake()
        engine.wake()
        assert engine.ping() == "awake"
    assert [s.path for s in server.seen if "occupation" in s.path] == [
        "/release_memory_occupation",
        "/resume_memory_occupation",
    ]


def test_weights_without_a_copy_are_read_again() -> None:
    with attached("reward", "pooling") as (engine, server):
        engine.sleep(1)
        engine.wake()
    paths = [s.path for s in server.seen]
    assert paths[-2:] == ["/resume_memory_occupation", "/update_weights_from_disk"]


def test_a_server_without_memory_saver_keeps_its_memory() -> None:
    with attached("embedding", "embed") as (engine, server):
        engine.sleep(1)
        assert (engine.ping(), engine.resident_bytes()) == ("asleep 1", int(1.25 * 2**30))
        engine.wake()
    assert not [s for s in server.seen if "occupation" in s.path]


@pytest.mark.parametrize(("name", "runner"), [("judge", "pooling"), ("reward", "generate")])
def test_a_server_of_another_kind_is_refused(name: str, runner: Any) -> None:
    with pytest.raises(EngineLoadError, match="serves a model that"), attached(name, runner):
        pass


def test_a_server_that_does_not_become_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.inference.sglang.server._PROBE_TIMEOUT_S", PATIENCE_S)
    with (
        pytest.raises(EngineLoadError, match=r"not healthy within 0\.5 s: it answered 503"),
        attached("starting", "generate", load_timeout_s=expires(0.5)),
    ):
        pass


def test_no_logits_per_token() -> None:
    with pytest.raises(EngineLoadError, match=r"engine\.name=vllm"):
        SGLangEngine(spec_of("token_pooling", kwargs={"base_url": "http://127.0.0.1:9"})).start()


@pytest.mark.skipif("sglang" in sys.modules, reason="SGLang is installed")
def test_without_sglang_the_way_out_is_said() -> None:
    with pytest.raises(EngineLoadError, match=r"engine\.kwargs\.base_url .*pip install sglang"):
        SGLangEngine(spec_of()).start()


def test_the_command_line(tmp_path: Path) -> None:
    path = str(checkpoint(tmp_path / "rm", head=True))
    words = launch_command(
        spec_of(
            "pooling",
            path=path,
            kwargs={"attention_backend": "triton", "load_timeout_s": 50, "log_level": "error"},
        ),
        30001,
    )
    assert words[1:3] == ["-m", "sglang.launch_server"]
    options = dict(zip(words, [*words[1:], ""], strict=True))
    assert {name: options[f"--{name}"] for name in ("model-path", "host", "port", "tp-size", "context-length", "attention-backend")} == {
        "model-path": path, "host": "127.0.0.1", "port": "30001", "tp-size": "1", "context-length": "64", "attention-backend": "triton",
    }  # fmt: skip
    assert {"--is-embedding", "--enable-memory-saver", "--enable-weights-cpu-backup"} <= set(words)
    assert not {"--trust-remote-code", "--load-timeout-s"} & set(words)


@pytest.fixture
def fake_sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package named sglang whose launch_server replays the recording, and a scalar checkpoint to
    give it; the checkpoint's path."""
    package = tmp_path / "packages" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "launch_server.py").write_text(FAKE_SGLANG, encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("FAKE_SGLANG_RECORDING", str(RECORDING))
    return str(checkpoint(tmp_path / "rm", head=True))


def test_a_server_of_our_own_starts_and_ends_with_the_engine(fake_sglang: str) -> None:
    engine = SGLangEngine(spec_of("pooling", path=fake_sglang, device="cpu"))
    before = psutil.Process().children(recursive=True)
    engine.start()
    processes = [
        child for child in psutil.Process().children(recursive=True) if child not in before
    ]
    assert [
        o.value for o in engine.classify([PoolingRequest((1, 2, 3)), PoolingRequest((4, 5))])
    ] == [-3.296875, 12.1875]
    assert engine.resident_bytes() > 2**20
    assert engine.ping() == "awake"
    engine.close()
    assert engine.ping() == "cold"
    assert still_running(processes) == []


def test_a_server_that_dies_is_noticed(fake_sglang: str) -> None:
    engine = SGLangEngine(spec_of("pooling", path=fake_sglang, device="cpu"))
    engine.start()
    try:
        [server] = [
            p
            for p in psutil.Process().children(recursive=True)
            if "sglang.launch_server" in p.cmdline()[2:3]
        ]
        server.kill()
        wait_for(engine._server.ended, what="the end of the server")
        with pytest.raises(InfrastructureError, match="has ended"):
            engine.ping()
        with pytest.raises(InfrastructureError, match="failed on /classify"):
            engine.classify([PoolingRequest((6,))])
    finally:
        engine.close()


def test_a_server_that_cannot_start_says_why(
    fake_sglang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SGLANG_FAILS", "1")
    engine = SGLangEngine(spec_of("pooling", path=fake_sglang, device="cpu"))
    with pytest.raises(EngineLoadError, match="ValueError: unknown architecture"):
        engine.start()
    assert engine.ping() == "cold"
