"""The dashboard in a real browser, beside a real coordinator whose workers scale, crash and drain."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.dashboard.browsing import Browser, Windows
from tests.e2e.running import PROGRAM, Up, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]
QUICK = ("--rate", "5000")


@pytest.fixture(scope="module")
def up(open_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A coordinator with three simulated workers, and the dashboard that is started beside it."""
    home = tmp_path_factory.mktemp("home")
    with running(open_folder / "looked at", "--dashboard-port", "0", home=home) as found:
        wait_until(lambda: found.ask("groups", "show", "demo")["at_rest"])
        yield found
        found.stop()
        assert not answers(dashboard_of(found))


@pytest.fixture(scope="module")
def base(up: Up) -> str:
    """The base URL of that dashboard."""
    found = dashboard_of(up)
    wait_until(lambda: answers(found))
    return found


def dashboard_of(up: Up) -> str:
    """Return the URL of the dashboard that an `up` said that it started."""
    found = re.search(r"Dashboard +(http://\S+) ", up.greeting)
    assert found is not None, up.greeting
    return found[1]


def answers(url: str) -> bool:
    """Whether a dashboard answers there."""
    try:
        return httpx.get(f"{url}/livez").text == "ok\n"
    except httpx.TransportError:
        return False


@contextmanager
def one_more(up: Up) -> Iterator[subprocess.Popen[bytes]]:
    """Run another worker; what still runs at the end is killed."""
    command = [*PROGRAM, "worker", *QUICK]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=up.environment) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def member_id(up: Up, name: str) -> str:
    """Return the id of the member that has an instance id."""
    members = up.ask("members", "demo")["members"]
    return next(str(one["member_id"]) for one in members if one["instance_id"] == name)


async def letters(browser: Browser, column: str) -> str:
    """Return the letters in a column of the grid."""
    heads = await browser.page.eval_on_selector_all(".matrix thead th", "all => all.map(one => one.innerText.trim())")
    cells = await browser.page.eval_on_selector_all(
        f".matrix tbody td:nth-child({heads.index(column) + 1})", "all => all.map(one => one.innerText.trim())"
    )
    return "".join(cell[:1] for cell in cells)


async def test_workers_scale_crash_and_drain_before_the_eyes_of_an_operator(
    browsing: Windows, up: Up, base: str
) -> None:
    """The page is never loaded again, and the focus stays where it is."""
    async with browsing(base) as browser:
        await browser.sign_in(up.token)
        assert "All 12 tasks run where they belong" in await browser.text()
        await browser.page.click(".card")
        await browser.soon("At rest", "Who has what")
        await browser.soon("Live", selector="#standing")
        assert sorted((await letters(browser, "demo-1")).replace("S", "")) == ["A"] * 4

        # One more worker: it warms up, then it runs, and the keyboard stays on a link all the while.
        await browser.page.focus("tr[data-key=stock_3] th a")
        with one_more(up) as worker:
            text = await browser.soon("Moving", "warming up. All 12 tasks run.", "demo-4", "Held back")
            assert "all warmup slots of the group are taken" in text
            assert "W" in await letters(browser, "demo-4")
            await browser.soon("At rest", "to demo-4; nobody ran it for")
            assert (await letters(browser, "demo-4")).count("A") == 3
            assert await browser.page.evaluate("document.activeElement.innerText") == "stock_3"

            # It is killed: its warm copies take over before its lease is over.
            worker.kill()
            text = await browser.soon("Member demo-4 has fallen silent. All 12 tasks run.")
            assert "at the latest: its lease" in text
            assert "Do: Nothing; wait: no task runs there." in text
            assert "batonpass evict" not in text, "what it ran runs elsewhere: nobody needs that"
            assert "from a warm copy; nobody ran it for" in text
        text = await browser.soon("At rest", "All 12 tasks run where they belong", "3 of 3 members heard within")
        assert "demo-4" in text[text.index("Last incident") :].partition("its lease ran out")[0]
        assert "demo-4" not in await browser.text(".matrix thead")
        assert {url.split("/")[2] for url in browser.asked} == {base.split("/")[2]}
        assert not [url for url in browser.asked if up.token in url]
        assert browser.faults == []


