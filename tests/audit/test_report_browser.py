"""A browser draws every plot of a report, in light and dark and on a telephone, and runs nothing of users."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.audit.sample import sample_result
from tests.audit.test_report import NASTY, bad_day, named_so
from tests.programs import chromium

from batonpass.audit.findings import AuditResult
from batonpass.audit.places import put
from batonpass.audit.report import as_html

pytestmark = pytest.mark.needs("chromium")
PATIENCE_MS = 120_000
"""Five megabytes of script take a while where others want the processor as well."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield started
        started.close()


def opened(
    browser: Browser, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False
) -> tuple[Page, list[str]]:
    """Open a report; return the page, and what it complains of and asks for."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    messages: list[str] = []
    page.on("pageerror", lambda error: messages.append(f"error: {error}"))
    page.on("console", lambda message: messages.append(f"console: {message.text}"))
    page.on("request", lambda request: messages.append(f"request: {request.url}"))
    page.set_default_timeout(PATIENCE_MS)
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelectorAll('.plot .main-svg').length > 0")
    return page, [one for one in messages if one != f"request: {path.as_uri()}"]


def written(result: AuditResult, folder: Path) -> Path:
    """Write the report of a result, and return where it is."""
    return Path(put(str(folder), "day.html", as_html(result).encode()))


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False)])
def test_every_plot_is_drawn(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:  # noqa: FBT001
    page, messages = opened(browser, written(sample_result(), tmp_path), width=width, dark=dark)
    assert messages == []
    marks = "Array.from(document.querySelectorAll('.plot'), p => p.querySelectorAll('.point').length)"
    found = page.evaluate(marks)
    assert len(found) == 6
    assert min(found) > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink = page.evaluate("getComputedStyle(document.querySelector('.plot .xtick text')).fill")
    assert ink == ("rgb(230, 237, 243)" if dark else "rgb(27, 31, 36)")
    page.close()


def test_markup_of_users_stays_text(browser: Browser, tmp_path: Path) -> None:
    page, messages = opened(browser, written(named_so(sample_result(), NASTY), tmp_path))
    assert messages == []
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.querySelectorAll('main img, main script, svg a, svg image[href^=x]').length") == 0
    labels = page.evaluate("Array.from(document.querySelectorAll('.ytick text'), t => t.textContent)")
    assert any("<script>window.hurt=1</script>" in one for one in labels)
    page.close()


@pytest.mark.parametrize(("width", "height"), [(1920, 1200), (1440, 900)])
def test_all_of_a_bad_day_is_said_on_two_screens(browser: Browser, tmp_path: Path, width: int, height: int) -> None:
    """Of a large display, and of a laptop; what is more is folded, and opens where it stands."""
    page, messages = opened(browser, written(bad_day(), tmp_path), width=width, height=height)
    assert messages == []
    assert page.evaluate("document.querySelectorAll('.card[open]').length") == 0
    bottoms = "['header', '#findings'].map(one => document.querySelector(one).getBoundingClientRect().bottom)"
    first, second = page.evaluate(bottoms)
    assert first <= height, "what happened, where, is it over, and the first command"
    assert second <= 2 * height, "what to do"
    page.locator(".all summary").first.click()
    page.locator(".card summary").first.click()
    assert page.locator(".card[open] li").first.is_visible()
    cut = "[...document.querySelectorAll('summary, td, th, p, pre, code, li')].filter(x => x.scrollWidth > x.clientWidth + 1"
    assert page.evaluate(f"{cut} && getComputedStyle(x).overflowX !== 'visible').length") == 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0, "paper does not unfold"
    page.close()
