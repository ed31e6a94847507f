"""Worlds full of faults in which what was found out about open tasks is kept, however small the group."""

import pytest

from batonpass.core import agenda
from batonpass.core.soft import Soft
from batonpass.simulate import checks
from batonpass.simulate.run import run_world
from batonpass.simulate.scenario import draw


def test_no_law_is_broken_by_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not the one that a decision comes out the same without it, of which samples are taken."""
    kept: list[bool] = []
    real = checks.reordered

    def noted(group: object, soft: Soft) -> object:
        kept.append(isinstance(soft.agenda, agenda.Agenda))
        return real(group, soft)  # type: ignore[arg-type]

    monkeypatch.setattr(agenda, "FEWEST", 0)
    monkeypatch.setattr(checks, "reordered", noted)
    for seed in (0, 1, 3, 7):
        assert run_world(draw(seed)).violations == ()
    assert sum(kept) > 3
