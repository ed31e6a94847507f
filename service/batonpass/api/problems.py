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
    from collections.abc import Sequence

    from fastapi import APIRouter, FastAPI

PROBLEM_JSON = "application/problem+json"

REFUSED = "batonpass.refused"
"""Where the scope of a request keeps the type of the problem that it was answered with."""


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
    allowed: tuple[str, ...] = ()


def not_allowed(method: str, path: str, allowed: Sequence[str]) -> MethodNotAllowed:
    """Return the error for a path that is served by other methods than the one asked for."""
    error = MethodNotAllowed(f"{method} is not served at {path}; {', '.join(allowed) or 'another method'} is")
    error.allowed = tuple(allowed)
    return error


def problem_headers(error: ProtocolError) -> dict[str, str]:
    """Return the headers that an error adds: whole seconds to wait, rounded up, and the methods allowed (RFC 9110)."""
    headers = {}
    if error.retry_after_ms is not None:
        headers["retry-after"] = str(-(-error.retry_after_ms // 1_000))
    if isinstance(error, MethodNotAllowed) and error.allowed:
        headers["allow"] = ", ".join(error.allowed)
    if error.status == 401:
        headers["www-authenticate"] = 'Bearer realm="batonpass"'
    return headers


def problem(error: ProtocolError) -> Response:
    """Return the response that tells a caller of an error."""
    return Response(
        to_json(problem_body(error)),
        status_code=error.status,
        headers=problem_headers(error),
        media_type=PROBLEM_JSON,
    )


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make the app, which serves these routers, answer every error as a problem, its framework's own included."""

    async def refused(request: Request, error: Exception) -> Response:
        request.scope[REFUSED] = cast("ProtocolError", error).type
        return problem(cast("ProtocolError", error))

    async def unrouted(request: Request, error: Exception) -> Response:
        error = cast("HTTPException", error)
        if error.status_code == MethodNotAllowed.status:
            return problem(not_allowed(request.method, request.url.path, _methods(routers, request)))
        return problem(UnknownPath(f"nothing is served at {request.url.path}; /docs lists what is"))

    async def failed(_request: Request, _error: Exception) -> Response:
        return problem(Defect("the coordinator failed on this request; its log says how"))

    app.add_exception_handler(ProtocolError, refused)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, failed)


def _methods(routers: Sequence[APIRouter], request: Request) -> list[str]:
    """Return every method that is served at the path of a request, sorted."""
    found: set[str] = set()
    for router in routers:
        for one in router.routes:
            if one.matches(request.scope)[0] is not Match.NONE:
                found.update(getattr(one, "methods", None) or ())
    return sorted(found)
