"""The pages in a real browser on a canned coordinator: liveness, size, contrast, keyboard, narrow screens."""

import asyncio
import http.server
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from playwright.async_api import Error, Route
from tests.dashboard.browsing import Browser, Windows, serving
from tests.dashboard.canned import ADMIN, VIEWER, Canned
from tests.dashboard.fleet import Fleet, event

from batonpass.dashboard import live

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]

# Every text that can be seen, with its colour against what lies behind it, as WCAG 2.2 counts (1.4.3).
CONTRAST = """() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => { const c = v / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(one).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const one = text.parentElement;
    if (!text.nodeValue.trim() || !one.checkVisibility() || one.closest("option, .hidden, script, noscript, svg, meter, progress")) continue;
    const style = getComputedStyle(one);
    const [a, b] = [light(parts(style.color).slice(0, 3)), light(behind(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`${text.nodeValue.trim()} (${one.className}): ${ratio.toFixed(2)}`);
  }
  return found;
}"""
FASTER = 5
IN_FAST_MOTION = f"""
  const limited = AbortSignal.timeout.bind(AbortSignal), later = window.setTimeout.bind(window);
  AbortSignal.timeout = (ms) => limited(ms / {FASTER});
  window.setTimeout = (then, ms, ...more) => later(then, ms / {FASTER}, ...more);
"""
PAGES = (
    "",
    "/grid",
    "/warmups",
    "/members",
    "/members/worker-1",
    "/tasks/orders_1",
    "/timeline",
    "/gaps",
    "/generations",
)
MORE = ("/generations/3", "/events", "/plan?join=1", "/audits", "/audits/2026-11-19", "/do/evict?member=worker-1")


@pytest.fixture
def base(canned: Canned) -> Iterator[str]:
    """The base URL of a dashboard at that coordinator."""
    with serving(canned) as found:
        yield found


