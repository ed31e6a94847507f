"""Who may call: a role for every call that is served, and tokens that are made, listed and revoked."""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import Api, serving
from tests.api.pairs import paired
from tests.contracts.memory_store import MemoryTokens

from batonpass.api.access import Gate, check, check_local
from batonpass.api.app import ROUTERS, served
from batonpass.api.calls import ADMIN, ROLES, Calls
from batonpass.core.state.ids import GroupId
from batonpass.runtime.access import AccessRole, Forbidden, Principal, StoredToken
from batonpass.runtime.history import NOBODY_ASKED, Asked

ADMIN_SECRET = "an-admin-secret-of-enough-length"  # noqa: S105 - the token that these tests make
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


def test_every_call_that_is_served_has_its_roles() -> None:
    """A route without roles would be for admins alone."""
    assert [call for call in served(ROUTERS) if call not in ROLES] == []
    forgotten = Calls([("GET", "/v1/new")]).at(["", "v1", "new"])["GET"]
    assert forgotten.roles == ADMIN


async def test_every_call_of_the_document_has_its_roles(api: Api) -> None:
    paths = (await api.client.get("/openapi.json")).json()["paths"]
    described = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    assert described | {("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/docs/{file}")} == set(ROLES)
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert set(operation["x-roles"]) == ROLES[method.upper(), path]


def test_the_table_in_the_security_page_is_the_one_that_is_checked() -> None:
    found = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    shown = {(method, path): roles for method, path, roles in found}
    assert shown == {call: in_words(roles) for call, roles in ROLES.items()}


def in_words(roles: frozenset[AccessRole]) -> str:
    """Return roles as the document writes them: without the admin, who may do everything."""
    others = [role.value for role in AccessRole if role in roles and role is not AccessRole.ADMIN]
    return ", ".join(others) or "admin"


@pytest.mark.parametrize("role", list(AccessRole))
def test_a_role_may_do_what_the_table_says_and_nothing_else(role: AccessRole) -> None:
    """Protocol 1.7."""
    calls = Calls()
    for (method, path), roles in ROLES.items():
        parts = path.replace("{group}", "orders").replace("{number}", "1").split("/")
        call = calls.at(parts)[method]
        assert (call.method, call.path) == (method, path)
        group = "orders" if call.on_group else None
        tells_of_no_group = not path.startswith("/v1/") and path != "/metrics"  # Metrics name all of them.
        for own, may in (
            (None, role in roles),
            ("orders", role in roles and (call.on_group or tells_of_no_group)),
            ("clicks", role in roles and tells_of_no_group),
        ):
            assert is_let_in(Principal("x", role, None if own is None else GroupId(own)), call, group) == may


def is_let_in(principal: Principal, call: Any, group: str | None) -> bool:
    """Say whether a caller passes the check."""
    try:
        check(principal, call, group)
    except Exception:  # noqa: BLE001 - any refusal is one
        return False
    return True


class Guarded:
    """A served coordinator that asks for tokens."""

    def __init__(self, api: Api, tokens: Any) -> None:
        self.api = api
        self.tokens = tokens

    async def call(self, method: str, path: str, secret: str | None = None, **options: Any) -> Any:
        """Make a call under a token."""
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        return await self.api.client.request(method, path, headers=headers | options.pop("headers", {}), **options)

    async def secret(self, role: str, group: str | None = None) -> str:
        """Return the secret of a new token."""
        wish = Principal(f"a-{role}", AccessRole(role), None if group is None else GroupId(group))
        secret: str = (await self.tokens.create(wish, NOBODY_ASKED))[1]
        return secret


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """Serve a coordinator that asks for tokens."""
    tokens = MemoryTokens(lambda: 1_800_000_000_000)
    gate = Gate(tokens, cache_s=0.0, now_ms=lambda: 1_800_000_000_000, admin_secret=ADMIN_SECRET)
    opened = frozenset(("/livez", "/readyz", "/metrics"))
    async with serving(gate=gate, tokens=tokens, open_paths=opened) as api:
        yield Guarded(api, tokens)


DECLARATION = {
    "topology": {"subtopologies": [{"id": "0", "partitions": 1, "changelog_topics": ["s"]}]},
    "config": {"initial_rebalance_delay_ms": 0},
}


async def test_without_a_token_only_what_is_open_is_answered(guarded: Guarded) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await guarded.call("GET", path)).status_code == 200
    for method, path in (
        ("GET", "/v1/groups"),
        ("POST", "/v1/groups/orders/members/m1/heartbeat"),
        ("GET", "/v1/groups/orders/members/m1/assignment?after=0"),
        ("GET", "/nonsense"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("POST", "/v1/tokens"),
    ):
        answer = await guarded.call(method, path)
        assert (answer.status_code, answer.json()["type"], answer.json()["action"]) == (401, "unauthenticated", "fix")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await guarded.call("GET", "/docs", ADMIN_SECRET)).status_code == 200


