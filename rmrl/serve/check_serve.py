"""Checks of `rmrl serve` before a socket is opened or an engine is started."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

from rmrl.api import CheckedScoring, check_scoring, report_audits
from rmrl.config.plain_checks import field_problems
from rmrl.config.schema import ScoreConfig, ServeConfig, ServerConfig
from rmrl.errors import ConfigError, Problems
from rmrl.serve.caller import is_loopback
from rmrl.serve.checked import CheckedServer
from rmrl.serve.wires import SERVE_WIRES

PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
INSTALL = 'pip install "rmrl-toolkit[serve]"'
_OF_FILES = {"files": None, "max_rows": -1, "sample": None, "on_bad_row": "fail"}
"""File keys in section `data`, with their defaults."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_serve(config: ServeConfig, *, shipped_functions: Path) -> CheckedServer:
    """Find all problems that show before a request comes. Raises ConfigError and the other errors
    of `check_scoring`."""
    problems = Problems()
    problems.add(_problems(config))
    token: bytes | None = None
    with problems.collecting():
        token = _token(config.serve)
    scoring: CheckedScoring | None = None
    with problems.collecting():
        scoring = check_scoring(
            scoring_config(config),
            shipped_functions=shipped_functions,
            needs_out=False,
            needs_files=False,
        )
    problems.raise_any()
    assert scoring is not None
    report_audits(config.reward, scoring.specs)
    return CheckedServer(settings=config.serve, scoring=scoring, token=token)


def scoring_config(config: ServeConfig) -> ScoreConfig:
    """Return the configuration of `rmrl score` with the same rewards."""
    return ScoreConfig(
        data=config.data,
        columns=config.columns,
        reward=config.reward,
        reward_model=config.reward_model,
        custom_reward_function=config.custom_reward_function,
        trainer=config.trainer,
        ray_kwargs=config.ray_kwargs,
    )


def _problems(config: ServeConfig) -> Iterator[str]:
    settings = config.serve
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        yield f"rmrl serve needs {', '.join(missing)}, which is not installed: {INSTALL}"
    yield from field_problems(settings)
    for name, default in _OF_FILES.items():
        if getattr(config.data, name) != default:
            yield f"data.{name} is about files; the rows of a server come with its requests"
    if not 0 <= settings.port <= 65535:
        yield f"serve.port={settings.port}: give a port from 0 to 65535"
    if settings.missing_reward is not None and not math.isfinite(settings.missing_reward):
        yield (
            f"serve.missing_reward={settings.missing_reward}: JSON has no such number; give a"
            " finite one, e.g. -1, or null"
        )
    if settings.max_rows > settings.max_queue_rows:
        yield (
            f"serve.max_rows={settings.max_rows} is more than"
            f" serve.max_queue_rows={settings.max_queue_rows}, so that such a request could never"
            " be accepted: raise serve.max_queue_rows or lower serve.max_rows"
        )
    if settings.max_body_mb > settings.max_bodies_mb:
        yield (
            f"serve.max_body_mb={settings.max_body_mb:g} is more than"
            f" serve.max_bodies_mb={settings.max_bodies_mb:g}, which all bodies share"
        )
    if not settings.wires or len(set(settings.wires)) < len(settings.wires):
        yield f"serve.wires={settings.wires}: give some of {', '.join(SERVE_WIRES)}, each once"
    for name in settings.wires:
        yield from SERVE_WIRES.unknown(name, "serve.wires")
    if settings.token_env is None and not is_loopback(settings.host):
        yield (
            f"serve.host={settings.host} is reachable from other machines, and no token is set:"
            " put one into an environment variable and name it, e.g."
            " serve.token_env=RMRL_SERVE_TOKEN, or listen on serve.host=127.0.0.1"
        )


def _token(settings: ServerConfig) -> bytes | None:
    name = settings.token_env
    if name is None:
        return None
    if not _VARIABLE.fullmatch(name):
        # The value may be the token itself and is not repeated.
        raise ConfigError(
            "serve.token_env is not the name of an environment variable; put the token into one and"
            " give its name, e.g. serve.token_env=RMRL_SERVE_TOKEN"
        )
    token = os.environ.get(name, "")
    if not token:
        raise ConfigError(
            f"serve.token_env={name}: this environment variable is not set or empty; put the bearer"
            " token into it"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"serve.token_env={name}: the token has characters that a header cannot carry; use"
            " ASCII letters, digits and punctuation, without spaces"
        )
    return token.encode("ascii")
