"""Every error as a problem object (RFC 9457, protocol 1.4): what happened, and what the caller should do next."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from batonpass.core.state.errors import ProtocolError

PROBLEM_JSON = "application/problem+json"


class BadHead(ProtocolError, type="invalid-request", status=400, title="The head of the request cannot be understood"):
    """The request line or a header is invalid HTTP, or asks for something that is not supported."""


class UnknownPath(ProtocolError, type="not-found", status=404, title="Not found"):
    """Nothing is served under this path."""


class TooManyConnections(
    ProtocolError,
    type="coordinator-loading",
    status=503,
    action="retry",
    title="The coordinator has too many connections",
):
    """More connections are open than allowed. The caller's connection ends; another coordinator may have room."""


class MethodNotAllowed(ProtocolError, type="method-not-allowed", status=405, title="Method not allowed"):
    """The path exists, but not with this method."""

    allowed: tuple[str, ...] = ()


def not_allowed(method: str, path: str, allowed: Sequence[str]) -> MethodNotAllowed:
    """Return the error for a path that is served by other methods than the one asked for."""
    error = MethodNotAllowed(f"{method} is not served at {path}; {', '.join(allowed) or 'another method'} is")
    error.allowed = tuple(allowed)
    return error


def problem_headers(error: ProtocolError) -> dict[str, str]:
    """Return the headers that an error adds (RFC 9110).

    Whole seconds to wait, rounded up; the methods allowed; and how to authenticate.
    """
    headers = {}
    if error.retry_after_ms is not None:
        headers["retry-after"] = str(-(-error.retry_after_ms // 1_000))
    if isinstance(error, MethodNotAllowed) and error.allowed:
        headers["allow"] = ", ".join(error.allowed)
    if error.status == 401:
        headers["www-authenticate"] = 'Bearer realm="batonpass"'
    return headers


def install(app: FastAPI) -> None:
    """Let every error leave the framework, also the framework's own refusals: ``Admission`` answers them all."""

    async def unserved(request: Request, _error: Exception) -> Response:
        raise UnknownPath(f"nothing is served at {request.url.path}; /docs lists what is")

    async def passed_on(_request: Request, error: Exception) -> Response:
        raise error

    app.add_exception_handler(HTTPException, unserved)
    app.add_exception_handler(Exception, passed_on)
