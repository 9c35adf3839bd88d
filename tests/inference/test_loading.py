"""An engine that starts beside others on a GPU."""

from __future__ import annotations

import asyncio

import pytest

from rmrl.errors import EngineLoadError
from rmrl.inference import loading
from rmrl.inference.loading import SETTLE_S, twice_where_memory_moved

pytestmark = pytest.mark.virtual_time
MOVED = (
    "vLLM could not load 'judge': AssertionError: Error in memory profiling. Initial free memory"
    " 60.1 GiB, current free memory 61.0 GiB."
)


class Starts:
    """Starts of an engine, each of which fails with the next sentence; "": it succeeds."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = list(sentences)
        self.times: list[float] = []

    async def start(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        sentence = self.sentences.pop(0)
        if sentence:
            raise EngineLoadError(sentence)
        return "engine"


async def test_an_engine_whose_measurement_was_disturbed_starts_once_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    starts = Starts(MOVED, "")
    assert await twice_where_memory_moved(starts.start) == "engine"
    first, second = starts.times
    assert second - first == pytest.approx(SETTLE_S)
    assert "is started once more in 10 s" in caplog.text


@pytest.mark.parametrize(
    ("sentences", "count"), [((MOVED, MOVED, ""), 2), (("CUDA out of memory", ""), 1)]
)
async def test_other_errors_and_the_second_one_end_the_start(
    sentences: tuple[str, ...], count: int
) -> None:
    starts = Starts(*sentences)
    with pytest.raises(EngineLoadError):
        await twice_where_memory_moved(starts.start)
    assert len(starts.times) == count


def test_the_sentence_is_the_one_that_vllm_raises() -> None:
    """Where vLLM is installed its source holds the words that are looked for."""
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    worker = Path(spec.origin).parent / "v1" / "worker" / "gpu_worker.py"
    assert f'"{loading.MEMORY_MOVED}. "' in worker.read_text(encoding="utf-8")
