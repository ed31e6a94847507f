"""What an operator reads at three in the morning: what is wrong, since when, why, until when, and what to do."""

import re
import time
from collections.abc import Iterator

import pytest
from tests.dashboard.browsing import Windows, serving
from tests.dashboard.canned import ADMIN
from tests.dashboard.situations import SITUATIONS, Staged, staged

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]
IDLE = 60 - len(SITUATIONS)


@pytest.fixture
def base() -> Iterator[str]:
    """A dashboard on sixty groups, most of which nobody has deployed."""
    with serving(Staged([staged(one) for one in SITUATIONS], IDLE)) as found:
        yield found


async def test_the_headline_says_what_is_wrong_since_when_why_and_what_to_do(browsing: Windows) -> None:
    """All of it above the fold, and what to do before anything else that is to be read."""
    here = Staged([])
    with serving(here) as base:
        async with browsing(base) as browser:
            await browser.sign_in(ADMIN)
            for one in SITUATIONS:
                stage = staged(one)
                here.stages = {stage.group.id: stage}
                await browser.go(f"/groups/{one.name}")
                hero = await browser.text(".hero")
                assert hero.startswith(f"{one.level} {one.name} "), hero
                assert one.headline in await browser.text("h1")
                assert one.cause in hero
                assert re.search(f"Do: {one.todo}", hero), hero
                assert [words for words in one.facts if not re.search(words, hero)] == [], hero
                assert [words for words in one.help if words not in hero] == [], hero
                # What was asked for is not cancelled by the button that one presses first.
                cancels = {"draining": "Undrain", "drained": "Undrain", "paused": "Resume"}.get(one.name)
                pressed = await browser.page.locator(".hero .button.main").all_inner_texts()
                assert cancels is None or (cancels in hero and pressed == [])
                reasons = await browser.page.eval_on_selector_all(".reasons", "all => all.map(one => one.innerText)")
                assert all(
                    hero.index(words) < hero.index(" ".join(reasons[0].split())) for words in one.help if reasons
                )
                box = await browser.page.locator(".hero").bounding_box()
                assert box is not None
                assert box["y"] + box["height"] < 900
                assert browser.faults == []


@pytest.mark.parametrize("minutes", [-7, 7])
async def test_how_long_ago_is_counted_by_the_coordinators_clock(browsing: Windows, minutes: int) -> None:
    """Whatever the clock of the machine is where somebody looks."""
    killed = next(one for one in SITUATIONS if one.name == "killed")
    with serving(Staged([staged(killed)])) as found:
        async with browsing(found) as browser:
            await browser.page.clock.install(time=time.time() + 60 * minutes)
            await browser.sign_in(ADMIN)
            await browser.go("/groups/killed")
            assert re.search(r"Since 2\d s ago .*Over in \d\d s at the latest", await browser.text(".hero"))
            await browser.page.clock.fast_forward(2_000)
            assert re.search(r"Since 2\d s ago .*Over in \d\d s at the latest", await browser.text(".hero"))


async def test_sixty_groups_show_the_worst_first_with_since_when_and_why(browsing: Windows, base: str) -> None:
    """Whoever opens the list reads of each group that is not at rest what its own page says."""
    order = ["Trouble", "Attention", "Moving", "At rest"]
    async with browsing(base) as browser:
        await browser.sign_in(ADMIN)
        cards = await browser.page.eval_on_selector_all(".card", "all => all.map(one => one.innerText)")
        cards = [" ".join(card.split()) for card in cards]
        levels = [next(level for level in order if f" {level} " in card) for card in cards]
        assert levels == sorted(levels, key=order.index)
        for one in SITUATIONS:
            if one.level in order[:3]:
                (card,) = [card for card in cards if card.startswith(f"{one.name} {one.level} ")]
                assert one.headline in card
                assert one.cause in card
                assert re.search(f"Do: {one.todo}", card), card
                assert "Since " in card or not any(fact.startswith("Since") for fact in one.facts)
        # Of two troubles both; but not once more what the cause says.
        also = {
            name: [" Also: " in card for card in cards if card.startswith(f"{name} ")]
            for name in ("two-troubles", "storm")
        }
        assert also == {"two-troubles": [True], "storm": [False]}
        assert f"{IDLE + 1} not deployed" in await browser.text(".filters")
        worst = await browser.page.locator(".card").first.bounding_box()
        assert worst is not None
        assert worst["y"] < 300
