"""First standbys where there are so many racks that the lowest members are looked at before racks are compared."""

import pytest
from tests.placement.placing import Group, faults, seat, standby_counts, tasks

from batonpass.placement.types import PlacementMember


def racked(racks: int, each: int, zones: int) -> tuple[PlacementMember, ...]:
    """Return so many members in each rack, racks in turn in each zone."""
    return tuple(
        seat(f"m{index:02}", tags={"rack": f"r{index % racks:02}", "zone": f"z{index % racks % zones}"})
        for index in range(racks * each)
    )


@pytest.mark.parametrize(("keys", "zones_used"), [(("rack",), 1), (("zone", "rack"), 2)])
def test_twenty_racks_keep_all_copies_apart_and_stay_level(keys: tuple[str, ...], zones_used: int) -> None:
    """Three copies are in three racks, and in both zones where these come first, though two zones are used up."""
    group = Group(tasks(80, 40), racked(20, 2, 2), replicas=2, tags=keys)
    placed = group.place()
    assert faults(group, placed) == []
    assert set(standby_counts(group, placed).values()) == {6}
    for owner, held in zip(placed.owner, placed.standbys, strict=True):
        tags = [group.seats[one].tags for one in (owner, *held)]
        assert len({each["rack"] for each in tags}) == 3
        assert len({each["zone"] for each in tags}) >= zones_used
    assert group.settle(placed).place().standbys == placed.standbys
