"""Routes about the server itself: /healthz, /readyz, /v1/rewards, /metrics."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel

from rmrl.api import RewardSpec
from rmrl.serve.answers import json_answer
from rmrl.serve.caller import OPEN_PATH
from rmrl.serve.metrics import CONTENT_TYPE
from rmrl.serve.service import Service

_RETRY_S = 5


class Live(BaseModel):
    """The process answers."""

    status: str = "live"


class Ready(BaseModel):
    """Whether requests are accepted and every engine can score."""

    status: str
    reasons: list[str] = []


class RewardsAnswer(BaseModel):
    """The configured rewards and the present state of the engines."""

    combine: str
    rewards: list[dict[str, Any]]
    engines: list[dict[str, Any]]
    queue_rows: int


def add_state_routes(api: FastAPI, service: Service, errors: dict[int | str, Any]) -> None:
    """Add the routes."""
    without_body = {code: errors[code] for code in (401, 403)}

    async def healthz() -> Live:
        return Live()

    async def readyz() -> Response:
        reasons = service.not_ready()
        if reasons:
            return json_answer(
                {"status": "not ready", "reasons": reasons},
                status=503,
                headers={"Retry-After": str(_RETRY_S)},
            )
        return json_answer({"status": "ready", "reasons": []})

    async def rewards() -> Response:
        return json_answer(rewards_table(service))

    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    not_ready = {503: {"model": Ready, "description": "Not ready, with the reasons"}}
    loading = {503: errors[503]}
    figures = {200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}}
    api.add_api_route(OPEN_PATH, healthz, summary="Live: the process answers")
    for path, answer in ((OPEN_PATH, healthz), ("/readyz", readyz)):
        api.add_api_route(
            path, answer, methods=["HEAD"], response_model=None, include_in_schema=False
        )
    api.add_api_route(
        "/readyz",
        readyz,
        summary="Ready: requests are accepted and no engine is lost",
        response_model=None,
        responses={**without_body, **not_ready, 200: {"model": Ready}},
    )
    api.add_api_route(
        "/v1/rewards",
        rewards,
        summary="The configured rewards and the present state of the engines",
        response_model=None,
        responses={**without_body, **loading, 200: {"model": RewardsAnswer}},
    )
    api.add_api_route(
        "/metrics",
        metrics,
        summary="Figures for Prometheus",
        response_model=None,
        response_class=Response,
        responses={**without_body, **figures},
    )


def rewards_table(service: Service) -> dict[str, Any]:
    """Return the content of /v1/rewards. Raises RequestError 503 before the scorer is open."""
    scoring = service.checked.scoring
    return {
        "combine": scoring.config.reward.combine,
        "rewards": list(map(reward_row, scoring.specs)),
        "engines": service.keeper.table(),
        "queue_rows": service.queue.rows,
    }


def reward_row(spec: RewardSpec) -> dict[str, Any]:
    """Return one reward's row, without servers' addresses and headers, which may hold secrets."""
    row: dict[str, Any] = {"name": spec.name, "kind": spec.kind, "weight": spec.weight}
    if spec.part_of:
        row["part_of"] = spec.part_of
    if spec.sources is not None:
        row["weight_by_source"] = dict(spec.sources)
    if spec.gates:
        row["gates"] = list(spec.gates)
    row["models"] = {role: engine.path for role, engine in spec.engines.items()}
    adapters = {role: engine.adapter for role, engine in spec.engines.items() if engine.adapter}
    if adapters:
        row["adapters"] = adapters
    row["runs"] = "rule workers"
    if spec.engines:
        row["runs"] = "engine"
    elif spec.remote is not None:
        row["runs"] = f"server ({spec.remote.wire})"
    return row
