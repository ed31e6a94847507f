"""Who may look, who may command, and what becomes of tokens."""

import asyncio
import logging
import re
from html import unescape
from typing import Any

import httpx2 as httpx
import pytest
from tests.dashboard.canned import ADMIN, VIEWER, Canned
from tests.dashboard.fleet import Fleet
from tests.dashboard.test_pages import visitor
from tests.waiting import until

from batonpass.client import CoordinatorClient
from batonpass.dashboard import shared_client
from batonpass.dashboard.commands import COMMANDS, request_of
from batonpass.dashboard.sessions import IDLE_S, Session, Sessions
from batonpass.dashboard.shared_client import SharedClient

DRAIN = "/groups/fleet/do/drain?member=worker-1"


@pytest.fixture
def canned() -> Canned:
    """A coordinator with a small group."""
    return Canned(Fleet.of(8, 40))


def dashboard_of(client: httpx.AsyncClient) -> Any:
    """Return the dashboard that a client asks."""
    return client._transport.app.state.dashboard  # type: ignore[attr-defined]


async def stamp(client: httpx.AsyncClient, address: str = DRAIN) -> str:
    """Return what the form of a command carries."""
    found = re.search(r'name="stamp" value="([^"]+)"', (await client.get(address)).text)
    assert found is not None
    return found[1]


async def test_without_a_token_every_page_leads_to_the_form(canned: Canned) -> None:
    client = await visitor(canned, None)
    answer = await client.get("/groups/fleet/members?q=a")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fgroups%2Ffleet%2Fmembers%3Fq%3Da")
    assert (await client.get("/groups/fleet", headers={"x-part": "1"})).status_code == 401
    assert (await client.get("/live")).status_code == 401
    assert (await client.get("/livez")).text == "ok\n"
    back = await client.post("/login", data={"token": ADMIN, "next": "/groups/fleet/members?q=a"})
    assert back.headers["location"] == "/groups/fleet/members?q=a"
    await client.aclose()


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
async def test_signing_in_leads_to_pages_of_the_dashboard_only(canned: Canned, wanted: str) -> None:
    """An address that another site made up does not lead elsewhere."""
    client = await visitor(canned, None)
    assert (await client.post("/login", data={"token": ADMIN, "next": wanted})).headers["location"] == "/"
    await client.aclose()


async def test_a_wrong_token_is_refused(canned: Canned) -> None:
    client = await visitor(canned, None)
    answer = await client.post("/login", data={"token": "guess"})
    assert answer.status_code == 401
    assert "the token is unknown, revoked or expired" in answer.text
    assert "guess" not in answer.text
    assert (await client.post("/login", data={"token": "a\r\nhost: b"})).status_code == 401
    assert not client.cookies
    await client.aclose()


async def test_the_browser_never_holds_the_token(canned: Canned, caplog: pytest.LogCaptureFixture) -> None:
    """The cookie is a random name that scripts cannot read."""
    caplog.set_level(logging.DEBUG)
    client = await visitor(canned, None)
    answer = await client.post("/login", data={"token": ADMIN})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert ADMIN not in cookie + answer.headers["location"]
    for address in ("/", "/groups/fleet", DRAIN):
        assert ADMIN not in (await client.get(address)).text
    assert ADMIN not in caplog.text
    await client.aclose()


async def test_over_https_the_cookie_never_travels_in_clear(canned: Canned) -> None:
    """The HTTPS is served by an ingress."""
    client = await visitor(canned, None, is_secure=True)
    assert "Secure" in (await client.post("/login", data={"token": ADMIN})).headers["set-cookie"]
    await client.aclose()


async def test_a_command_needs_a_reason_and_goes_out_under_the_visitors_token(canned: Canned) -> None:
    client = await visitor(canned)
    form = {"stamp": await stamp(client)}
    refused = await client.post(DRAIN, data=form)
    assert (refused.status_code, canned.calls("POST")) == (422, [])
    done = await client.post(DRAIN, data=form | {"reason": "node upgrade", "deadline": "2"})
    assert (done.status_code, done.headers["location"]) == (303, "/groups/fleet/members/worker-1")
    (called,) = canned.calls("POST")
    assert called == ("/groups/fleet/members/worker-1/drain", "reason=node+upgrade&deadline_ms=120000")
    shown = (await client.get("/groups/fleet/members/worker-1")).text
    assert "The member drains." in shown
    assert "The member drains." not in (await client.get("/groups/fleet/members/worker-1")).text
    await client.aclose()


