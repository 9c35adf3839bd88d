"""Requests made of the server's own OpenAPI schema: every answer is one that the schema has, and
none is a fault of the server."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rmrl.serve.wires import SERVE_WIRES
from tests.serve.conftest import Served
from tests.serve.live import live

EXAMPLES = 25
"""Requests of each kind for each operation."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def address(served: Served) -> Iterator[str]:
    folder = served.bench.folder
    with live(
        served,
        f"serve.wires=[{','.join(SERVE_WIRES)}]",
        "reward.models=[length,judge,scalar]",
        f"reward.specs.judge.path={folder}/judge-model",
        f"reward.specs.scalar={{path: {folder}/scalar-model, kind: bradley_terry}}",
        "reward.engine.kwargs={value: 0.25}",
        "serve.max_rows=64",
        "serve.max_body_mb=1",
    ) as address:
        yield address


@pytest.mark.filterwarnings("ignore")
def test_no_request_of_the_schema_ends_in_a_fault(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:
        modes = [GenerationMode.POSITIVE]
        if operation.method.upper() == "POST":
            modes.append(GenerationMode.NEGATIVE)
        for mode in modes:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES,
                derandomize=True,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def check(case: schemathesis.Case) -> None:
                response = case.call()
                case.validate_response(response, checks=CHECKS)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check()
