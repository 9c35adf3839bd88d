"""The interface that docs/extending.md shows, offered by a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import docs_pages
from tests.serve.conftest import Served


async def test_the_interface_shown_picks_the_best_answer(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(docs_pages.lay_out(tmp_path / "docs")))
    async with served.client('serve.wires=[native,"mylab.serving:BestOf"]') as client:
        best = await client.post("/best", json={"question": "q", "answers": ["a", "abc", "silent"]})
        none = await client.post("/best", json={"question": "q", "answers": ["silent"]})
        wrong = await client.post("/best", json={"question": "q", "answers": "abc"})
        page = (await client.get("/openapi.json")).json()
    # a tenth of the length; "silent" has no verdict
    assert best.json() == {"best": 1, "rewards": [0.1, 0.3, None]}
    assert none.json() == {"error": {"message": "no answer has a reward", "field": "answers"}}
    assert wrong.json()["error"]["field"] == "answers"
    assert "/best" in page["paths"]
