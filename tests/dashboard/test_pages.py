"""The pages as they are served: what they show, to whom, and what they never do."""

import html
import json
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import pytest
from tests.dashboard import canned as canned_module
from tests.dashboard.canned import ADMIN, VIEWER, Canned
from tests.dashboard.fleet import AUDIT, Fleet, at, event

from batonpass.dashboard import shared_client
from batonpass.dashboard.app import make_app
from batonpass.dashboard.config import Config
from batonpass.dashboard.pages import PAGES
from batonpass.dashboard.view_models.members import COLUMNS, REPORTED, filled

STATIC = Path(__file__).parents[2] / "service" / "batonpass" / "dashboard" / "static"
HOSTILE = "<img-src=x-onerror=alert(1)>&\"'"
COORDINATOR = "http://coordinator.example:8420"


class Seen(HTMLParser):
    """What a page loads and links to, and what of it a browser would run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.tags: list[str] = []
        self._is_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        self.tags.append(tag)
        self._is_script = tag == "script"
        for name, value in attrs:
            if name in {"href", "src", "action", "poster", "formaction"}:
                self.addresses.append(value or "")
            if name.startswith("on") or name == "style":
                self.inline.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        """Take note of text, which in a script would be one of the page's own."""
        if self._is_script and data.strip():
            self.inline.append(data)


async def visitor(
    canned: Canned, token: str | None = ADMIN, *, shared: str | None = None, **settings: Any
) -> httpx.AsyncClient:
    """Return somebody with a browser, signed in unless there is no token; ``shared`` is the dashboard's own one."""
    app = make_app(Config(COORDINATOR, token=shared, **settings), transport=canned.transport())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    if token is not None:
        answer = await client.post("/login", data={"token": token})
        assert answer.status_code == 303, answer.text
    return client


@pytest.fixture
async def operator(canned: Canned) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has signed in and may command."""
    client = await visitor(canned)
    yield client
    await client.aclose()


def addresses(fleet: Fleet) -> list[str]:
    """Return an address of every page."""
    names = {
        "group": fleet.group,
        "member": fleet.members[0]["member_id"],
        "task": fleet.tasks[0],
        "number": "3",
        "runbook": "storm",
    }
    found = [place.format(**names, day=AUDIT["day"]) for place in PAGES if not place.endswith("/find")]
    more = ["grid?part=orders&begin=0", "plan?join=1", "timeline?span=2 h", "do/pause", "do/drain?member=worker-1"]
    return found + [f"/groups/{fleet.group}/{one}" for one in more]


async def test_every_page_is_rendered_whole_and_says_nothing_of_none(
    canned: Canned, operator: httpx.AsyncClient
) -> None:
    for address in addresses(canned.fleet):
        answer = await operator.get(address)
        assert answer.status_code == 200, address
        assert "<title>" in answer.text
        assert "</html>" in answer.text
        assert ">None<" not in answer.text, address


async def test_every_page_counts_by_the_clock_of_the_coordinators(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine's may be hours off, and then the newest half hour has nothing of what was asked for."""
    health = canned.fleet.health() | {"at": at()}
    monkeypatch.setattr(canned.fleet, "health", lambda: health)
    await operator.get("/")
    canned.asked.clear()
    for address in addresses(canned.fleet):
        found = (await operator.get(address)).text
        assert {told[:16] for told in re.findall('data-now="([^"]*)"', found)} <= {at()[:16]}, address
        assert not re.search(r">(in )?\d+ (d|h)[^<]*</time>", found), address
    asked = {query for _, path, query in canned.asked if path.endswith("/lags")}
    assert asked
    assert all(f"until={quote(at(60)[:16])}" in query for query in asked)


