"""Errors as answers: a status code and {"error": {"message", "field"?}}."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmrl.errors import (
    DataError,
    InfrastructureError,
    MemoryPlanError,
    RmrlError,
    StallError,
    first_line,
)

_ENGINE_RETRY_S = 10.0
_PRINTED = "; it printed last:"
"""End of the first line in a lost process's error. The process's output follows."""


class RequestError(Exception):
    """A request that is refused or cannot be answered. The message is a sentence for the client and
    holds no other client's data."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """`status`: HTTP status code. `field`: the place in the body, e.g. rows[3].response.
        `retry_after_s`: when another try is worth it."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s

    @property
    def content(self) -> dict[str, object]:
        """Return the answer's JSON."""
        error: dict[str, object] = {"message": self.message}
        if self.field is not None:
            error["field"] = self.field
        return {"error": error}

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the answer's headers besides the content's."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


FAULT = RequestError(500, "the server has a fault; its log has more")
"""The answer to a request that ended in an unforeseen error."""


def one_line(error: BaseException | str) -> str:
    """Return an error's first line, without a lost process's last output, which may hold any
    client's texts."""
    line = error if isinstance(error, str) else first_line(error)
    return line.removesuffix(_PRINTED).strip()


def request_error(error: RmrlError) -> RequestError:
    """Return the answer to a request that a scoring error ended."""
    if isinstance(error, DataError):
        return RequestError(422, str(error))
    message = f"{type(error).__name__}: {one_line(error)}"
    if isinstance(error, InfrastructureError | StallError | MemoryPlanError):
        return RequestError(503, message, retry_after_s=_ENGINE_RETRY_S)
    return RequestError(500, message)
