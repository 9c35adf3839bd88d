"""The systemone wire between vLLM's own classes of its /v1/systemone."""

from __future__ import annotations

import math

import pytest

from tests.serve.conftest import Served
from tests.serve.test_decisions import judge


async def test_vllms_classes_write_the_request_and_read_the_answer(served: Served) -> None:
    protocol = pytest.importorskip(
        "vllm.entrypoints.generate.structured_decisions.protocol",
        reason="vLLM has /v1/systemone since 0.32",
    )
    request = protocol.StructuredDecisionRequest(
        model="judge",
        state={"response": "4"},
        instructions="You judge.",
        questions={
            "right": {"type": "noul", "instructions": "Right?"},
            "colour": {"type": "choice", "criteria": {"red": None, "blue": "cold"}},
            "grade": {"type": "score", "criteria": ["bad", "fair", "good"]},
        },
    )
    async with served.client(*judge(served)) as client:
        sent = request.model_dump(mode="json")
        answer = await client.post("/v1/systemone", json=sent)
        refused = await client.post("/v1/systemone", json={**sent, "model": "other"})
    assert answer.status_code == 200, answer.text
    read = protocol.StructuredDecisionResponse.model_validate(answer.json())
    assert not read.model_extra
    assert math.isclose(read.answers["right"]["noul"], 0.75)  # 0.6 / 0.8
    assert math.isclose(read.answers["grade"]["score"], 1.375)  # (0.3 + 2 * 0.4) / 0.8
    assert math.isclose(read.diagnostics["colour"].label_mass, 0.75)
    error = protocol_error(refused.json())
    assert (error.code, error.type, error.param) == (404, "NotFoundError", "model")


def protocol_error(content: object) -> object:
    """An error as vLLM's clients read it."""
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    return ErrorResponse.model_validate(content).error
