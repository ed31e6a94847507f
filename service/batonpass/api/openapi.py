"""The OpenAPI document: what each route takes and answers, from the same types that decode its body and query."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import wraps
from typing import Any, Final, Required, TypedDict, Unpack

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

from batonpass import __version__, schemas
from batonpass.api.calls import ADMIN, HEARTBEAT, LONG_POLL, ROLES, Call
from batonpass.api.problems import PROBLEM_JSON
from batonpass.codec.bodies import Count, HeartbeatBody, JoinBody, Name, NoQuery, PollQuery, ReportBody, TaskName
from batonpass.codec.shape import Shape

TITLE: Final = "Batonpass"
DESCRIPTION: Final = "Warm handovers for stateful stream processing."
Endpoint = Callable[[Request], Awaitable[Response]]
_NOTHING = Shape(NoQuery)
_TOKEN = {"type": "http", "scheme": "bearer", "description": "A token; `x-roles` of a call are the roles it may have."}

_REF = "#/components/schemas/{name}"
_REFERENCE = re.compile(rf'"\$ref": "{schemas.URN}(common#/\$defs/)?(\w+)"')
_PROBLEM = "problem"
_PATH_NAMES = {"group": Name, "member": Name, "task": TaskName, "token": Name, "number": Count, "day": date}
_HEADERS = {
    "If-Match": "The `ETag` of the group that is to be changed. A group that is new has none.",
    "Last-Event-ID": "Of a live stream: the position after which it goes on. It comes before `after`.",
    "ETag": "The revision of the group, which `If-Match` has to name to change it.",
    "Retry-After": "Whole seconds; `retry_after_ms`, rounded up.",
}
"""What the headers mean that are not of HTTP itself or of every call; docs/api.md has all."""


class Said(TypedDict, total=False):
    """What the document says of a call beside its path and summary.

    ``answers`` describes each status. ``schema`` names the JSON Schema of the package (``batonpass.schemas``) that the
    answers fit, ``texts`` the other types of content that the call answers with, ``headers`` and ``answer_headers``
    what it reads and sends beyond HTTP's own.
    """

    body: type[Struct]
    query: type[Struct]
    answers: Required[Mapping[int, str]]
    schema: str
    texts: Sequence[str]
    headers: Sequence[str]
    answer_headers: Sequence[str]


class Described:
    """The operations of a document, with the types and the schemas of the package that they refer to."""

    def __init__(self) -> None:
        self.structs: set[type[Struct]] = set()
        self.answers: set[str] = set()

    def operation(self, path: str, said: Said) -> dict[str, Any]:
        """Return what the document says of one operation, except its summary."""
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": _schema(_PATH_NAMES[name])}
            for name in re.findall(r"{(\w+)}", path)
        ]
        parameters += [
            {"name": field.encode_name, "in": "query", "schema": _schema(field.type)}
            for field in (msgspec.structs.fields(said["query"]) if "query" in said else ())
        ]
        parameters += [{"name": name, "in": "header"} | _header(name) for name in said.get("headers", ())]
        content: dict[str, Any] = {kind: {"schema": {"type": "string"}} for kind in said.get("texts", ())}
        if "schema" in said:
            self.answers.add(said["schema"])
            content["application/json"] = {"schema": {"$ref": _REF.format(name=said["schema"])}}
        described: dict[str, Any] = {
            "parameters": parameters,
            "responses": _responses(said["answers"], content, said.get("answer_headers", ())),
        }
        if "body" in said:
            body = said["body"]
            self.structs.add(body)
            required = any(field.required for field in msgspec.structs.fields(body))
            taken = {"application/json": {"schema": {"$ref": _REF.format(name=body.__name__)}}}
            described["requestBody"] = {"required": required, "content": taken}
        return described

    def schemas(self) -> dict[str, Any]:
        """Return the schemas of every type that an operation refers to."""
        ordered = sorted(self.structs, key=lambda struct: struct.__name__)
        _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
        for struct in (JoinBody, HeartbeatBody, ReportBody):
            # An unknown field of these is ignored, and named in the answer (protocol 1.3).
            del components[struct.__name__]["additionalProperties"]
        return _answer_schemas(self.answers | {_PROBLEM}) | components


DESCRIBED = Described()


def route(router: APIRouter, method: str, path: str, **said: Unpack[Said]) -> Callable[[Endpoint], Endpoint]:
    """Serve ``method`` and ``path`` by the endpoint below, and describe it; its docstring is the summary.

    A call of the API without ``query`` refuses any query, so that a typo is seen. A call of the platform (/livez and
    the like) accepts any parameters.
    """
    operation = DESCRIBED.operation(router.prefix + path, said)

    def serve(endpoint: Endpoint) -> Endpoint:
        router.add_api_route(
            path,
            endpoint if "query" in said or not router.prefix else _without_query(endpoint),
            methods=[method],
            response_class=Response,
            status_code=next(iter(said["answers"])),
            operation_id=endpoint.__name__,
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


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes, and of the calls that are served without the framework."""
    found = get_openapi(title=TITLE, version=__version__, description=DESCRIPTION, routes=routes)
    for call, operation in _plain_routes():
        found["paths"].setdefault(call.path, {})[call.method.lower()] = operation
    problem = {
        "description": "A problem (RFC 9457).",
        "headers": {"Retry-After": _header("Retry-After")},
        "content": {PROBLEM_JSON: {"schema": {"$ref": _REF.format(name=_PROBLEM)}}},
    }
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            operation["x-roles"] = sorted(ROLES.get((method.upper(), path), ADMIN))
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
    found["components"] = {"schemas": DESCRIBED.schemas(), "securitySchemes": {"token": _TOKEN}}
    found["security"] = [{"token": []}]
    return found


