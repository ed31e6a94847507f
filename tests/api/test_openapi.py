"""The OpenAPI document describes what is served, and what it describes holds together."""

import json
import re
from typing import Any

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from tests import openapi_document
from tests.api.conftest import Api
from tests.openapi_document import DOCUMENT

SERVED = {
    "/v1/groups": {"get"},
    "/v1/groups/{group}": {"put", "get", "delete"},
    "/v1/groups/{group}/assignment": {"get"},
    "/v1/groups/{group}/snapshot": {"get"},
    "/v1/groups/{group}/advice": {"post"},
    "/v1/groups/{group}/plan": {"post"},
    "/v1/groups/{group}/members": {"get"},
    "/v1/groups/{group}/members/{member}": {"put", "get", "delete"},
    "/v1/groups/{group}/members/{member}/safe-to-stop": {"get"},
    "/v1/groups/{group}/members/{member}/heartbeat": {"post"},
    "/v1/groups/{group}/members/{member}/assignment": {"get"},
    "/v1/groups/{group}/members/{member}/drain": {"post", "delete"},
    "/v1/groups/{group}/members/{member}/evict": {"post"},
    "/v1/groups/{group}/probe": {"post"},
    "/v1/groups/{group}/pause": {"post"},
    "/v1/groups/{group}/resume": {"post"},
    "/v1/groups/{group}/explain": {"get"},
    "/v1/groups/{group}/generations": {"get"},
    "/v1/groups/{group}/generations/{number}": {"get"},
    "/v1/groups/{group}/commands": {"get"},
    "/v1/groups/{group}/lags": {"get"},
    "/v1/groups/{group}/events": {"get"},
    "/v1/commands": {"get"},
    "/v1/events": {"get"},
    "/v1/groups/{group}/tasks/{task}": {"get"},
    "/v1/groups/{group}/tasks/{task}/explain": {"get"},
    "/v1/groups/{group}/tasks/{task}/route": {"get"},
    "/v1/groups/{group}/tasks/{task}/pin": {"put", "delete"},
    "/v1/groups/{group}/tasks/{task}/release": {"post"},
    "/v1/groups/{group}/members/{member}/trust": {"post"},
    "/v1/audits": {"get"},
    "/v1/audits/{day}": {"get"},
    "/v1/tokens": {"get", "post"},
    "/v1/tokens/{token}": {"delete"},
    "/livez": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}


async def document(api: Api) -> Any:
    """Return the document as a client gets it."""
    return (await api.client.get("/openapi.json")).json()


async def test_every_call_is_described(api: Api) -> None:
    paths = (await document(api))["paths"]
    for path, methods in SERVED.items():
        assert methods <= set(paths[path]), path
        for method in methods:
            operation = paths[path][method]
            named = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)
            assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}


async def test_nothing_else_is_described(api: Api) -> None:
    paths = (await document(api))["paths"]
    assert {path: set(operations) for path, operations in paths.items()} == SERVED


async def test_a_typo_in_a_query_is_seen(api: Api) -> None:
    await api.declare()
    await api.join("m1")
    names = {"group": "orders", "member": "m1", "task": "0_0", "number": "1", "token": "t1", "day": "2026-11-20"}
    workers = {
        ("put", "/v1/groups/{group}/members/{member}"),
        ("post", "/v1/groups/{group}/members/{member}/heartbeat"),
    }
    for path, methods in SERVED.items():
        for method in methods:
            if path.startswith("/v1") and (method, path) not in workers:
                answer = await api.client.request(method.upper(), path.format(**names) + "?resaon=typo")
                assert answer.status_code == 422, (method, path, answer.text)
                assert "query.resaon" in [fault["path"] for fault in answer.json()["errors"]], (method, path)


async def test_head_is_answered_as_get_without_a_body(api: Api) -> None:
    await api.declare()
    await api.join("m1")
    names = {"group": "orders", "member": "m1", "task": "0_0", "number": "1", "day": "2026-11-20"}
    for path, methods in SERVED.items():
        if "get" in methods and not path.startswith("/v1/tokens"):
            wait = "?after=0&wait_ms=0" if path.endswith("{member}/assignment") else ""
            get = await api.client.get(path.format(**names) + wait)
            head = await api.client.head(path.format(**names) + wait)
            assert (head.status_code, head.content) == (get.status_code, b""), path
            assert head.headers.get("content-type") == get.headers.get("content-type"), path


async def test_every_reference_leads_somewhere(api: Api) -> None:
    found = await document(api)
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)))
    assert names
    assert names <= set(found["components"]["schemas"])


async def test_every_answer_is_described(api: Api) -> None:
    found = await document(api)
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                assert ("content" in answer) is (status != "204"), (method, path, status)
    for schema in found["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_an_answer_is_as_described(api: Api) -> None:
    """Protocol 12.4."""
    await api.declare()
    await api.join("m1")
    found = await document(api)
    registry = Registry().with_resource(
        "urn:document", Resource.from_contents(found, default_specification=DRAFT202012)
    )
    for answer, name in (
        (await api.call("GET", ""), "groups_get"),
        (await api.call("GET", "/orders"), "group_get"),
        (await api.call("GET", "/orders/tasks/0_0"), "task_get"),
        (await api.call("PUT", "/orders", {"topology": 1, "config": 2}), "problem"),
    ):
        reference = {"$ref": f"urn:document#/components/schemas/{name}"}
        validator = jsonschema.Draft202012Validator(reference, registry=registry)
        assert list(validator.iter_errors(answer.json())) == []
        assert list(validator.iter_errors({}))


async def test_a_client_that_knows_the_document_alone_can_change_a_group(api: Api) -> None:
    await api.declare()
    group = (await document(api))["paths"]["/v1/groups/{group}"]
    (sent,) = group["get"]["responses"]["200"]["headers"]
    (wanted,) = [parameter["name"] for parameter in group["put"]["parameters"] if parameter["in"] == "header"]
    revision = (await api.call("GET", "/orders")).headers[sent]
    changed = await api.call("PUT", "/orders", {"config": {"num_standby_replicas": 1}}, headers={wanted: revision})
    assert changed.status_code == 200


async def test_the_page_for_people_comes_from_the_coordinator_alone(api: Api) -> None:
    page = await api.client.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text
    for name in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert (await api.client.get(f"/{name}")).status_code == 200, name
    assert (await api.client.get("/docs/nothing.js")).status_code == 404


async def test_the_document_in_the_repository_is_the_one_that_is_served(api: Api) -> None:
    """`python -m tests.openapi_document` writes it."""
    assert DOCUMENT.read_text() == openapi_document.text()
    assert json.loads(DOCUMENT.read_text()) == await document(api)


async def test_every_operation_has_a_name_of_its_own(api: Api) -> None:
    """Generated clients name their methods by it."""
    paths = (await document(api))["paths"]
    names = [operation["operationId"] for operations in paths.values() for operation in operations.values()]
    assert len(names) == len(set(names))
    assert {"heartbeat", "poll", "declare_group", "join"} <= set(names)
    assert all(re.fullmatch("[a-z_]+", name) for name in names)
