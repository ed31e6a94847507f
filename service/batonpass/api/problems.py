"""Every error as a problem object (RFC 9457): what happened, and what the caller should do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from batonpass.codec.answers import problem_body, to_json
from batonpass.core.errors import ProtocolError
from batonpass.runtime.ports import Defect

if TYPE_CHECKING:
    from fastapi import FastAPI

PROBLEM_JSON = "application/problem+json"


class UnknownPath(ProtocolError):
    """Nothing is served under this path."""

    type = "not-found"
    status = 404
    title = "Not found"


class MethodNotAllowed(ProtocolError):
    """The path exists, and does not know this method."""

    type = "method-not-allowed"
    status = 405
    title = "Method not allowed"


def problem_headers(error: ProtocolError) -> dict[str, str]:
    """Return the headers that an error adds: whole seconds to wait, rounded up, where it says how long (RFC 9110)."""
    if error.retry_after_ms is None:
        return {}
    return {"retry-after": str(-(-error.retry_after_ms // 1_000))}


def problem(error: ProtocolError, headers: dict[str, str] | None = None) -> Response:
    """Return the response that tells a caller of an error."""
    return Response(
        to_json(problem_body(error)),
        status_code=error.status,
        headers=problem_headers(error) | (headers or {}),
        media_type=PROBLEM_JSON,
    )


def install(app: FastAPI) -> None:
    """Make the app answer every error as a problem, its own and those of its framework."""

    async def refused(_request: Request, error: Exception) -> Response:
        return problem(cast("ProtocolError", error))

    async def unrouted(request: Request, error: Exception) -> Response:
        error = cast("HTTPException", error)
        if error.status_code == MethodNotAllowed.status:
            allowed = ", ".join(_methods(app, request))
            detail = f"{request.method} is not served at {request.url.path}; {allowed} is"
            return problem(MethodNotAllowed(detail), {"allow": allowed})
        return problem(UnknownPath(f"nothing is served at {request.url.path}; /docs lists what is"))

    async def failed(_request: Request, _error: Exception) -> Response:
        return problem(Defect("the coordinator failed on this request; its log says how"))

    app.add_exception_handler(ProtocolError, refused)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, failed)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Return every method that is served at the path of a request, sorted."""
    found: set[str] = set()
    for one in app.routes:
        match, _ = one.matches(request.scope)
        if match is not Match.NONE:
            found.update(getattr(one, "methods", None) or ())
    return sorted(found)
