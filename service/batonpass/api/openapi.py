"""The OpenAPI document: what each route takes and answers, from the same types that decode its body and query."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import date
from functools import wraps
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api import shown
from batonpass.api.calls import ADMIN, ROLES
from batonpass.api.problems import PROBLEM_JSON
from batonpass.codec.bodies import Count, HeartbeatBody, Name, PollQuery, TaskName
from batonpass.codec.queries import NoQuery
from batonpass.codec.shape import Shape

Endpoint = Callable[[Request], Awaitable[Response]]
_NOTHING = Shape(NoQuery)
_TOKEN = {"type": "http", "scheme": "bearer", "description": "A token; `x-roles` of a call are the roles it may have."}

_REF = "#/components/schemas/{name}"
_PATH_NAMES = {"group": Name, "member": Name, "task": TaskName, "token": Name, "number": Count, "day": date}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "action"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "action": {"enum": ["retry", "stop-and-rejoin", "stop", "fix", "redirect"]},
        "retry_after_ms": {"type": "integer"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "reason"],
                "properties": {"path": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
        "answer": {"type": "object"},
    },
}


class Described:
    """The operations of a document, with the types that they refer to."""

    def __init__(self) -> None:
        self.structs: set[type[Struct]] = set()

    def operation(
        self, path: str, *, body: type[Struct] | None, query: type[Struct] | None, answers: Mapping[int, str]
    ) -> dict[str, Any]:
        """Return what the document says of one operation beside its summary."""
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": _schema(_PATH_NAMES[name])}
            for name in re.findall(r"{(\w+)}", path)
        ]
        parameters += [
            {"name": field.encode_name, "in": "query", "schema": _schema(field.type)}
            for field in (msgspec.structs.fields(query) if query else ())
        ]
        described: dict[str, Any] = {"parameters": parameters, "responses": _responses(answers)}
        if body is not None:
            self.structs.add(body)
            content = {"application/json": {"schema": {"$ref": _REF.format(name=body.__name__)}}}
            required = any(field.required for field in msgspec.structs.fields(body))
            described["requestBody"] = {"required": required, "content": content}
        return described

    def schemas(self) -> dict[str, Any]:
        """Return the schemas of every type that an operation refers to."""
        ordered = sorted(self.structs, key=lambda struct: struct.__name__)
        _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
        return components | {"Problem": _PROBLEM}


DESCRIBED = Described()


def route(
    router: APIRouter,
    method: str,
    path: str,
    *,
    body: type[Struct] | None = None,
    query: type[Struct] | None = None,
    answers: Mapping[int, str],
) -> Callable[[Endpoint], Endpoint]:
    """Serve ``method`` and ``path`` by the endpoint below, and describe it; its docstring is the summary.

    A call of the API that knows no query refuses one, so that a typo is seen; any other reads its own. What the
    platform asks (/livez and its like) may come with parameters of the platform's own.
    """
    operation = DESCRIBED.operation(router.prefix + path, body=body, query=query, answers=answers)

    def serve(endpoint: Endpoint) -> Endpoint:
        router.add_api_route(
            path,
            _without_query(endpoint) if query is None and router.prefix else endpoint,
            methods=[method],
            response_class=Response,
            status_code=next(iter(answers)),
            summary=(endpoint.__doc__ or "").partition("\n")[0],
            description="",
            openapi_extra=operation,
        )
        return endpoint

    return serve


def _without_query(endpoint: Endpoint) -> Endpoint:
    @wraps(endpoint)
    async def strict(request: Request) -> Response:
        if request.query_params:
            _NOTHING.read(request.query_params, prefix="query")
        return await endpoint(request)

    return strict


def install(app: FastAPI) -> None:
    """Let the app describe itself whole, the calls that are served in front of it included."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            document["paths"].update(_front(document["paths"]))
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    operation["x-roles"] = sorted(ROLES.get((method.upper(), path), ADMIN))
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = _problem_response()
            shown.show(document["paths"])
            schemas = shown.components() | DESCRIBED.schemas()
            document["components"] = {"schemas": schemas, "securitySchemes": {"token": _TOKEN}}
            document["security"] = [{"token": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _front(paths: Mapping[str, Any]) -> dict[str, Any]:
    heartbeat = "/v1/groups/{group}/members/{member}/heartbeat"
    assignment = "/v1/groups/{group}/members/{member}/assignment"
    beat = DESCRIBED.operation(heartbeat, body=HeartbeatBody, query=None, answers={200: "The member's answer."})
    poll = DESCRIBED.operation(
        assignment, body=None, query=PollQuery, answers={200: "A new picture.", 204: "Nothing new within the wait."}
    )
    return {
        heartbeat: dict(paths.get(heartbeat, {})) | {"post": {"summary": "Take a member's word.", **beat}},
        assignment: dict(paths.get(assignment, {}))
        | {"get": {"summary": "Wait for another picture of what the member may hold.", **poll}},
    }


def _responses(answers: Mapping[int, str]) -> dict[str, Any]:
    return {str(status): {"description": description} for status, description in answers.items()}


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Problem")}
    return {"description": "A problem (RFC 9457).", "content": {PROBLEM_JSON: {"schema": schema}}}


def _schema(wanted: Any) -> dict[str, Any]:
    # UNSET stands for "left out" and has no place in a schema.
    kept: Iterable[Any] = [choice for choice in getattr(wanted, "__args__", ()) if choice is not msgspec.UnsetType]
    if msgspec.UnsetType in getattr(wanted, "__args__", ()):
        wanted = next(iter(kept))
    return msgspec.json.schema(wanted)
