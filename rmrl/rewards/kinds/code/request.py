"""Requests for a verdict, runs in a sandbox, and their outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.types import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRequest:
    """The code of one response with the tests of its row."""

    code: str
    tests: str
    """`row_tests.Tests` as JSON text, so that equal requests are equal keys."""
    language: str = "python"
    score: str = "all"
    """all: 1 where every test passes, else 0; share: share of the tests that pass."""
    time_s: float = 10.0
    """CPU seconds of a process, and half of the seconds that a program may take by the clock,
    without pauses of the machine."""
    memory_mb: int = 1024
    processes: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One run in a sandbox."""

    source: str
    """The code itself, or the code whose tests `job` holds."""
    language: str = "python"
    stdin: str = ""
    job: Mapping[str, Any] | None = None
    """Tests for `inside/`. None: the code is run as a program of its own."""
    time_s: float = 10.0
    memory_mb: int = 1024
    processes: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended, or why the sandbox could not run it."""

    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    """Why the program itself failed: time, memory, exit code, compiler; "" where it ended well."""
    failure: Status | None = None
    """Status of a sandbox that did not do its work. Nothing is known about the program then."""
    detail: str = ""
    """With `failure`: the reason, as a sentence."""


Run = Callable[[Program], Awaitable[Outcome]]
"""A sandbox: the local one, or a service."""
