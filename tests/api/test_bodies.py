"""What a call that changes something has in its body: why, nothing unknown, and nothing is done before it is whole."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.conftest import Api

from batonpass.core.state.ids import GroupId

ORDERS = "/v1/groups/{group}"
MEMBER = ORDERS + "/members/{member}"
TASK = ORDERS + "/tasks/{task}"
NAMES = {"group": "orders", "member": "m1", "task": "0_0"}
WHY_ALONE = [
    ("DELETE", ORDERS),
    ("DELETE", MEMBER),
    ("DELETE", MEMBER + "/drain"),
    ("POST", MEMBER + "/drain"),
    ("POST", MEMBER + "/evict"),
    ("POST", ORDERS + "/probe"),
    ("POST", ORDERS + "/resume"),
    ("DELETE", TASK + "/pin"),
    ("POST", TASK + "/release"),
    ("POST", MEMBER + "/trust"),
]
"""The calls whose body holds nothing but why."""

WITH_BODY = [
    *WHY_ALONE,
    ("POST", MEMBER + "/heartbeat"),
    ("PUT", MEMBER),
    ("PUT", ORDERS),
    ("POST", ORDERS + "/plan"),
    ("POST", ORDERS + "/pause"),
    ("PUT", TASK + "/pin"),
    ("POST", "/v1/tokens"),
]


def below_groups(path: str) -> str:
    """Return a path as ``Api.call`` takes it."""
    return path.format(**NAMES).removeprefix("/v1/groups")


async def stage(api: Api, path: str) -> None:
    """Let ``orders`` be there, with the member m1 where the call is not about the whole group."""
    await api.declare()
    if path != ORDERS:
        await api.join("m1")


async def assignment_of(api: Api) -> tuple[Any, Any]:
    """Return the group as it stands, and how often something was written to its log."""
    group, _ = await api.coordinator.look(GroupId("orders"))
    return group, api.log.appends


class BreakingOff:
    """A client that announces a body, sends the beginning of it, and goes away."""

    def __init__(self, method: str, path: str) -> None:
        self.sent: list[Any] = []
        self._messages: Iterator[dict[str, Any]] = iter(
            [{"type": "http.request", "body": b'{"reas', "more_body": True}]
        )
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-length", b"100"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("batonpass", 80),
        }

    async def call(self, api: Api) -> None:
        """Make the call, and break it off."""
        app = api.client._transport.app  # type: ignore[attr-defined]
        async with asyncio.timeout(2):
            await app(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        return next(self._messages, {"type": "http.disconnect"})

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.mark.parametrize(("method", "path"), WHY_ALONE)
@pytest.mark.parametrize(("body", "noted"), [({"reason": "body"}, "body"), ({}, "query"), (None, "query")])
async def test_the_reason_in_the_body_goes_before_that_in_the_query(
    api: Api, method: str, path: str, body: Any, noted: str
) -> None:
    await stage(api, path)
    answer = await api.call(method, below_groups(path) + "?reason=query", body)
    assert answer.status_code in {200, 202, 204}, answer.text
    assert api.commands[-1][1].reason == noted


@pytest.mark.parametrize(("method", "path"), WHY_ALONE)
@pytest.mark.parametrize(
    ("body", "fault"), [(b'{"reason":', "body"), ({"bogus": 1}, "bogus"), ({"reason": 1}, "reason"), ([], "body")]
)
async def test_a_body_that_says_something_else_is_refused(
    api: Api, method: str, path: str, body: Any, fault: str
) -> None:
    await stage(api, path)
    before, commands = await assignment_of(api), len(api.commands)
    answer = await api.call(method, below_groups(path), body)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-request")
    assert [error["path"] for error in answer.json()["errors"]] == [fault]
    assert await assignment_of(api) == before
    assert len(api.commands) == commands


@pytest.mark.parametrize(("method", "path"), WITH_BODY)
async def test_a_caller_that_breaks_off_in_its_body_has_done_nothing(
    api: Api, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    await stage(api, path)
    before, commands = await assignment_of(api), len(api.commands)
    await BreakingOff(method, path.format(**NAMES)).call(api)
    assert api.recorded.answered_[-1] == (method, path, 499)
    assert api.recorded.failures == []
    assert [line for line in caplog.records if line.levelno >= logging.ERROR] == []
    assert await assignment_of(api) == before
    assert len(api.commands) == commands


async def test_the_document_has_the_body_of_every_such_call(api: Api) -> None:
    paths = (await api.client.get("/openapi.json")).json()["paths"]
    for method, path in WHY_ALONE:
        described = paths[path][method.lower()]["requestBody"]
        schema = described["content"]["application/json"]["schema"]
        assert (described["required"], schema) == (False, {"$ref": "#/components/schemas/ReasonBody"}), (method, path)


async def test_a_token_is_revoked_for_a_reason_that_its_body_gives(api: Api) -> None:
    made = (await api.client.request("POST", "/v1/tokens", json={"name": "ci", "role": "viewer"})).json()
    path = f"/v1/tokens/{made['id']}"
    refused = await api.client.request("DELETE", path, json={"bogus": 1})
    assert refused.status_code == 422, refused.text
    assert (await api.client.request("DELETE", path, json={"reason": "leaked"})).status_code == 204
    [*_, (_, asked)] = api.commands
    assert (asked.command, asked.reason) == ("revoke-token", "leaked")