async def test_a_command_that_nobody_takes_says_what_to_do_and_keeps_what_was_typed(canned: Canned) -> None:
    pause = "/groups/fleet/do/pause"
    client = await visitor(canned)
    form = {"stamp": await stamp(client, pause), "reason": "a kernel upgrade"}
    canned.is_away = True
    answer = await client.post(pause, data=form)
    await client.aclose()
    assert answer.status_code == 503
    for words in ("No coordinator answers at ", "Workers go on with what they have.", "a kernel upgrade"):
        assert words in answer.text


async def test_a_form_of_somebody_else_is_refused(canned: Canned) -> None:
    """Without the session's own stamp, or from another site (CSRF)."""
    client = await visitor(canned)
    good = {"stamp": await stamp(client), "reason": "x"}
    cross = {"sec-fetch-site": "cross-site"}
    assert (await client.post(DRAIN, data={"reason": "x"})).status_code == 403
    assert (await client.post(DRAIN, data=good | {"stamp": "x"})).status_code == 403
    assert (await client.post(DRAIN, data=good, headers=cross)).status_code == 403
    assert (await client.post("/login", data={"token": VIEWER}, headers=cross)).status_code == 403
    assert canned.calls("POST") == []
    refused = await client.post("/logout", data=good, headers=cross)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    assert await stamp(client) == good["stamp"], "the session goes on"
    await client.aclose()


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://localhost:1", "https://localhost.evil.example", "null", "http://["]
)
async def test_a_form_of_another_origin_is_refused_where_a_browser_names_no_site(canned: Canned, origin: str) -> None:
    """Over plain HTTP browsers send `Sec-Fetch-Site` to localhost alone."""
    client = await visitor(canned)
    form, headers = {"stamp": await stamp(client), "reason": "x"}, {"origin": origin}
    for address, data in ((DRAIN, form), ("/login", {"token": VIEWER}), ("/logout", {})):
        refused = await client.post(address, data=data, headers=headers)
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False), address
        assert all(said in unescape(refused.text) for said in (repr(origin), "'localhost'", "--allowed-hosts")), address
    assert canned.calls("POST") == []
    assert (await client.post(DRAIN, data=form, headers={"origin": "http://localhost"})).status_code == 303
    await client.aclose()


async def test_an_ingress_that_writes_another_host_hides_no_origin(canned: Canned) -> None:
    client = await visitor(canned, None, allowed_hosts=frozenset({"batonpass.example.com", "dashboard.svc"}))
    data, host = {"token": VIEWER}, {"host": "dashboard.svc:8421"}
    for origin, status in (("https://batonpass.example.com", 303), ("https://evil.example", 403)):
        assert (await client.post("/login", data=data, headers=host | {"origin": origin})).status_code == status
    await client.aclose()


