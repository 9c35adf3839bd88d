"""The host process: what a call gets once it has ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rmrl.environments.host import Host
from rmrl.errors import EngineLostError
from tests.environments.conftest import FAKE
from tests.patience import PATIENCE_S


async def test_a_call_is_told_at_once_where_no_reply_can_come(tmp_path: Path):
    """The end of a process shows on its replies first: its requests' pipe may still take some."""
    opening = {"op": "open", "env": {"taskset": {"id": "fake"}}, "limits": {}}
    host = Host([sys.executable, str(FAKE)], opening, log=tmp_path / "log", environment={})
    await host.start(timeout_s=PATIENCE_S)
    assert not host.ended
    assert (await host.call("tasks", count=1))["tasks"] == [{"text": "0"}]
    assert host.under_way == 0
    async with asyncio.timeout(PATIENCE_S):
        for request in ({"op": "run", "task": {"does": "falls_silent"}}, {"op": "tasks"}):
            with pytest.raises(EngineLostError, match="the environment's process has ended"):
                await host.call(**request)
        assert host.ended
    await host.close()