def install(app: FastAPI) -> None:
    """Let the app describe itself: as the document, and as a page that needs no internet."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app.routes)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=TITLE,
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page

    app.mount("/docs", StaticFiles(packages=[("fastapi_offline", "static")]))


def _plain_routes() -> list[tuple[Call, dict[str, Any]]]:
    """Return the operations of the routes that the framework cannot describe."""
    beat: Said = {"body": HeartbeatBody, "answers": {200: "The member's answer."}, "schema": "member_answer"}
    answers = {200: "A new assignment.", 204: "Nothing new within the wait."}
    poll: Said = {"query": PollQuery, "answers": answers, "schema": "member_answer"}
    waits = "Wait for another assignment than the one that the member has."
    return [
        (call, {"summary": summary, "operationId": name} | DESCRIBED.operation(call.path, said))
        for call, name, summary, said in (
            (HEARTBEAT, "heartbeat", "Report progress, and renew the lease.", beat),
            (LONG_POLL, "poll", waits, poll),
        )
    ]


def _responses(answers: Mapping[int, str], content: Mapping[str, Any], headers: Iterable[str]) -> dict[str, Any]:
    more: dict[str, Any] = {"headers": {name: _header(name) for name in headers}} if headers else {}
    return {
        str(status): {"description": description} | ({"content": content} if content and status != 204 else {}) | more
        for status, description in answers.items()
    }


def _header(name: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "description": _HEADERS[name]}


def _schema(wanted: Any) -> dict[str, Any]:
    # UNSET stands for "left out" and has no place in a schema.
    kept: Iterable[Any] = [choice for choice in getattr(wanted, "__args__", ()) if choice is not msgspec.UnsetType]
    if msgspec.UnsetType in getattr(wanted, "__args__", ()):
        wanted = next(iter(kept))
    return msgspec.json.schema(wanted)


def _answer_schemas(names: Iterable[str]) -> dict[str, Any]:
    """Return these JSON Schemas of the package and all that they refer to, with the document's references."""
    found: dict[str, Any] = {}
    wanted = sorted(names)

    def of_the_document(reference: re.Match[str]) -> str:
        name = f"common_{reference[2]}" if reference[1] else reference[2]
        wanted.append(name)
        return f'"$ref": "{_REF.format(name=name)}"'

    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = json.loads(_REFERENCE.sub(of_the_document, json.dumps(_source(name))))
    return dict(sorted(found.items()))


def _source(name: str) -> Any:
    if name.startswith("common_"):
        return schemas.load("common")["$defs"][name.removeprefix("common_")]
    whole = schemas.load(name)
    return {key: value for key, value in whole.items() if key not in ("$schema", "$id")}
