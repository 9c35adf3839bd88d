"""What every test may rely on: no network, one thread per process, tiny real checkpoints made once
per run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

# Before torch, transformers or an engine is imported, and inherited by every process a test starts.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import logging

import hypothesis
import pytest

from tests import skips
from tests.shell import begin_session

begin_session()

REPOSITORY = Path(__file__).resolve().parent.parent

# Tests that two files import: their assertions explain themselves like those of a test file.
pytest.register_assert_rewrite("tests.contracts.rollout_engines")

# Property tests draw the same examples on every machine, and a machine under load fails none of
# them.
hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

# As in a command, so that `caplog` holds what a user would read.
logging.getLogger("rmrl").setLevel(logging.INFO)


def pytest_configure(config: pytest.Config) -> None:
    """Count what is skipped."""
    skips.register(config, os.environ)


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give a test marked `virtual_time` the loop whose clock jumps."""
    if item.get_closest_marker("virtual_time") is None:
        return {"real": asyncio.new_event_loop}
    from tests.virtual_time import VirtualLoop

    return {"virtual": VirtualLoop}


@pytest.fixture
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which rmrl has logged something."""
    yield
    records = caplog.get_records("call")
    assert [record.getMessage() for record in records if record.name.startswith("rmrl")] == []


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama for generation: see tests/tiny_models.py for its shape."""
    from tests.tiny_models import save_tiny_llama

    return save_tiny_llama(tmp_path_factory.mktemp("tiny_llama"))


@pytest.fixture(scope="session")
def tiny_reward_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama with a one-label classification head, same tokenizer as
    `tiny_llama`."""
    from tests.tiny_models import save_tiny_reward_llama

    return save_tiny_reward_llama(tmp_path_factory.mktemp("tiny_reward_llama"))


def _model(folder: str, script: str) -> Path:
    path = REPOSITORY / ".models" / folder
    if not (path / "config.json").is_file():
        pytest.skip(f"{path} is not there; `{script}` makes it")
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct; the test is skipped where nobody fetched it."""
    return _model("smollm2", "make models")


@pytest.fixture(scope="session")
def ms_marco() -> Path:
    """Folder of the ms-marco cross-encoder (scalar reward); the test is skipped where nobody
    fetched it."""
    return _model("ms-marco-minilm", "make models")


@pytest.fixture(scope="session")
def all_minilm() -> Path:
    """Folder of the all-MiniLM-L6-v2 encoder (embeddings); the test is skipped where nobody fetched
    it."""
    return _model("all-minilm", "make models")
