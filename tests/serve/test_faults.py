"""Errors that nobody foresaw."""

from __future__ import annotations

import pytest

from rmrl.serve.service import Service
from tests.serve.conftest import Served


async def test_a_fault_is_answered_as_json_and_logged_without_the_clients_text(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "-".join(["of", "the", "client"])  # not in this line, which the stack quotes

    async def broken(*_: object, **__: object) -> None:
        raise KeyError(secret)

    monkeypatch.setattr(Service, "score", broken)
    async with served.client() as client:
        answer = await client.post("/v1/score", json={"rows": [{"prompt": "p", "response": "r"}]})
    assert answer.status_code == 500
    assert answer.json() == {"error": {"message": "the server has a fault; its log has more"}}
    (message,) = [text for text in caplog.messages if "KeyError" in text]
    assert message.startswith("a request ended with KeyError:")
    assert secret not in caplog.text
