"""A source whose host program is fake_host.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema.rollout import VerifiersConfig
from rmrl.environments import source as source_module
from rmrl.environments.source import VerifiersSource

FAKE = Path(__file__).parent / "fake_host.py"
Opened = Callable[..., AbstractAsyncContextManager[VerifiersSource]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    monkeypatch.setattr(source_module, "PROGRAM", FAKE)

    @asynccontextmanager
    async def open_source(*, max_model_len: int = 64, **settings: Any) -> AsyncIterator[Any]:
        source = VerifiersSource(
            VerifiersConfig(env=settings.pop("env", "fake"), **settings),
            model="m",
            max_model_len=max_model_len,
            max_response_length=20,
            log=tmp_path / "environment.log",
        )
        try:
            await source.start()
            yield source
        finally:
            await source.close()

    return open_source
