"""The rollout engine starts and ends a server of SGLang: a stand-in, in a process of its own."""

import os
from pathlib import Path

import psutil
import pytest

from rmrl.errors import EngineLoadError, InfrastructureError
from rmrl.inference.sglang.rollout import SGLangRollout
from tests.inference.rollout.test_sglang import SHORT, sampled, settings
from tests.trainer.job import still_running, wait_for

FAKE_SGLANG = """
import argparse, os, sys
if os.environ.get("FAKE_SGLANG_FAILS"):
    sys.exit("ValueError: unknown architecture")
from tests.rewards.remote.server import Server
from tests.inference.rollout.sglang_server import Protocol

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
known, rest = parser.parse_known_args()

Server(Protocol().answer, known.port).serve_forever()
"""


@pytest.fixture
def fake_sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package named sglang whose launch_server follows the protocol."""
    package = tmp_path / "packages" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "launch_server.py").write_text(FAKE_SGLANG, encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(package.parent), str(Path(__file__).parents[4])])
    )


async def test_a_server_of_our_own_starts_and_ends_with_the_engine(fake_sglang: None) -> None:
    engine, before = SGLangRollout(settings("cpu")), set(psutil.Process().children(recursive=True))
    await engine.start()
    processes = [p for p in psutil.Process().children(recursive=True) if p not in before]
    assert len(await sampled(engine, [[5]], SHORT)) == 1
    assert await engine.resident_bytes() > 2**20
    [server] = [p for p in processes if "sglang.launch_server" in p.cmdline()[2:3]]
    server.kill()
    wait_for(engine._server.ended, what="the end of the server")
    with pytest.raises(InfrastructureError, match="has ended"):
        await sampled(engine, [[5]], SHORT)
    await engine.shutdown()
    assert still_running(processes) == []


async def test_a_server_that_cannot_start_says_why(
    fake_sglang: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SGLANG_FAILS", "1")
    with pytest.raises(EngineLoadError, match="ValueError: unknown architecture"):
        await SGLangRollout(settings("cpu")).start()
