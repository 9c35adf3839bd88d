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
"""End of the first line of a lost process's error; its output follows."""


class RequestError(Exception):
    """A request that is refused or cannot be answered. The message is a sentence for the client:
    it holds no other client's data."""

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
        """The JSON of the answer."""
        error: dict[str, object] = {"message": self.message}
        if self.field is not None:
            error["field"] = self.field
        return {"error": error}

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the answer besides those of its content."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


FAULT = RequestError(500, "the server has a fault; its log has more")
"""The answer to a request that ended in an error nobody foresaw."""


def one_line(error: BaseException | str) -> str:
    """Return an error's first line, without what a lost process printed last, which may hold the
    texts of any client."""
    line = error if isinstance(error, str) else first_line(error)
    return line.removesuffix(_PRINTED).strip()


def request_error(error: RmrlError) -> RequestError:
    """Return the answer to a request that an error of scoring ended."""
    if isinstance(error, DataError):
        return RequestError(422, str(error))
    message = f"{type(error).__name__}: {one_line(error)}"
    if isinstance(error, InfrastructureError | StallError | MemoryPlanError):
        return RequestError(503, message, retry_after_s=_ENGINE_RETRY_S)
    return RequestError(500, message)