@asynccontextmanager
async def forgetful(base: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Yield a way to a server, and what has it forget connections while it is set: nothing comes, nothing closes."""
    forgets, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def carry(of: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        try:
            while read := await of.read(65_536):
                if forgets.is_set():
                    await asyncio.Event().wait()
                to.write(read)
        finally:
            to.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = base.removeprefix("http://").split(":")
        reader_there, writer_there = await asyncio.open_connection(host, int(port))
        tasks.add(asyncio.create_task(carry(reader, writer_there)))
        tasks.add(asyncio.create_task(carry(reader_there, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", forgets
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def overflow(browser: Browser) -> int:
    """Return by how many pixels the page is wider than the window."""
    return int(await browser.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


class OtherSite(http.server.BaseHTTPRequestHandler):
    """A chat or an alert with a link to a page of the dashboard, and a form that somebody planted there."""

    base = ""

    def do_GET(self) -> None:
        """Show the link and the form."""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(
            f'<a id="link" href="{self.base}/groups/fleet/members?q=worker">look</a>'
            f'<form method="post" action="{self.base}/logout"><button id="out">out</button></form>'.encode()
        )

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def linked_from_elsewhere(base: str) -> Iterator[str]:
    """Run another site that links to the dashboard; yield its URL. Localhost is another site than 127.0.0.1."""
    handler = type("Linking", (OtherSite,), {"base": base})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("shared", [None, VIEWER])
@pytest.mark.parametrize("signed_in", [True, False])
async def test_a_link_on_another_site_leads_to_the_page(
    browsing: Windows,
    canned: Canned,
    shared: str | None,
    signed_in: bool,  # noqa: FBT001
) -> None:
    """Operators come from a chat, an alert or a mail, and stay signed in; forms from there do nothing."""
    with serving(canned, token=shared) as base, linked_from_elsewhere(base) as elsewhere:
        async with browsing(base) as browser:
            if signed_in:
                await browser.sign_in(ADMIN)
            await browser.page.goto(elsewhere)
            hops: list[int] = []
            browser.page.on(
                "response",
                lambda answer: hops.append(answer.status) if answer.request.is_navigation_request() else None,
            )
            await browser.page.click("#link")
            if not (signed_in or shared):
                await browser.page.wait_for_selector("#token")
                assert hops == [303, 200]
                await browser.page.fill("#token", ADMIN)
                await browser.page.click("text=Sign in >> nth=-1")
            await browser.page.wait_for_url(f"{base}/groups/fleet/members?q=worker")
            await browser.page.wait_for_selector("#middle")
            assert hops[0] in {200, 303}
            if signed_in or shared:
                assert hops == [200]
            await browser.go("/groups/fleet")
            may_command = signed_in or not shared
            assert (await browser.page.locator('a[href*="/do/pause"]').count() > 0) is may_command
            await browser.page.goto(elsewhere)
            await browser.page.click("#out")
            await browser.page.wait_for_load_state()
            await browser.go("/groups/fleet")
            assert (await browser.page.locator('a[href*="/do/pause"]').count() > 0) is may_command
            assert browser.faults == []


async def test_a_page_says_when_it_is_not_live(browsing: Windows, canned: Canned, base: str) -> None:
    """The coordinator is away, or the dashboard is; the page says of when the picture is."""
    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet")
        await browser.soon("Live", selector="#standing")
        canned.is_away = True
        # Of the stream first, then of the page that is asked for again.
        await browser.soon("Not live: No coordinator answers at", "What you see is of", selector="#alarm")
        await browser.soon("Workers go on", selector="#alarm")
        assert "Who has what" in await browser.text()
        assert await browser.text("#standing") == "Not live"
        assert await browser.page.title() == "Not live · Trouble · fleet · Batonpass"
        canned.is_away = False
        await browser.soon("Live", selector="#standing")
        await browser.page.wait_for_selector("#alarm", state="hidden")

        await browser.page.context.set_offline(offline=True)
        await browser.soon("Not live: The dashboard itself does not answer", selector="#alarm")
        await browser.page.context.set_offline(offline=False)
        await browser.page.wait_for_selector("#alarm", state="hidden")


@pytest.mark.parametrize("count", [6, 7])
async def test_a_wall_of_windows_stays_fresh(
    browsing: Windows, canned: Canned, base: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser has six connections to a server: one window too many gives its stream up and says so, all go on."""
    monkeypatch.setattr(live, "KEEP_ALIVE_S", live.KEEP_ALIVE_S / FASTER)
    async with browsing(base) as browser:
        await browser.page.context.add_init_script(IN_FAST_MOTION)
        await browser.sign_in(ADMIN)
        others = [Browser(await browser.page.context.new_page(), base) for _ in range(count - 1)]
        windows = [browser, *others]
        for window in windows:
            await window.go("/groups/fleet/members")
        canned.fleet.members.insert(0, canned.fleet.members[0] | {"member_id": "worker-0", "instance_id": "worker-0"})
        for window in windows:
            await window.soon("worker-0")
        alarms = [await window.text("#alarm") for window in windows]
        assert any("Not live: Too many windows of this browser" in said for said in alarms)
        assert "" in alarms, "the others are live"


async def test_a_page_whose_connections_are_forgotten_on_the_way_opens_others(
    browsing: Windows, canned: Canned, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks for neither end is silent: that is not taken for a quiet time."""
    monkeypatch.setattr(live, "KEEP_ALIVE_S", live.KEEP_ALIVE_S / FASTER)
    async with forgetful(base) as (way, forgets), browsing(way) as browser:
        await browser.page.context.add_init_script(IN_FAST_MOTION)
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet/members")
        await browser.soon("Live", selector="#standing")
        forgets.set()
        await browser.soon("Not live: The dashboard itself does not answer", selector="#alarm")
        forgets.clear()
        async with browser.page.expect_request("**/live?group=fleet"):
            pass
        await browser.page.wait_for_selector("#standing[data-live=yes]")
        # Only an event makes it look again.
        await browser.page.evaluate("document.getElementById('middle').dataset.everyMs = '600000'")
        await browser.page.wait_for_timeout(2_500)
        canned.fleet.members.insert(0, canned.fleet.members[0] | {"member_id": "worker-0", "instance_id": "worker-0"})
        canned.tell(event(6, "member-joined", member="worker-0", instance_id="worker-0"))
        await browser.soon("worker-0")


async def test_a_page_that_was_answered_slowly_is_live_again(
    browsing: Windows, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives its stream up, as if there were too many windows; that did not help, so it opens one again."""
    monkeypatch.setattr(live, "KEEP_ALIVE_S", live.KEEP_ALIVE_S / FASTER)
    answered = asyncio.Event()

    async def slowly(route: Route) -> None:
        await answered.wait()
        # What was not waited for cannot be answered.
        with suppress(Error):
            await route.continue_()

    async with browsing(base) as browser:
        await browser.page.context.add_init_script(IN_FAST_MOTION)
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet/members")
        await browser.soon("Live", selector="#standing")
        await browser.page.route("**/groups/fleet/members", slowly)
        await browser.soon("Not live: Too many windows of this browser", selector="#alarm")
        await browser.soon("Not live: The dashboard itself does not answer", selector="#alarm")
        answered.set()
        await browser.page.wait_for_selector("#standing[data-live=yes]")


@pytest.mark.parametrize(("status", "body"), [(502, "<h1>Bad Gateway</h1>"), (200, "<form>Single sign-on</form>")])
async def test_a_page_for_which_something_else_answers_is_not_live(
    browsing: Windows, base: str, status: int, body: str
) -> None:
    """A proxy without a dashboard behind it, or one that asks to sign in, while the stream is still open."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, content_type="text/html", body=body)

    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet/members")
        await browser.soon("Live", selector="#standing")
        await browser.page.route("**/groups/fleet/members", answer)
        await browser.soon(f"Not live: What answers is not this page (HTTP {status})", selector="#alarm")
        await browser.page.unroute("**/groups/fleet/members")
        await browser.page.wait_for_selector("#standing[data-live=yes]")


async def test_a_page_that_is_led_elsewhere_says_so(browsing: Windows, base: str) -> None:
    """A proxy in front leads whom it does not know any more to where one signs in; the dashboard answers all along."""

    async def lead(route: Route) -> None:
        await route.fulfill(status=302, headers={"location": "https://sign-on.example.com/"})

    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet/members")
        await browser.soon("Live", selector="#standing")
        await browser.page.route("**/groups/fleet/members", lead)
        await browser.soon("Not live: What answers leads elsewhere", selector="#alarm")
        await browser.page.unroute("**/groups/fleet/members")
        await browser.page.wait_for_selector("#standing[data-live=yes]")


WITHOUT_VIENNA = """
const Known = Intl.DateTimeFormat;
Intl.DateTimeFormat = function (locales, options) {
  if (options && options.timeZone === "Europe/Vienna") throw new RangeError("Invalid time zone specified: Europe/Vienna");
  return new Known(locales, options);
};
"""


async def test_a_zone_that_the_browser_does_not_know_keeps_no_page_from_being_fresh(
    browsing: Windows, canned: Canned, base: str
) -> None:
    """The dashboard's machine knows newer ones, and names of its own such as localtime."""
    async with browsing(base) as browser:
        await browser.page.context.add_init_script(WITHOUT_VIENNA)
        await browser.sign_in(ADMIN)
        await browser.go("/zone?zone=Europe/Vienna&next=/groups/fleet/members")
        for number in range(2):
            await browser.page.wait_for_selector("#standing[data-live=yes]")
            name = f"worker-0{number}"
            canned.fleet.members.insert(0, canned.fleet.members[0] | {"member_id": name, "instance_id": name})
            await browser.soon(name)
        assert (await browser.text("#as-of")).endswith(" GMT")


async def test_an_event_is_seen_at_once_and_once(browsing: Windows, canned: Canned, base: str) -> None:
    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet/members")
        await browser.soon("Live", selector="#standing")
        # A page that takes its time: only an event makes it look again.
        await browser.page.evaluate("document.getElementById('middle').dataset.everyMs = '600000'")
        await browser.page.wait_for_timeout(2_500)
        await browser.page.fill("#q", "half a na")
        await browser.page.evaluate("window.row = document.querySelector('tr[data-key=worker-4]')")
        canned.fleet.members.insert(0, canned.fleet.members[0] | {"member_id": "worker-0", "instance_id": "worker-0"})
        canned.tell(event(6, "member-joined", member="worker-0", instance_id="worker-0"))
        await browser.soon("worker-0")
        assert await browser.page.evaluate("window.row === document.querySelector('tr[data-key=worker-4]')")
        assert await browser.page.input_value("#q") == "half a na"
        assert await browser.page.evaluate("document.activeElement.id") == "q"
        names = await browser.page.eval_on_selector_all("tbody tr", "all => all.map(one => one.dataset.key)")
        assert len(names) == len(set(names)) == 9


async def test_a_large_group_is_aggregated_and_drilled_into(browsing: Windows, canned: Canned, base: str) -> None:
    canned.fleet = Fleet.of(1_000, 10_000)
    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        began = time.monotonic()
        await browser.go("/groups/fleet")
        took_s = time.monotonic() - began
        assert "2 of 10,000 tasks are not processed" in await browser.text("h1")
        box = await browser.page.locator(".urgent").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900
        assert await browser.page.locator(".square, .tile").count() == 1_100
        assert took_s < 20
        await browser.page.click("a.tile:has-text('0') >> nth=0")
        assert await browser.page.locator(".chip-rows li").count() == 100
        await browser.page.click(".row-bad > a")
        assert "orders_2" in await browser.text("h1")
        await browser.page.go_back()
        await browser.page.fill("#q", "worker-999")
        await browser.page.keyboard.press("Enter")
        await browser.soon("worker-999 drains")
        assert browser.faults == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_text_can_be_read(browsing: Windows, base: str, theme: Any) -> None:
    """In both themes, as WCAG AA asks; and no script or style is refused to run."""
    async with browsing(base, color_scheme=theme) as browser:
        await browser.sign_in(ADMIN)
        for place in ["/", *(f"/groups/fleet{one}" for one in PAGES + MORE), "/login"]:
            await browser.go(place)
            assert await browser.page.evaluate(CONTRAST) == [], place
        assert browser.faults == []


async def test_narrow_screens_scroll_one_way_only(browsing: Windows, base: str) -> None:
    async with browsing(base, viewport={"width": 390, "height": 844}) as browser:
        await browser.sign_in(ADMIN)
        for place in ["/", *(f"/groups/fleet{one}" for one in PAGES + MORE), "/login"]:
            await browser.go(place)
            assert await overflow(browser) == 0, place


async def test_the_keyboard_reaches_everything(browsing: Windows, base: str) -> None:
    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet")
        await browser.page.keyboard.press("Tab")
        assert await browser.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        await browser.page.keyboard.press("Enter")
        await browser.page.keyboard.press("Tab")
        assert await browser.page.evaluate("document.activeElement.closest('main') !== null")
        assert await browser.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        # The headline's links come first.
        for _ in range(10):
            if await browser.page.evaluate("document.activeElement.textContent") == "Pause":
                break
            await browser.page.keyboard.press("Tab")
        assert await browser.page.evaluate("document.activeElement.textContent") == "Pause"
        await browser.page.keyboard.press("Enter")
        await browser.soon("Pause fleet?")
        assert await browser.page.evaluate("document.activeElement.id") == "reason"


async def test_a_theme_that_was_chosen_stays(browsing: Windows, base: str) -> None:
    """On every page, and before anything is drawn."""
    async with browsing(base, color_scheme="light") as browser:
        await browser.sign_in(ADMIN)
        await browser.page.click("#theme")
        await browser.page.click("#theme")
        await browser.go("/groups/fleet")
        assert await browser.text("#theme") == "Theme: dark"
        assert await browser.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


async def test_a_browser_that_keeps_nothing_for_the_page_shows_it_live(browsing: Windows, base: str) -> None:
    """As one does that was told to block cookies and site data."""
    async with browsing(base, color_scheme="light") as browser:
        await browser.page.add_init_script(
            "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied', 'SecurityError'); }})"
        )
        await browser.sign_in(ADMIN)
        await browser.soon("Live", selector="#standing")
        await browser.page.click("#theme")
        await browser.page.click("#theme")
        assert await browser.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
