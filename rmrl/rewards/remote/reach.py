"""Check that a server listens at a reward's address."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

_CONNECT_TIMEOUT_S = 3.0
_PORTS = {"http": 80, "https": 443}


def unreachable(urls: Iterable[str]) -> dict[str, str]:
    """Return the urls at which no server accepts a connection, each with the reason. Nothing is
    sent.

    A url without a host counts as unreachable. All are tried at the same time, for at most 3 s each
    and address.
    """
    distinct = list(dict.fromkeys(urls))
    if not distinct:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(distinct), 16)) as threads:
        reasons = list(threads.map(_refusal, distinct))
    refusals: dict[str, str] = {
        url: reason for url, reason in zip(distinct, reasons, strict=True) if reason
    }
    return refusals


def _refusal(url: str) -> str:
    """Why no connection can be made, "" if one can."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        return str(error)
    if not parts.hostname or port is None:
        return "it names no host; a url looks like http://host:port/path"
    try:
        socket.create_connection((parts.hostname, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"{parts.hostname}:{port}: {error.strerror or error}"
    return ""