async def test_what_is_open_is_open_to_every_token(guarded: Guarded) -> None:
    """Also to one that is bound to a group, and was seen a moment ago."""
    gate: Any = guarded.api.policy.gate
    gate._cache_s = 60
    bound = await guarded.secret("worker", "orders")
    assert (await guarded.call("GET", "/v1/groups/orders", bound)).status_code == 404
    for path in ("/livez", "/readyz", "/metrics"):
        assert [(await guarded.call("GET", path, token)).status_code for token in (bound, "unknown")] == [200, 200]


async def test_a_worker_speaks_for_its_own_group_alone(guarded: Guarded) -> None:
    """Protocol 1.7."""
    mine, base = await guarded.secret("worker", "orders"), "/v1/groups/orders"
    assert (await guarded.call("PUT", base, mine, json=DECLARATION)).status_code == 201
    joined = await guarded.call("PUT", f"{base}/members/m1", mine, json={})
    assert joined.status_code == 201
    beat = {"seq": 1, "member_epoch": joined.json()["member_epoch"]}
    assert (await guarded.call("POST", f"{base}/members/m1/heartbeat", mine, json=beat)).status_code == 200
    poll = await guarded.call("GET", f"{base}/members/m1/assignment?after={beat['member_epoch']}&wait_ms=0", mine)
    assert poll.status_code == 204
    for method, path in (
        ("PUT", "/v1/groups/clicks"),
        ("PUT", "/v1/groups/clicks/members/m1"),
        ("POST", "/v1/groups/clicks/members/m1/heartbeat"),
        ("GET", "/v1/groups/clicks/members/m1/assignment?after=0"),
        ("POST", f"{base}/pause"),
        ("POST", f"{base}/members/m1/evict"),
        ("GET", "/v1/groups"),
        ("GET", "/v1/tokens"),
    ):
        answer = await guarded.call(method, path, mine)
        assert (answer.status_code, answer.json()["type"]) == (403, "forbidden"), path
    assert (await guarded.call("DELETE", f"{base}/members/m1", mine)).status_code == 204


async def test_a_viewer_looks_and_an_operator_acts(guarded: Guarded) -> None:
    viewer, operator = await guarded.secret("viewer"), await guarded.secret("operator")
    assert (await guarded.call("PUT", "/v1/groups/orders", operator, json=DECLARATION)).status_code == 201
    for secret, pauses in ((viewer, 403), (operator, 204)):
        assert (await guarded.call("GET", "/v1/groups/orders", secret)).status_code == 200
        assert (await guarded.call("POST", "/v1/groups/orders/pause", secret)).status_code == pauses
        assert (await guarded.call("GET", "/v1/tokens", secret)).status_code == 403
    assert (await guarded.call("GET", "/nonsense", viewer)).status_code == 404
    assert (await guarded.call("PATCH", "/v1/groups", viewer)).status_code == 405


async def test_who_asked_is_the_name_of_the_token(guarded: Guarded) -> None:
    operator = await guarded.secret("operator")
    await guarded.call("PUT", "/v1/groups/orders", operator, json=DECLARATION, headers={"x-request-id": "deploy-7"})
    assert guarded.api.commands[-1] == ("orders", Asked("a-operator", "", "deploy-7", "declare"))


async def test_tokens_are_made_listed_and_revoked(guarded: Guarded) -> None:
    wish = {"name": "ci", "role": "operator", "expires_in_ms": 60_000, "reason": "deploys"}
    made = await guarded.call("POST", "/v1/tokens", ADMIN_SECRET, json=wish)
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    secret = made.json()["secret"]
    assert (made.json()["last_four"], made.json()["expires_at"]) == (secret[-4:], "2027-01-15T08:01:00.000Z")
    assert guarded.api.commands[-1][1][:2] == ("admin", "deploys")
    assert (await guarded.call("GET", "/v1/groups", secret)).status_code == 200
    listed = await guarded.call("GET", "/v1/tokens", ADMIN_SECRET)
    assert secret not in listed.text
    assert [(one["name"], one["role"], one["status"]) for one in listed.json()["tokens"]] == [
        ("ci", "operator", "valid")
    ]
    path = f"/v1/tokens/{made.json()['id']}?reason=gone"
    for _ in range(2):
        assert (await guarded.call("DELETE", path, ADMIN_SECRET)).status_code == 204
    assert guarded.api.commands[-1][1] == guarded.api.commands[-2][1]._replace(cause=guarded.api.commands[-1][1].cause)
    assert (await guarded.call("GET", "/v1/groups", secret)).status_code == 401
    listed = await guarded.call("GET", "/v1/tokens", ADMIN_SECRET)
    assert [one["status"] for one in listed.json()["tokens"]] == ["revoked"]
    unknown = await guarded.call("DELETE", "/v1/tokens/no-such", ADMIN_SECRET)
    assert (unknown.status_code, unknown.json()["type"]) == (404, "not-found")