async def test_a_member_is_drained_with_a_reason_and_taken_back(browsing: Windows, up: Up, base: str) -> None:
    async with browsing(base) as browser:
        await browser.sign_in(up.token)
        await browser.go("/groups/demo/find?q=demo-2")
        await browser.soon("demo-2 is well", "Can it be stopped now?")
        await browser.page.click("text=Drain >> nth=0")
        await browser.page.fill("#reason", "a kernel upgrade <b>")
        await browser.page.keyboard.press("Enter")
        await browser.soon("The member drains.", "demo-2 drains")
        await browser.soon("Yes.", "It runs nothing.", "demo-2 has no active task left, after")
        trail = up.ask("commands", "demo", "--limit", "1")["commands"][0]
        assert (trail["command"], trail["reason"], trail["who"]) == ("drain", "a kernel upgrade <b>", "admin")
        assert trail["subject"] == {"member_id": member_id(up, "demo-2")}
        await browser.go("/groups/demo/trail")
        assert re.search(r"drain demo-2 admin a kernel upgrade <b>", await browser.text())

        await browser.go(f"/groups/demo/members/{member_id(up, 'demo-2')}")
        await browser.page.click("text=Undrain")
        await browser.page.click("button:has-text('Undrain')")
        assert "Say why" in await browser.text() or await browser.page.evaluate(
            "!document.getElementById('reason').checkValidity()"
        )
        await browser.page.fill("#reason", "done")
        await browser.page.click("button:has-text('Undrain')")
        await browser.soon("The member stays.", "demo-2 is well")
        assert "drain-cancelled" in {one["type"] for one in _events(up)}
        assert browser.faults == []


async def test_pages_that_look_back_tell_what_happened(browsing: Windows, up: Up, base: str) -> None:
    async with browsing(base) as browser:
        await browser.sign_in(up.token)
        await browser.go("/groups/demo/timeline?span=5 min")
        assert await browser.page.locator(".lane-row .lane").count() == 12
        assert "nobody ran it" in str(await browser.page.locator(".lane .gap title").first.text_content())
        await browser.go("/groups/demo/gaps")
        assert re.search(r"Warm handover: \d+; p99", await browser.text())
        await browser.go("/groups/demo/generations")
        assert "a member joined" in await browser.text()
        await browser.page.click("tr[data-key='1'] a")
        assert re.search(r"Because a member joined: 12 moves", await browser.text())
        await browser.go("/groups/demo/tasks/orders_0")
        assert re.search(r"demo-\d runs orders_0", await browser.text("h1"))
        await browser.go("/groups/demo/plan")
        await browser.page.fill("#join", "2")
        await browser.page.keyboard.press("Enter")
        await browser.soon("tasks would move", "join-1 new", "join-2 new")
        assert browser.faults == []


async def test_a_viewer_looks_and_commands_nothing(browsing: Windows, up: Up, base: str) -> None:
    """The coordinator's own roles decide; the pages say so instead of offering what would be refused."""
    with up.client() as client:
        secret = client.post("/tokens", json={"name": "wall", "role": "viewer"}).json()["secret"]
    async with browsing(base) as browser:
        await browser.go("/login")
        await browser.page.fill("#token", "bpt_nonsense")
        await browser.page.keyboard.press("Enter")
        await browser.page.wait_for_selector("text=the token is unknown, revoked or expired")
        await browser.sign_in(secret)
        await browser.go("/groups/demo")
        await browser.soon("Your token may look and not command", "Who has what")
        assert await browser.page.locator("a[href*='/do/']").count() == 0
        cookies = await browser.page.context.cookies()
        assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Lax")]
        assert secret not in str(cookies)


def _events(up: Up) -> list[dict[str, object]]:
    with up.client() as client:
        found: list[dict[str, object]] = client.get("/groups/demo/events?newest=true&limit=50").json()["events"]
    return found


async def test_the_page_of_the_api_needs_no_internet(browsing: Windows, up: Up) -> None:
    async with browsing(up.url) as browser:
        await browser.go("/docs")
        await browser.page.wait_for_selector(".opblock")
        assert "Report progress, and renew the lease." in await browser.text("body")
        assert [url for url in browser.asked if not url.startswith((up.url, "data:"))] == []
        assert browser.faults == []
