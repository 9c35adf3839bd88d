"""Check who may send requests."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from rmrl.serve.problems import RequestError

OPEN_PATH = "/healthz"
"""The one path that needs no token, for GET and HEAD, which have no body."""


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_open(method: str, path: str) -> bool:
    """Return whether a request needs no token."""
    return path == OPEN_PATH and method in ("GET", "HEAD")


def check_caller(headers: Iterable[tuple[bytes, bytes]], token: bytes | None) -> None:
    """Raise RequestError 400 for a header that names the caller twice, 401 for a wrong token. Where
    there is no token, raise 403 for a request that names another host than this machine, as a web
    page does whose own name points here."""
    headers = list(headers)
    named = dict(headers)
    for name in (b"authorization", b"host"):
        if sum(each == name for each, _ in headers) > 1:
            # Whoever stands between may have read the other one.
            raise RequestError(400, f"send the header {name.decode().title()} once")
    if token is None:
        host = named.get(b"host", b"").decode("latin-1")
        if host.startswith("["):
            name = host[1:].partition("]")[0]
        else:
            name = host.partition(":")[0]
        if not is_loopback(name):
            raise RequestError(
                403,
                "a server without a token answers requests to 127.0.0.1 and localhost alone; set"
                " serve.token_env to let others in",
            )
        return
    scheme, _, rest = named.get(b"authorization", b"").partition(b" ")
    given = rest.strip() if scheme.lower() == b"bearer" else b""
    if not hmac.compare_digest(given, token):
        raise RequestError(401, "send the header Authorization: Bearer <token of this server>")