@pytest.mark.parametrize(
    ("wish", "fault"),
    [
        ({"name": "x", "role": "worker"}, "group"),
        ({"name": "x", "role": "admin", "group": "orders"}, "group"),
        ({"name": "x", "role": "emperor"}, "role"),
        ({"role": "viewer"}, "name"),
        ({"name": "", "role": "viewer"}, "name"),
        ({"name": "x", "role": "viewer", "expires_in_ms": 0}, "expires_in_ms"),
        ({"name": "x", "role": "viewer", "colour": "red"}, "colour"),
    ],
)
async def test_a_token_that_makes_no_sense_is_not_made(guarded: Guarded, wish: dict[str, Any], fault: str) -> None:
    answer = await guarded.call("POST", "/v1/tokens", ADMIN_SECRET, json=wish)
    assert (answer.status_code, [one["path"] for one in answer.json()["errors"]]) == (422, [fault])
    assert (await guarded.call("GET", "/v1/tokens", ADMIN_SECRET)).json() == {"tokens": []}


async def test_an_expired_token_says_so_in_the_list() -> None:
    async with serving() as api:
        stored: Sequence[StoredToken] = ()
        await api.client.post("/v1/tokens", json={"name": "x", "role": "viewer", "expires_in_ms": 1_000})
        api.clock.at_ms += 1_000
        stored = (await api.client.get("/v1/tokens")).json()["tokens"]
    assert [one["status"] for one in stored] == ["expired"]  # type: ignore[index]


async def test_refusals_at_the_door_are_counted_and_told(guarded: Guarded) -> None:
    await guarded.call("GET", "/v1/groups")
    viewer = await guarded.secret("viewer")
    await guarded.call("POST", "/v1/groups/orders/pause", viewer, headers={"x-request-id": "c-1"})
    recorded = guarded.api.recorded
    assert recorded.refusals == ["unauthenticated", "forbidden"]
    assert recorded.lines[0][:3] == ("unauthenticated", "GET /v1/groups", "127.0.0.1")
    assert recorded.lines[1] == ("forbidden", "POST /v1/groups/{group}/pause", "a-viewer", "c-1")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:18500"}, 403),
        ({"host": "192.168.0.7:18500"}, 403),
        ({"host": ""}, 403),
        ({"host": "[::1"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "localhost:18500", "origin": "http://localhost:18501"}, 201),
        ({"host": "LOCALHOST"}, 201),
        ({"host": "127.0.0.1:18500"}, 201),
        ({"host": "[::1]:18500", "origin": "https://127.0.0.1"}, 201),
    ],
)
async def test_without_tokens_only_this_machine_is_served(api: Api, headers: dict[str, str], status: int) -> None:
    """A web page in a user's browser can send requests here, from a host name that resolves to this machine."""
    answer = await api.client.post("/v1/tokens", json={"name": "mine", "role": "admin"}, headers=headers)
    assert (answer.status_code, (await api.client.get("/livez", headers=headers)).status_code == 403) == (
        status,
        status == 403,
    )
    assert status == 201 or "BATONPASS_AUTH=off" in answer.json()["detail"]


@pytest.mark.parametrize(("peer", "is_local"), [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
                                                ("10.0.0.7", False), ("", False)])  # fmt: skip
def test_without_tokens_a_header_makes_nobody_local(peer: str, *, is_local: bool) -> None:
    """A caller from elsewhere can write `Host: localhost` too."""
    headers = {b"host": b"localhost"}
    if is_local:
        check_local(headers, peer)
    else:
        with pytest.raises(Forbidden, match="only this machine"):
            check_local(headers, peer)


async def test_an_address_that_a_caller_makes_up_is_no_other_caller() -> None:
    """Only a coordinator that passes a call on, with its caller's token, says from where that comes."""
    async with paired(operator_requests_per_s=0.1, operator_requests_burst=3) as pair:
        headers = ({"batonpass-forwarded-for": f"10.0.0.{number}"} for number in range(6))
        answers = [await pair.client.get(f"{pair.urls[0]}/metrics", headers=one) for one in headers]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429, 429]
