"""Every page is for everybody: axe finds nothing, changes are announced, and nothing is told by colour alone."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from tests.dashboard.browsing import Browser, Windows, serving
from tests.dashboard.canned import ADMIN, Canned
from tests.dashboard.fleet import Fleet, event
from tests.dashboard.test_browser_alone import MORE, PAGES
from tests.e2e.running import PATIENCE_S

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def base(canned: Canned) -> Iterator[str]:
    """The base URL of a dashboard at that coordinator."""
    with serving(canned) as found:
        yield found


async def findings(browser: Browser) -> list[str]:
    """Return what axe says against a page: the rule, and the first elements that break it."""
    found = (await Axe().run(browser.page)).response["violations"]
    return [f"{one['id']}: {[node['html'][:150] for node in one['nodes'][:3]]}" for one in found]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
async def test_axe_finds_nothing_on_any_page(browsing: Windows, base: str, theme: Any, width: int) -> None:
    more = ("/tasks/nope_0", "/events?tone=bad", "/grid?sort=state", "/trail")
    places = ["/", "/runbooks/storm", "/nowhere", *(f"/groups/fleet{one}" for one in (*PAGES, *MORE, *more)), "/login"]
    async with browsing(base, color_scheme=theme, viewport={"width": width, "height": 900}) as browser:
        await browser.sign_in(ADMIN)
        said = {}
        for place in places:
            await browser.go(place)
            said[place] = await findings(browser)
        assert {place: found for place, found in said.items() if found} == {}


AWAY = """() => {
  // The clock goes on by half a minute at a time, and no answer comes as fast.
  AbortSignal.timeout = () => new AbortController().signal;
  window.told = [];
  window.Notification = function (title, more) { window.told.push([title, more.body]); };
  window.Notification.permission = "granted";
  Object.defineProperty(document, "hidden", { get: () => window.away });
}"""


def worse(canned: Canned) -> None:
    """Let a group that was at rest be in trouble, and tell of it."""
    canned.tell(event(6, "task-failed", member="worker-3", task=canned.fleet.failed, detail="disk <full>"))


@pytest.fixture
def calm(canned: Canned, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The base URL of a dashboard on a group that is at rest until a task fails."""
    health = Fleet.health

    def until_then(fleet: Fleet) -> dict[str, Any]:
        is_calm = fleet.events[-1]["type"] != "task-failed"
        return health(fleet) | ({"level": "at-rest", "sentence": "All 40 tasks run."} if is_calm else {})

    monkeypatch.setattr(Fleet, "health", until_then)
    with serving(canned) as found:
        yield found


async def test_a_change_for_the_worse_is_announced_and_seen_in_title_and_icon(
    browsing: Windows, canned: Canned, calm: str
) -> None:
    """By those who hear the page, and by those who have many tabs."""
    async with browsing(calm) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet")
        await browser.soon("Live", selector="#standing")
        assert await browser.page.title() == "fleet · Batonpass"
        assert await browser.page.get_attribute("#told", "role") == "status"
        assert await browser.text("#told") == ""
        worse(canned)
        await browser.soon("Trouble: 2 of 40 tasks are not processed", selector="#told")
        assert await browser.page.title() == "Trouble · fleet · Batonpass"
        assert "trouble.svg" in str(await browser.page.get_attribute("link[rel=icon]", "href"))
        await browser.go("/groups/fleet/members")
        assert await browser.page.title() == "Members · fleet · Batonpass"
        assert browser.faults == []


async def test_who_looks_at_another_tab_is_notified_if_they_allowed_it(
    browsing: Windows, canned: Canned, calm: str
) -> None:
    async with browsing(calm) as browser:
        await browser.page.clock.install()
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet")
        await browser.soon("Live", selector="#standing")
        await browser.page.evaluate(AWAY)
        await browser.page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
        worse(canned)
        # The page asks every half a minute; nobody has to wait for it.
        async with asyncio.timeout(PATIENCE_S):
            while not await browser.page.evaluate("window.told.length"):
                await browser.page.clock.fast_forward(31_000)
        assert await browser.page.evaluate("window.told") == [
            ["Trouble · fleet · Batonpass", "Trouble: 2 of 40 tasks are not processed: 1 failed, 1 without an owner."]
        ]
        assert browser.faults == []


async def test_who_looks_at_another_tab_is_notified_that_nobody_answers_any_more(
    browsing: Windows, canned: Canned, calm: str
) -> None:
    """Once for an outage."""
    async with browsing(calm) as browser:
        await browser.page.clock.install()
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet")
        await browser.soon("Live", selector="#standing")
        await browser.page.evaluate(AWAY)
        await browser.page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
        canned.is_away = True
        async with asyncio.timeout(PATIENCE_S):
            while not await browser.page.evaluate("window.told.length"):
                await browser.page.clock.fast_forward(31_000)
        await browser.page.clock.fast_forward(31_000)
        ((title, said),) = await browser.page.evaluate("window.told")
        assert title == "Not live · fleet · Batonpass" == await browser.page.title()
        assert said.startswith("No coordinator answers at ")


CONTRASTS = """() => {
  const light = (name) => {
    const probe = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    probe.setAttribute("class", name);
    document.querySelector(".lane").append(probe);
    const [r, g, b] = getComputedStyle(probe).fill.match(/[\\d.]+/g).map((v) => {
      const c = v / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const owners = [0, 1, 2, 3, 4, 5, 6, 7, "x"].map((number) => `own-${number}`);
  return owners.flatMap((one) => [ratio("gap", one), ratio("lane-bg", one)]).concat([ratio("gap", "lane-bg")]);
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_gaps_are_told_from_owners_without_colour(browsing: Windows, base: str, theme: Any) -> None:
    """By how dark they are (3 : 1, WCAG 1.4.11), and by their height."""
    async with browsing(base, color_scheme=theme) as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet/timeline?span=14 d")
        ratios = await browser.page.evaluate(CONTRASTS)
        assert min(ratios) >= 3, ratios
        heights = {
            look: await browser.page.locator(f".lane {look}").first.get_attribute("height")
            for look in (".gap", "[class^=own]")
        }
        assert heights[".gap"] == "24"
        assert heights["[class^=own]"] != "24"


async def test_a_printed_page_has_what_is_so_and_nothing_to_click(browsing: Windows, base: str) -> None:
    async with browsing(base, color_scheme="dark") as browser:
        await browser.sign_in(ADMIN)
        await browser.go("/groups/fleet")
        await browser.page.emulate_media(media="print")
        assert await browser.page.locator(".tabs, button, .button, .find").filter(visible=True).count() == 0
        assert await browser.page.is_visible("h1")
        assert re.search(r"as of \d\d? \w+ 20\d\d \d\d:\d\d:\d\d UTC", await browser.text(".foot")), (
            "paper has no clock"
        )
        assert await browser.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
            "rgb(255, 255, 255)"
        )


async def test_the_tab_of_the_page_is_in_view_on_a_phone(browsing: Windows, base: str) -> None:
    async with browsing(base, viewport={"width": 390, "height": 844}) as browser:
        await browser.sign_in(ADMIN)
        for page in ("", "/events", "/audits"):
            await browser.go(f"/groups/fleet{page}")
            await browser.page.wait_for_load_state()
            box = await browser.page.locator(".tabs [aria-current]").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
