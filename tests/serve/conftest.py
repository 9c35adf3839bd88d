"""A server over fakes: the rule `length` of tests/offline, and engines that follow a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import ServeConfig
from rmrl.rewards.session.scorer import Scorer
from rmrl.serve.app import make_app
from rmrl.serve.check_serve import check_serve
from rmrl.serve.checked import CheckedServer
from rmrl.serve.service import Service
from tests.offline.conftest import Bench, bench, tokenizer
from tests.support import fakes
from tests.support.fake_processes import FakeHost

__all__ = ["bench", "tokenizer"]

BASE = "http://127.0.0.1"


@dataclass(slots=True)
class Served:
    """Builds services whose engines are fakes."""

    bench: Bench

    def checked(self, *overrides: str) -> CheckedServer:
        """The rule `length` unless the overrides name other models."""
        base = [
            "trainer.device=cpu",
            f"reward.engine.name={fakes.REWARD_ENGINE}",
            "reward.rule_workers=1",
            f"reward.functions_dir={self.bench.folder}/functions",
        ]
        if not any(text.startswith("reward.models") for text in overrides):
            base.append("reward.models=[length]")
        config = compose_config([*base, *overrides], ServeConfig)
        return check_serve(config, shipped_functions=self.bench.folder)

    @asynccontextmanager
    async def scorer(
        self, checked: CheckedServer, host: FakeHost | None = None
    ) -> AsyncIterator[Scorer]:
        """The scorer as `rmrl score` opens it, with processes that are none."""
        workers = checked.scoring.config.reward.rule_workers
        scorer = self.bench.scorer(checked.scoring, host, rule_workers=workers)
        try:
            yield scorer
        finally:
            await scorer.close()

    @asynccontextmanager
    async def service(
        self, *overrides: str, host: FakeHost | None = None
    ) -> AsyncIterator[Service]:
        """A service that accepts requests."""
        service = Service(self.checked(*overrides))
        async with service.opened(lambda: self.scorer(service.checked, host)):
            yield service

    @asynccontextmanager
    async def client(
        self, *overrides: str, opened: bool = True, **settings: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client of a service of its own."""
        if not opened:
            async with client_of(Service(self.checked(*overrides))) as client:
                yield client
            return
        async with self.service(*overrides, **settings) as service, client_of(service) as client:
            yield client

    @staticmethod
    def lines(text: str) -> list[Any]:
        """The objects of an NDJSON answer."""
        return [json.loads(line) for line in text.splitlines()]


def client_of(service: Service, **settings: Any) -> httpx.AsyncClient:
    """A client without a socket."""
    transport = httpx.ASGITransport(make_app(service))
    return httpx.AsyncClient(transport=transport, base_url=BASE, **settings)


@pytest.fixture
def served(bench: Bench) -> Served:
    return Served(bench)