async def test_an_instant_of_an_address_may_be_any(operator: httpx.AsyncClient) -> None:
    for until in ("", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        for place in ("", "/timeline", "/gaps"):
            for span in ({"span": "2 h"}, {}):
                found = await operator.get(f"/groups/fleet{place}", params={"until": until} | span)
                assert found.status_code == 200


@pytest.mark.parametrize("place", ["", "/grid", "/members", "/warmups", "/timeline"])
async def test_an_answer_that_is_none_of_a_coordinators_is_said_with_its_place(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    group, members = canned.fleet.group_get() | {"topology": 5}, [one | {"reports": 5} for one in canned.fleet.members]
    monkeypatch.setattr(canned.fleet, "group_get", lambda: group)
    monkeypatch.setattr(canned.fleet, "members", members)
    found = await operator.get(f"/groups/fleet{place}")
    assert found.status_code == 502
    assert "in words that are not a coordinator&#39;s" in found.text
    assert re.search(r"(topology|members\[0\].reports) in the answer to GET /groups/fleet", found.text)


async def test_more_warmups_than_slots_are_explained(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While what was begun for a drain goes on, no page says that four of two slots are taken."""
    within = (await operator.get("/groups/fleet/warmups")).text
    assert "warmup slots taken" in within
    assert "More warm up" not in within
    explanation = canned.fleet.explain()
    explanation["budgets"]["warmups"] = {"used": 4, "limit": 2}
    monkeypatch.setattr(canned.fleet, "explain", lambda: explanation)
    other = await visitor(canned)
    for address in ("/groups/fleet/warmups", "/groups/fleet"):
        text = re.sub(r"<[^>]+>|\s+", " ", (await other.get(address)).text)
        assert not re.search(r"4 (/|of) 2", text), address
    beyond = (await other.get("/groups/fleet/warmups")).text
    assert "copies warm up, where there are 2 slots" in beyond
    assert "More warm up than there are slots" in beyond
    await other.aclose()


async def test_what_is_too_hot_is_on_the_page_of_the_group_and_what_would_move_for_it_in_a_plan(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(page: httpx.Response) -> str:
        return re.sub(r"<[^>]+>|\s+", " ", page.text)

    assert "above average" not in words(await operator.get("/groups/fleet"))
    assert "measured load" not in words(await operator.get("/groups/fleet/plan"))
    first, second = (one["member_id"] for one in canned.fleet.members[:2])
    load = {"imbalance": 0.4, "hot_since": at(-600), "members_needed": 2.5, "hottest_task": "orders_1"}
    explanation = canned.fleet.explain() | {"load": load | {"hottest_share": 0.6}}
    plan = canned.fleet.plan() | {"for_load": [{"task": "orders_2", "from": first, "to": second}]}
    group = canned.fleet.group_get()
    shadow = group | {"config": group["config"] | {"balance_by": "shadow"}}
    for name, body in {"explain": explanation, "plan": plan, "group_get": shadow}.items():
        monkeypatch.setattr(canned.fleet, name, lambda body=body: body)
    other = await visitor(canned)
    page = words(await other.get("/groups/fleet"))
    assert re.search(r"40 % +hottest member above average", page)
    assert re.search(r"orders_1 +hottest task: 60 % of a member", page)
    assert "Nothing but measured load" in words(await other.get("/groups/fleet/plan"))
    page = words(await other.get("/groups/fleet/plan?load=1"))
    assert "in shadow nothing moves for it" in page
    assert re.search(rf"orders_2 +{first} +{second}", page)
    await other.aclose()


def test_whatever_has_a_style_is_on_a_page() -> None:
    """A class that is called otherwise in a template than in the style would look like nothing."""
    rules = re.sub(r"\{[^}]*\}", "", (STATIC / "style.css").read_text())
    pages = "".join(file.read_text() for file in STATIC.parent.rglob("*") if file.suffix in {".html", ".js", ".py"})
    for name in set(re.findall(r"\.([a-z][\w-]*)", rules)):
        # Of a family of them, as `at-12`, a page fills in the rest.
        family = name.partition("-")[0] + "-{"
        assert family in pages or re.search(rf"(?<![\w-]){name}(?![\w-])", pages), name


async def test_no_page_loads_or_runs_anything_from_elsewhere(canned: Canned, operator: httpx.AsyncClient) -> None:
    for address in [*addresses(canned.fleet), "/login"]:
        seen = Seen((await operator.get(address)).text)
        assert [one for one in seen.addresses if not re.match(r"[/#?]", one) and one] == [], address
        assert [one for one in seen.addresses if one.startswith("//")] == []
        assert seen.inline == [], address
    for file in STATIC.iterdir():
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", file.read_text()) == [], file.name


async def test_a_browser_is_told_to_load_nothing_from_elsewhere(operator: httpx.AsyncClient) -> None:
    answer = await operator.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_names_are_shown_as_they_are_and_never_run(canned: Canned) -> None:
    """Whoever may join can choose a name."""
    fleet = canned.fleet
    fleet.members[0] |= {"member_id": HOSTILE, "instance_id": HOSTILE, "client_tags": {"zone": HOSTILE[:30]}}
    fleet.group = f"g{HOSTILE}"
    fleet.events[2] |= {"member": HOSTILE, "body": {"from": HOSTILE, "cause": HOSTILE, "gap_ms": 38}}
    client = await visitor(canned)
    quoted = "g%3Cimg-src%3Dx-onerror%3Dalert%281%29%3E%26%22%27"
    for page in ["", "/grid", "/members", "/gaps", "/events", "/warmups", "/plan?join=1", "/do/pin?task=orders_0"]:
        answer = await client.get(f"/groups/{quoted}{page}")
        assert answer.status_code == 200, answer.text[-300:]
        assert "img" not in Seen(answer.text).tags
        assert "&lt;img" in answer.text
    assert f"/groups/{quoted}/members/{quoted[1:]}" in (await client.get(f"/groups/{quoted}/members")).text
    await client.aclose()


async def test_members_that_went_keep_their_names(canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a member went before the dashboard was started."""
    fleet, gone = canned.fleet, "0c9d4f2e-1111-4222-8333-abcdefabcdef"
    went = {"cause": "expired", "running": 1, "lease_end_at": at(-20), "last_heard_at": at(-30)}
    fleet.events.append(event(6, "member-gone", -20, member=gone, instance_id="worker-99", joined_at=at(-99), **went))

    def of_the_one_that_went(shown: dict[str, Any]) -> Any:
        return json.loads(json.dumps(shown).replace("worker-3", gone))

    task, generation = fleet.task, fleet.generation
    monkeypatch.setattr(fleet, "task", lambda name: of_the_one_that_went(task(name)))
    monkeypatch.setattr(fleet, "generation", lambda: of_the_one_that_went(generation()))
    for page in ("generations/3", f"tasks/{fleet.tasks[0]}", "timeline?span=2 h"):
        client = await visitor(canned)
        text = (await client.get(f"/groups/fleet/{page}")).text
        assert "worker-99" in text, page
        assert gone[:8] not in re.sub(r'(href|title)="[^"]*"', "", text), page
        await client.aclose()


async def test_the_middle_alone_is_for_the_page_itself(operator: httpx.AsyncClient) -> None:
    """A page that refreshes itself asks for its middle, and gets nothing around it."""
    answer = await operator.get("/groups/fleet", headers={"x-part": "1"})
    assert answer.text.lstrip().startswith("<main")
    assert "<html" not in answer.text
    assert 'data-every-ms="' in answer.text


async def test_the_page_of_a_group_begins_with_its_problems(operator: httpx.AsyncClient) -> None:
    text = html.unescape(" ".join(re.sub(r"<[^>]+>", " ", (await operator.get("/groups/fleet")).text).split()))
    assert "Trouble" in text
    assert "2 of 40 tasks are not processed: 1 failed, 1 without an owner." in text
    assert "Over when it is mended" in text
    assert "disk <full>" in text
    assert "Last incident worker-9" in text
    assert "Known from 7 of 8 members heard within 1 s" in text
    assert "Do: Look at the log of worker-3, and give it what it lacks; another member is tried by itself" in text
    assert "Release" not in text, "it is not parked"
    assert "Runbook: task not running" in text
    assert "orders_2 : failed worker-3: it failed there" in text
    assert "1 move : no member may take it; start workers, or undrain one" in text


async def test_the_list_of_groups_begins_with_trouble_and_can_be_filtered(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups there are, and whatever they are called."""
    broken = canned.fleet.summary() | {"group": "zz-payments"}
    calm: dict[str, Any] = {
        "level": "at-rest",
        "sentence": "All 40 tasks run.",
        "cause": None,
        "since": None,
        "ends": "",
        "remedies": [],
    }
    empty = {"level": "not-deployed", "sentence": "No member has joined: nobody runs its 40 tasks."}
    groups = [broken | {"group": f"a{number}", "health": broken["health"] | empty} for number in range(57)]
    groups += [broken | {"group": "b", "health": broken["health"] | calm}, broken]
    untold = broken | {"group": "newer", "health": broken["health"] | calm | {"level": "on-fire"}}
    answers = {"": ([*groups, untold], None)}

    def body(parts: list[str], query: httpx.QueryParams) -> Any:
        assert parts == ["groups"]
        found, after = answers[query.get("after", "")]
        return {"groups": found, "next": after}

    monkeypatch.setattr(canned, "_body", body)
    text = (await operator.get("/")).text
    cards = re.findall(r'<a class="card level-([a-z-]+)" href="[^"]*" data-key="([^"]*)"', text)
    assert cards == [("trouble", "zz-payments"), ("attention", "newer"), ("at-rest", "b")]
    assert "disk &lt;full&gt;" in text
    assert "57 not deployed" in text
    assert len(re.findall(r'<li data-key="a\d+"', text)) == 57
    filtered = (await operator.get("/?level=at-rest")).text
    assert re.findall(r'data-key="(zz-payments|b|newer)"', filtered) == ["b"]
    assert re.findall(r'data-key="(zz-payments|b|newer)"', (await operator.get("/?name=pay")).text) == ["zz-payments"]
    assert "No group is like that." in (await operator.get("/?name=nobody")).text


async def test_runbooks_are_served_without_the_internet(operator: httpx.AsyncClient) -> None:
    found = await operator.get("/runbooks/README")
    assert 'href="/runbooks/storm"' in found.text
    assert found.status_code == 200
    for name in ("nothing", "..%2Fapi", "%2e%2e"):
        assert (await operator.get(f"/runbooks/{name}")).status_code == 404


async def test_a_day_without_audits_says_how_to_run_one(canned: Canned) -> None:
    canned.audits = []
    client = await visitor(canned)
    text = (await client.get("/groups/fleet/audits")).text
    assert "No audit has run yet." in text
    assert "batonpass audit --day" in text
    await client.aclose()


async def test_an_audit_shows_its_findings_with_their_evidence(operator: httpx.AsyncClient) -> None:
    text = (await operator.get("/groups/fleet/audits/2026-11-19")).text
    for words in (
        "two members may have run a task",
        "two members ran &lt;orders_1&gt; at once",
        "records 7, 8",
        "99.9 %",
    ):
        assert words in text
    assert "<code>/var/lib/reports/2026-11-19.html</code>" in text
    assert "Change num_standby_replicas from" in text


async def test_an_outage_is_shown_with_what_goes_on(canned: Canned, operator: httpx.AsyncClient) -> None:
    canned.is_away = True
    answer = await operator.get("/groups/fleet")
    assert answer.status_code == 503
    assert f"No coordinator answers at {COORDINATOR} (connection refused)." in answer.text
    assert "Workers go on" in answer.text
    assert "/runbooks/no-coordinator" in answer.text
    assert 'id="middle" tabindex="-1" data-live="yes"' in answer.text
    part = await operator.get("/groups/fleet", headers={"x-part": "1"})
    assert (part.status_code, part.json()["said"]) == (
        503,
        f"No coordinator answers at {COORDINATOR} (connection refused).",
    )


async def test_what_else_is_wrong_has_its_help_and_an_older_coordinator_tells_one_thing(
    operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (await operator.get("/groups/fleet")).text
    for words in (
        "Member worker-8 has fallen silent.",
        "batonpass evict fleet worker-8 --dead",
        '<a href="/groups/fleet/members">and 2 more</a>',
        "/runbooks/member-silent",
    ):
        assert words in text
    monkeypatch.setattr(shared_client, "FRESH_S", 0)
    whole, less = Fleet.health, {"others", "more_remedies"}
    older = {name: value for name, value in whole(Fleet.of(8, 40)).items() if name not in less}
    monkeypatch.setattr(Fleet, "health", lambda _: older)
    assert "Member worker-8 has fallen silent." not in (await operator.get("/groups/fleet")).text
    newer = whole(Fleet.of(8, 40))
    newer["others"][0] |= {"level": "worse", "sentence": "A newer thing."}
    monkeypatch.setattr(Fleet, "health", lambda _: newer)
    text = (await operator.get("/groups/fleet")).text
    assert 'level-attention">Attention</span> A newer thing.' in text


async def test_a_store_that_is_away_is_said_with_its_runbook(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of a page come from the store, and the runbooks are the dashboard's own."""
    problem = {"type": "store-unavailable", "detail": "the database does not answer", "status": 503}
    answered = canned._body
    monkeypatch.setattr(canned, "_body", lambda parts, query: None if "events" in parts else answered(parts, query))
    monkeypatch.setattr(canned_module, "_problem", lambda *_: httpx.Response(503, json=problem))
    found = await operator.get("/groups/fleet")
    assert found.status_code == 503
    assert "the database does not answer" in found.text
    assert "workers keep what they have meanwhile" in found.text
    assert "/runbooks/store-errors" in found.text


async def test_who_cannot_sign_in_in_an_outage_learns_why_and_reads_the_runbook(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is not said to be wrong, and runbooks need none."""
    lost = {"type": "coordinator-loading", "detail": "its lease is over; try again", "status": 503}
    runbook = "/runbooks/no-coordinator"
    async with await visitor(canned, None) as client:
        with monkeypatch.context() as context:
            context.setattr(canned, "_body", lambda *_: None)
            context.setattr(canned_module, "_problem", lambda *_: httpx.Response(503, json=lost))
            answer = await client.post("/login", data={"token": ADMIN})
        assert answer.status_code == 503
        for words in ("Its lease is over; try again", "workers keep what they have meanwhile", runbook):
            assert words in answer.text
        canned.is_away = True
        answer = await client.post("/login", data={"token": ADMIN})
        assert (answer.status_code, runbook in answer.text) == (503, True)
        answer = await client.get(runbook)
        assert (answer.status_code, "Nothing listens" in answer.text) == (200, True)
        assert (await client.get("/runbooks/nope")).status_code == 404
        assert (await client.get("/groups/fleet")).status_code == 303


async def test_what_is_not_there_is_404_in_the_coordinators_words_with_the_way_back(
    operator: httpx.AsyncClient,
) -> None:
    answer = await operator.get("/groups/fleet/tasks/nope_0")
    assert answer.status_code == 404
    assert "All groups" in answer.text
    assert (await operator.get("/nowhere")).status_code == 404


async def test_find_leads_to_a_task_or_a_member(operator: httpx.AsyncClient) -> None:
    places = {
        "orders_3": "/groups/fleet/tasks/orders_3",
        "worker-2": "/groups/fleet/members/worker-2",
        "worker-": "/groups/fleet/members?q=worker-",
        "nobody": "/groups/fleet/grid?q=nobody",
        "rders_1": "/groups/fleet/grid?q=rders_1",
    }
    for text, place in places.items():
        assert (await operator.get(f"/groups/fleet/find?q={text}")).headers["location"] == place


async def test_large_groups_are_gathered_and_drilled_into(canned: Canned) -> None:
    canned.fleet = Fleet.of(1_000, 10_000)
    client = await visitor(canned)
    whole = (await client.get("/groups/fleet")).text
    assert "<b>9,988</b> running" in whole
    assert len(re.findall(r'class="square"', whole)) == 995
    assert "orders_0<" not in whole
    block = (await client.get("/groups/fleet/grid?part=orders&begin=100")).text
    assert len(re.findall(r'<li data-key="orders_1\d\d"', block)) == 100
    assert "101 to 200 of 1,000" in (await client.get("/groups/fleet/members?begin=100")).text
    assert (await client.get("/groups/fleet/timeline?begin=9990")).status_code == 200
    # More digits than Python makes a number of.
    assert (await client.get(f"/groups/fleet/timeline?begin={'9' * 5_000}")).status_code == 200
    await client.aclose()


async def test_what_a_list_leaves_out_is_counted_and_a_click_away(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.fleet = Fleet.of(30, 4_000)
    explained = canned.fleet.explain()
    one = next(one for one in explained["waiting"] if one["state"] == "waiting")
    explained["waiting"] = [one | {"task": task} for task in canned.fleet.tasks[:100]]
    explained["health"]["tasks"] = {"running": 2_000, "waiting": 2_000}
    explained["held_back_by_reason"] = {"no-eligible-member": 2_000}
    monkeypatch.setattr(canned.fleet, "explain", lambda: explained)
    client = await visitor(canned)
    page = (await client.get("/groups/fleet")).text
    assert '<a href="/groups/fleet/grid?sort=state">and 1,992 more</a>' in page
    assert '<a href="/groups/fleet/warmups">and 1,994 more</a>' in page
    worst = (await client.get("/groups/fleet/grid?sort=state")).text
    assert re.findall(r'<li data-key="([^"]+)" class="row-bad"', worst) == [
        canned.fleet.failed,
        *canned.fleet.waiting,
    ]
    assert "1 to 100 of 4,000 tasks" in worst
    assert 'href="?sort=state&amp;begin=100">Next' in worst
    only = (await client.get("/groups/fleet/grid?tone=bad")).text
    assert len(re.findall(r'<li data-key="', only)) == 2
    assert "There is no task or member" in (await client.get("/groups/fleet/grid?q=nope")).text
    assert "1 to 100 of 269" in (await client.get("/groups/fleet/members/worker-1")).text
    assert "201 to 269 of 269" in (await client.get("/groups/fleet/members/worker-1?begin=200")).text
    shown = (await client.get("/groups/fleet/timeline?q=stock_99")).text
    assert "11 tasks" not in shown
    assert len(re.findall(r'class="lane-row" data-key="stock_99', shown)) == 11
    assert "1 to 16 of 4,000 tasks" in (await client.get("/groups/fleet/timeline?sort=name")).text
    assert "No task is called so." in (await client.get("/groups/fleet/timeline?q=nope")).text
    await client.aclose()


async def test_the_timeline_begins_with_what_changed_last(canned: Canned, operator: httpx.AsyncClient) -> None:
    rows = re.findall(r'class="lane-row" data-key="([^"]+)"', (await operator.get("/groups/fleet/timeline")).text)
    changed = [one["task"] for one in reversed(canned.fleet.events) if one["task"]]
    assert rows[: len(changed)] == changed
    rows = re.findall(
        r'class="lane-row" data-key="([^"]+)"', (await operator.get("/groups/fleet/timeline?sort=name")).text
    )
    assert rows == canned.fleet.tasks[:16]


async def test_members_are_filtered_sorted_and_searched(operator: httpx.AsyncClient) -> None:
    async def listed(query: str) -> list[str]:
        text = (await operator.get(f"/groups/fleet/members?{query}")).text
        return re.findall(r'<tr data-key="([^"]+)"', text)

    assert (await listed(""))[:3] == ["worker-3", "worker-8", "worker-7"]
    assert await listed("tone=bad") == ["worker-3", "worker-8"]
    assert await listed("sort=name") == [f"worker-{number}" for number in range(1, 9)]
    assert await listed("sort=name&q=worker-2") == ["worker-2"]
    assert (await listed("sort=silence"))[0] == "worker-8"
    assert {len(await listed(f"sort={one}")) for one in ("load", "active tasks", "nonsense")} == {8}
    assert "None of 8 members is like that" in (await operator.get("/groups/fleet/members?q=nobody")).text
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', (await operator.get("/groups/fleet/members")).text)
    assert heads[:2] == ["state", "member"]


async def test_the_page_of_a_member_has_every_column_of_its_reports(operator: httpx.AsyncClient) -> None:
    text = (await operator.get("/groups/fleet/members/worker-1")).text
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', text)
    assert heads[:8] == ["task", "role", "is", *REPORTED, "caught up in", "token"]


async def test_the_page_of_members_has_every_column_of_a_list_of_members(canned: Canned) -> None:
    client = await visitor(canned)
    canned.fleet.members[0] |= {"capacity": 2.0, "load": 0.5}
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', (await client.get("/groups/fleet/members")).text)
    assert heads == [
        "state",
        "member",
        *(title for title in filled(COLUMNS, canned.fleet.members) if title != "load"),
        "load per capacity",
        "heard",
        "tags",
    ]
    await client.aclose()


async def test_a_group_without_members_names_a_command_that_there_is(canned: Canned) -> None:
    canned.fleet.members.clear()
    client = await visitor(canned)
    assert "<code>batonpass worker fleet</code>" in (await client.get("/groups/fleet/members")).text
    await client.aclose()


async def test_events_are_searched(operator: httpx.AsyncClient) -> None:
    async def lines(query: str) -> int:
        return len(re.findall(r'<li data-key="\d+"', (await operator.get(f"/groups/fleet/events?{query}")).text))

    assert [await lines(one) for one in ("", "q=worker-2", "tone=bad", "q=takeover", "q=nothing")] == [5, 1, 1, 1, 0]
    assert "Among the newest 5 events" in (await operator.get("/groups/fleet/events?tone=bad")).text


async def test_long_names_are_told_apart_where_there_is_little_room(canned: Canned) -> None:
    names = [f"payments-7f9c8d6b5-{end}xk2p" for end in "abcdefgh"]
    for one, name in zip(canned.fleet.members, names, strict=True):
        one["instance_id"] = name
    canned.fleet.events.clear()
    client = await visitor(canned)
    heads = re.findall(r"<th[^>]*><a[^>]*title=\"([^\"]+)\"><span>([^<]+)", (await client.get("/groups/fleet")).text)
    assert heads == [(name, f"…{name[-5:]}") for name in names]
    await client.aclose()


async def test_many_groups_at_rest_are_lines(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not at rest has its card, and stands above them."""
    one = canned.fleet.summary()
    calm = one["health"] | {"level": "at-rest"}
    groups = [one | {"group": f"a{number}", "health": calm} for number in range(59)] + [one]
    monkeypatch.setattr(canned, "_body", lambda *_: {"groups": groups, "next": None})
    text = (await operator.get("/")).text
    assert re.findall(r'<a class="card level-([a-z-]+)"', text) == ["trouble"]
    assert len(re.findall(r'<li data-key="a\d+"', text)) == 59
    assert text.index("fleet") < text.index(">a0<")


async def test_a_group_that_is_not_there_has_no_pages(operator: httpx.AsyncClient) -> None:
    answer = await operator.get("/groups/nope")
    assert answer.status_code == 404
    assert 'class="tabs"' not in answer.text


async def test_every_time_is_in_the_zone_that_the_reader_chose(canned: Canned) -> None:
    """UTC unless they choose, and with its date unless that is today."""
    client = await visitor(canned)
    assert re.search(">20 Nov (2026 )?03:03:37<", (await client.get("/groups/fleet/events")).text)
    assert '<span class="lane-name soft small">UTC</span>' in (await client.get("/groups/fleet/timeline")).text
    query = {"zone": "Asia/Tokyo", "next": "/groups/fleet/events?q=worker"}
    answer = await client.get("/zone", params=query)
    assert answer.headers["location"] == "/groups/fleet/events?q=worker"
    client.cookies.update(dict(answer.cookies.items()))
    for page, words in (
        ("events", ">20 Nov (2026 )?12:03:37<"),
        ("gaps", ">20 Nov (2026 )?12:03:25<"),
        ("gaps", 'title="20 Nov 2026 12:03:25 Asia/Tokyo"'),
        ("timeline", '<span class="lane-name soft small">Asia/Tokyo</span>'),
        ("tasks/orders_0", "ran it from 20 Nov (2026 )?12:03:16 until now"),
        ("audits/2026-11-19", "· 20 Nov (2026 )?09:34:06 Asia/Tokyo"),
        ("", 'data-zone="Asia/Tokyo"'),
    ):
        assert re.search(words, (await client.get(f"/groups/fleet/{page}".rstrip("/"))).text), page
    refused = await client.get("/zone", params={"zone": "Vienna"})
    assert refused.status_code == 422
    assert "write UTC, or for example Europe/Vienna" in refused.text
    for elsewhere in ("https://evil.example", "//evil.example", "/\\evil.example"):
        answer = await client.get("/zone", params={"zone": "UTC", "next": elsewhere})
        assert answer.headers["location"] == "/"
    client.cookies.set("batonpass_zone", "nowhere")
    assert 'data-zone="UTC"' in (await client.get("/groups/fleet")).text
    await client.aclose()


async def test_a_workers_log_is_a_click_away_if_the_operator_says_where_it_is(canned: Canned) -> None:
    """Beside the cause of trouble, and on the page of the member; names are quoted."""
    canned.fleet.members[0]["instance_id"] = "pod 1"
    client = await visitor(canned, log_url="https://logs.example.com/{group}?q={instance}&m={member}")
    page = (await client.get("/groups/fleet")).text
    assert 'href="https://logs.example.com/fleet?q=worker-3&amp;m=worker-3"' in page
    member = (await client.get("/groups/fleet/members/worker-1")).text
    assert 'href="https://logs.example.com/fleet?q=pod%201&amp;m=worker-1"' in member
    await client.aclose()
    client = await visitor(canned)
    assert ">log</a>" not in (await client.get("/groups/fleet")).text
    await client.aclose()


async def test_a_link_shows_others_the_same_stretch_of_time(operator: httpx.AsyncClient) -> None:
    """What is in the past stays as it is; there is a way on and a way back to now."""
    until = quote(at())
    for page in ("", "/timeline", "/gaps"):
        text = (await operator.get(f"/groups/fleet{page}?span=5+min&until={until}")).text
        assert "?span=5+min&amp;until=2026-11-20T02%3A59%3A05" in text, page
        assert "?span=5+min&amp;until=2026-11-20T03%3A09%3A05" in text, page
        assert ">Until now</a>" in text
    then = (await operator.get(f"/groups/fleet?span=5+min&until={until}")).text
    assert 'aria-label="2 gaps"' in then
    now = (await operator.get("/groups/fleet?span=5+min")).text
    assert 'aria-label="nothing"' in now
    assert "has changed hands in this time" in (await operator.get("/groups/fleet/gaps?span=5+min")).text
    assert "has changed hands" not in (await operator.get(f"/groups/fleet/gaps?span=5+min&until={until}")).text


async def test_handovers_mark_no_stretch_of_time_that_they_do_not_show(operator: httpx.AsyncClient) -> None:
    """Unless one is asked for, they begin with the first of them."""
    chosen = r'class="button quiet" href="[^"]*span=[^"]*" aria-current="true">([^<]+)'
    assert re.findall(chosen, (await operator.get("/groups/fleet/gaps")).text) == []
    assert re.findall(chosen, (await operator.get("/groups/fleet/gaps?span=14+d")).text) == ["14 d"]


async def test_a_page_says_since_when_it_draws_what_happened(canned: Canned, operator: httpx.AsyncClient) -> None:
    assert "Of the newest events, back to" not in (await operator.get("/groups/fleet")).text
    canned.fleet.events += [event(6 + number, "paused", number / 10, scope="all") for number in range(201)]
    client = await visitor(canned)
    text = (await client.get("/groups/fleet?span=14+d")).text
    assert "Of the newest events, back to" in text
    assert "200 commands" in text
    await client.aclose()


@pytest.mark.parametrize(
    ("place", "title", "tab"),
    [
        ("/groups/fleet", "Trouble · fleet", "Now"),
        ("/groups/fleet/tasks/orders_1", "orders_1 · fleet", "Grid"),
        ("/groups/fleet/trail", "Audit trail · fleet", "Events"),
        ("/groups/fleet/gaps", "Handovers · fleet", "Handovers"),
        ("/groups/fleet/do/pause", "Pause · fleet", ""),
        ("/audits", "Audit", ""),
    ],
)
async def test_a_page_says_where_it_is(operator: httpx.AsyncClient, place: str, title: str, tab: str) -> None:
    text = (await operator.get(place)).text
    assert f"<title>{title} · Batonpass</title>" in text
    assert re.findall(r'aria-current="page">([^<]+)', text) == ([tab] if tab else [])


async def test_many_who_look_cost_what_one_costs(canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Visitors with one token, who look at the same time, make the coordinator answer once."""
    monkeypatch.setattr(shared_client, "FRESH_S", 60.0)
    client = await visitor(canned)
    canned.asked.clear()
    await client.get("/groups/fleet")
    before = {path for _, path, _ in canned.asked}
    canned.asked.clear()
    for _ in range(3):
        await client.get("/groups/fleet")
    # The trend is up to the present minute, which may be another one by now.
    assert "/groups/fleet/explain" in before
    assert {path for _, path, _ in canned.asked} <= {"/groups/fleet/lags"}
    await client.aclose()


async def test_of_many_members_to_look_at_the_first_are_named_and_the_rest_counted(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole zone that is silent does not push what runs where off the page."""
    told = canned.fleet.explain()
    silent = [told["members"][0] | {"member": f"pod-{number}"} for number in range(30)]
    monkeypatch.setattr(canned.fleet, "explain", lambda: told | {"members": silent})
    text = (await operator.get("/groups/fleet")).text
    assert ("pod-11<" in text, "pod-12<" in text) == (True, False)
    assert ">and 18 more<" in text


@pytest.mark.parametrize("place", ["gaps", "events", "timeline", "generations/3", "tasks/orders_1"])
async def test_pages_that_only_name_members_ask_for_them_once(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Of a large group the members are by far the largest answer."""
    monkeypatch.setattr(shared_client, "FRESH_S", -1.0)
    for _ in range(3):
        assert "worker-3" in (await operator.get(f"/groups/fleet/{place}")).text
    assert [path for path, _ in canned.calls("GET")].count("/groups/fleet/members") == 1


async def test_a_page_of_a_group_asks_for_each_thing_once(
    canned: Canned, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the answers come so late that they are not shared any more."""
    await operator.get("/groups/fleet")
    canned.asked.clear()
    monkeypatch.setattr(shared_client, "FRESH_S", -1.0)
    for place in ("", "/warmups", "/grid"):
        await operator.get(f"/groups/fleet{place}")
        asked = [path for path, _ in canned.calls("GET")]
        assert sorted(asked) == sorted(set(asked)), place
        canned.asked.clear()


async def test_a_path_in_front_is_kept(canned: Canned) -> None:
    """An ingress puts it there."""
    client = await visitor(canned, None, root_path="/ops")
    answer = await client.post("/login", data={"token": VIEWER})
    assert answer.headers["location"] == "/ops/"
    assert "path=/ops;" in answer.headers["set-cookie"].lower()
    client.cookies.set(next(iter(answer.cookies)), next(iter(answer.cookies.values())))
    assert (await client.get("/ops/static/style.css")).headers["cache-control"] == "max-age=3600"
    seen = Seen((await client.get("/groups/fleet")).text)
    assert (await client.get("/ops/groups/fleet")).status_code == 200
    assert [one for one in seen.addresses if not one.startswith(("/ops/", "#", "?"))] == []
    await client.aclose()