async def test_an_ingress_that_hides_where_links_come_from_lets_everybody_sign_in(canned: Canned) -> None:
    """A page whose `Referrer-Policy` is overwritten by `no-referrer` sends its forms with `Origin: null`."""
    client = await visitor(canned, None)
    for site, status in (("same-origin", 303), ("same-site", 403), ("cross-site", 403), ("none", 403)):
        headers = {"origin": "null", "sec-fetch-site": site}
        assert (await client.post("/login", data={"token": VIEWER}, headers=headers)).status_code == status, site
    await client.aclose()


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("localhost", True),
        ("LocalHost:8421", True),
        ("127.0.0.1:8421", True),
        ("[::1]:8421", True),
        ("192.168.1.7:8421", True),
        ("batonpass.example.com", True),
        ("Batonpass.Example.com.:443", True),
        ("evil.example:8421", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("batonpass.example.com.evil.example", False),
        ("evil.example@localhost.evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
async def test_only_names_of_the_dashboard_are_served(canned: Canned, host: str, is_served: bool) -> None:  # noqa: FBT001
    """A page whose name leads here for a moment (DNS rebinding) reads nothing, and signs in nowhere."""
    client = await visitor(canned, None, shared=ADMIN, allowed_hosts=frozenset({"batonpass.example.com"}))
    headers = {"host": host}
    assert ((await client.get("/", headers=headers)).status_code == 200) is is_served
    entered = await client.post("/login", data={"token": ADMIN}, headers=headers | {"origin": f"http://{host}"})
    assert (entered.status_code, "set-cookie" in entered.headers) == ((303, True) if is_served else (403, False))
    if not is_served:
        assert "--allowed-hosts" in entered.text
        assert "evil" not in entered.text or host in entered.text
    assert (await client.get("/livez", headers=headers)).text == "ok\n"
    await client.aclose()


@pytest.mark.parametrize("seen", ["²", "9" * 5_000, "-1", "1.5", ""])
async def test_a_place_in_the_stream_that_is_none_is_the_beginning(canned: Canned, seen: str) -> None:
    """A browser sends back what it was given; whatever else comes does no harm."""
    client = await visitor(canned)
    dashboard_of(client).closing.set()  # so that the stream ends
    answer = await client.get("/live?group=orders", headers={b"last-event-id": seen.encode()})
    assert (answer.status_code, answer.text.startswith("retry:")) == (200, True)
    await client.aclose()


async def test_a_viewer_sees_and_commands_nothing(canned: Canned) -> None:
    client = await visitor(canned, VIEWER)
    page = (await client.get("/groups/fleet/members/worker-1")).text
    assert "Your token may look and not command" in page
    assert "/do/drain" not in page
    answer_text = (await client.get(DRAIN)).text
    assert "<form method" not in answer_text.partition("<main")[2]
    (session,) = dashboard_of(client).sessions._kept.values()
    form = {"stamp": session.stamp, "reason": "x"}
    assert (await client.post(DRAIN, data=form)).status_code == 403
    assert canned.calls("POST") == []
    await client.aclose()


async def test_a_shared_token_lets_look_and_never_command(canned: Canned) -> None:
    """Even where the dashboard's own token could command."""
    client = await visitor(canned, None, shared=ADMIN)
    for _ in range(3):
        looked = await client.get("/groups/fleet")
        assert (looked.status_code, "set-cookie" in looked.headers) == (200, False)
        assert "Nobody is signed in" in looked.text
        assert 'href="/login"' in looked.text
    assert len(dashboard_of(client).sessions) == 0
    form = {"stamp": dashboard_of(client).onlooker.stamp, "reason": "x"}
    for stamp_ in (form, form | {"stamp": "x"}):
        assert (await client.post("/groups/fleet/do/probe", data=stamp_)).status_code == 403
    assert canned.calls("POST") == []
    assert (await client.get("/login")).status_code == 200
    await client.post("/login", data={"token": ADMIN})
    assert "/do/pause" in (await client.get("/groups/fleet")).text
    await client.post("/logout")
    assert "Nobody is signed in" in (await client.get("/groups/fleet")).text
    await client.aclose()


async def test_a_shared_token_that_is_of_no_use_is_named_and_nobody_is_sent_around(canned: Canned) -> None:
    client = await visitor(canned, None, shared="revoked")
    answer = await client.get("/groups/fleet")
    assert answer.status_code == 401
    assert "own token is of no use" in answer.text
    assert 'href="/login"' in answer.text
    part = await client.get("/groups/fleet", headers={"x-part": "1"})
    assert (part.status_code, "own token" in part.json()["said"]) == (401, True)
    await client.post("/login", data={"token": ADMIN})
    assert (await client.get("/groups/fleet")).status_code == 200
    await client.aclose()


async def test_so_many_pages_of_one_token_are_live_and_the_others_ask(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a connection of those that all share."""
    monkeypatch.setattr(shared_client, "LISTENERS_MAX", 2)
    client = await visitor(canned)
    listeners = next(iter(dashboard_of(client).sessions.clients())).events._listeners
    opened = [asyncio.create_task(client.get("/live?group=fleet")) for _ in range(2)]
    await until(lambda: len(listeners) == 2)
    assert (await asyncio.wait_for(client.get("/live?group=fleet"), 5)).status_code == 429
    assert (await client.get("/groups/fleet")).status_code == 200
    await client.post("/login", data={"token": VIEWER})
    other = asyncio.create_task(client.get("/live?group=fleet"))
    clients = dashboard_of(client).sessions.clients
    await until(lambda: any(one.events._listeners for one in clients()))
    dashboard_of(client).closing.set()
    assert [one.status_code for one in await asyncio.gather(*opened, other)] == [200, 200, 200]
    await client.aclose()


async def test_signing_out_forgets_the_token_and_ends_what_goes_on(canned: Canned) -> None:
    """The session is gone on the server as well, whatever the browser keeps or sends."""
    client = await visitor(canned)
    ((name, kept),) = client.cookies.items()
    live = asyncio.create_task(client.get("/live?group=fleet"))
    listeners = next(iter(dashboard_of(client).sessions.clients())).events._listeners
    await until(lambda: len(listeners) == 1)
    await client.post("/logout")
    assert (await asyncio.wait_for(live, 5)).status_code == 200
    assert not listeners
    client.cookies.set(name, kept)
    assert (await client.get("/")).status_code == 303
    assert (await client.get("/live")).status_code == 401
    await client.aclose()


async def test_the_stream_of_a_page_may_be_asked_for_without_its_body(canned: Canned) -> None:
    """As probes do; such an answer has an end."""
    found = await asyncio.wait_for((await visitor(canned)).head("/live"), 30)
    assert (found.status_code, found.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_a_token_that_was_revoked_ends_the_session(canned: Canned) -> None:
    client = await visitor(canned)
    dashboard = dashboard_of(client)
    session = next(iter(dashboard.sessions._kept.values()))
    session.client = SharedClient(dashboard.client, "revoked")
    assert (await client.get("/groups/fleet")).headers["location"] == "/login?next=%2Fgroups%2Ffleet"
    assert len(dashboard.sessions) == 0
    await client.aclose()


def test_sessions_end_by_themselves() -> None:
    """After twelve idle hours; and beyond the most, the one that was idle longest makes room."""
    now = [0.0]
    sessions = Sessions(lambda: now[0], most=3)

    def begin() -> str:
        now[0] += 1
        return sessions.begin(Session(None, may_command=True))  # type: ignore[arg-type]

    name = begin()
    now[0] += IDLE_S
    assert sessions.find(name) is not None
    now[0] += IDLE_S + 1
    assert sessions.find(name) is None
    first, second = begin(), begin()
    begin()
    sessions.find(first)
    begin()
    assert (len(sessions), sessions.find(second)) == (3, None)
    assert sessions.find(first) is not None
    now[0] += IDLE_S + 100
    begin()
    assert len(sessions) == 1


def test_who_signs_in_again_and_again_ends_no_session_of_others() -> None:
    sessions = Sessions(most=5)
    client = CoordinatorClient("http://coordinator.example:8420")
    one, other = SharedClient(client, "one"), SharedClient(client, "other")
    first, second = (sessions.begin(Session(one, may_command=True)) for _ in range(2))
    many = [sessions.begin(Session(other, may_command=False)) for _ in range(20)]
    assert len(sessions) == 5
    assert None not in map(sessions.find, (first, second, *many[-3:]))


@pytest.mark.parametrize(
    ("name", "given", "query", "body"),
    [
        ("pause", {"scope": "all"}, {}, {"scope": "all"}),
        ("pause", {}, {}, {"scope": "balance"}),
        ("pause", {"for": "30"}, {}, {"scope": "balance", "for_ms": 1_800_000}),
        ("drain", {"deadline": "0.5"}, {"deadline_ms": 30_000}, None),
        ("drain", {"deadline": ""}, {}, None),
        ("evict", {"dead": "yes"}, {"dead": "true"}, None),
        ("evict", {}, {}, None),
        ("evict", {"until-undone": "yes", "kept-out-for": ""}, {"until_undone": "true"}, None),
        ("drain", {"until-undone": "yes", "kept-out-for": "2"}, {"until_undone": "true", "for_ms": 120_000}, None),
        ("drain", {"kept-out-for": "2"}, {}, None),
        ("pin", {"member": "m1"}, {}, {"member": "m1"}),
        ("probe", {}, {}, None),
    ],
)
def test_forms_become_calls_of_the_protocol(
    name: str, given: dict[str, str], query: dict[str, object], body: dict[str, object] | None
) -> None:
    """What is left empty is not sent; no member is vouched for as dead by accident."""
    assert request_of(name, given) == (query, body)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pause", {"for": "soon"}),
        ("drain", {"deadline": "-1"}),
        ("evict", {"until-undone": "yes", "kept-out-for": "long"}),
        ("pin", {}),
    ],
)
def test_fields_that_mean_nothing_are_refused(name: str, given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"as in 30|Choose the member"):
        request_of(name, given)


async def test_every_command_has_a_form(canned: Canned) -> None:
    client = await visitor(canned)
    subjects = {"group": "", "member": "?member=worker-1", "task": "?task=orders_0"}
    for name, command in COMMANDS.items():
        page = await client.get(f"/groups/fleet/do/{name}{subjects[command.subject]}")
        assert page.status_code == 200
        assert 'name="reason" required' in page.text
    for address in ("/groups/fleet/do/nonsense", "/groups/fleet/do/drain"):
        assert (await client.get(address)).status_code == 404
    await client.aclose()
