"""Every order of events in small worlds keeps every law; and what is planted to break one is found."""

import pytest
from tests.explorer.mutants import MUTANTS
from tests.explorer.scenarios import SCENARIOS, pinned
from tests.explorer.search import explore
from tests.explorer.story import told

ANEW = "if the rules changed on purpose, write the numbers down with `python -m tests.explorer --write`"


@pytest.mark.no_cover
@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if not one.is_large])
def test_every_order_of_events_keeps_the_laws_and_leads_to_rest(name: str) -> None:
    """The numbers are pinned so that a move that is lost, or two worlds that are taken for one, does not go unseen."""
    world = SCENARIOS[name].world()
    found = explore(world)
    if found.law:
        pytest.fail("\n".join(told(world, found)), pytrace=False)
    assert found.numbers == pinned()[name], ANEW


@pytest.mark.no_cover
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    world = SCENARIOS[mutant.scenario].world()
    found = explore(world)
    assert found.law in mutant.laws
    assert list(told(world, found))[-1] == f"BROKEN {found.detail}"
