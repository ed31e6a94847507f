"""Standbys by client tags (KIP-708): the cases of Kafka's own test, put before the model."""

from collections.abc import Mapping

import pytest
from tests.simulate.kafka.cases import faults, grid

from batonpass.simulate.kafka.assignor import ClientState, Draft, Kip441Config, assign, place_standbys
from batonpass.simulate.tasks import Task, TaskSet

ZONES = ("a", "b", "c")


def by_tags(
    tags: Mapping[str, Mapping[str, str]], actives: Mapping[str, tuple[Task, ...]], config: Kip441Config
) -> dict[str, Draft]:
    """Place standbys for actives that stand where they are said to."""
    drafts = {name: Draft(ClientState(name, {}, tags=tags[name])) for name in sorted(tags)}
    for name, tasks in actives.items():
        for task in tasks:
            drafts[name].active.add(task)
    place_standbys(list(drafts.values()), sorted(task for tasks in actives.values() for task in tasks), config)
    return drafts


def holders(drafts: Mapping[str, Draft], task: Task) -> list[str]:
    """Who stands by for the task."""
    return [name for name, draft in drafts.items() if task in draft.standby]


def wide(*, count: int = 9) -> dict[str, dict[str, str]]:
    """Clients over three zones and three clusters, one in each pair, or the first of them."""
    places = [(zone, cluster) for zone in ZONES for cluster in ("x", "y", "z")]
    return {f"{zone}{cluster}": {"zone": zone, "cluster": cluster} for zone, cluster in places[:count]}


def test_copies_are_apart_in_every_listed_tag() -> None:
    tags = wide()
    tasks = grid(1, 6)
    actives = {"ax": tasks[:2], "ay": tasks[2:4], "az": tasks[4:]}
    config = Kip441Config(num_standby_replicas=2, rack_aware_tags=("zone", "cluster"))
    drafts = by_tags(tags, actives, config)
    assert [len(drafts[name].standby) for name in sorted(tags)] == [0, 0, 0, 2, 2, 2, 2, 2, 2]
    for owner, owned in actives.items():
        for task in owned:
            places = [tags[name] for name in (owner, *holders(drafts, task))]
            assert len({place["zone"] for place in places}) == 3
            assert len({place["cluster"] for place in places}) == 3


def test_a_tag_without_a_value_left_stops_to_count() -> None:
    """Over two clusters and three zones the first standby differs in both, the second in its zone alone."""
    tags = {f"{zone}{cluster}": {"zone": zone, "cluster": cluster} for zone in ZONES for cluster in ("x", "y")}
    config = Kip441Config(num_standby_replicas=2, rack_aware_tags=("zone", "cluster"))
    drafts = by_tags(tags, {"ax": ((0, 0),), "bx": ((0, 1),)}, config)
    for owner, task in (("ax", (0, 0)), ("bx", (0, 1))):
        places = [tags[name] for name in (owner, *holders(drafts, task))]
        assert len({place["zone"] for place in places}) == 3
        assert {place["cluster"] for place in places} == {"x", "y"}
    assert sum(len(draft.standby) for draft in drafts.values()) == 4


def test_a_key_that_stopped_to_count_leaves_the_others_in_force() -> None:
    tags = {f"{zone}{cluster}": {"zone": zone, "cluster": cluster} for zone in ZONES for cluster in ("x", "y")}
    drafts = {name: Draft(ClientState(name, {}, tags=tags[name])) for name in sorted(tags)}
    drafts["ax"].active.add((0, 0))
    for place, name in enumerate(("cx", "cy")):
        drafts[name].active.add((1, place))
    config = Kip441Config(num_standby_replicas=2, rack_aware_tags=("zone", "cluster"))
    place_standbys(list(drafts.values()), [(0, 0)], config)
    assert holders(drafts, (0, 0)) == ["by", "cx"]


def test_standbys_stay_in_other_zones_when_capacity_is_used_up() -> None:
    tags = {f"{number}{zone}": {"zone": zone} for zone in ZONES for number in (1, 2)}
    actives = {name: ((0, place),) for place, name in enumerate(sorted(tags))}
    drafts = by_tags(tags, actives, Kip441Config(num_standby_replicas=1, rack_aware_tags=("zone",)))
    assert [len(draft.standby) for draft in drafts.values()] == [1] * 6
    for owner, (task,) in actives.items():
        assert tags[holders(drafts, task)[0]]["zone"] != tags[owner]["zone"]


def test_tags_that_are_not_listed_do_not_count() -> None:
    tags = {
        "c1": {"zone": "a", "cluster": "x"},
        "c2": {"zone": "a", "cluster": "y"},
        "c3": {"zone": "b", "cluster": "x"},
    }
    drafts = by_tags(tags, {"c1": ((0, 0),)}, Kip441Config(num_standby_replicas=1, rack_aware_tags=("cluster",)))
    assert holders(drafts, (0, 0)) == ["c2"]


def test_one_value_under_two_keys_is_two_values() -> None:
    tags = {
        "c1": {"zone": "a", "cluster": "b"},
        "c2": {"zone": "b", "cluster": "a"},
        "c3": {"zone": "a", "cluster": "a"},
    }
    config = Kip441Config(num_standby_replicas=1, rack_aware_tags=("zone", "cluster"))
    assert holders(by_tags(tags, {"c1": ((0, 0),)}, config), (0, 0)) == ["c2"]


def test_where_all_share_the_dimension_the_least_loaded_stands_by() -> None:
    """The last resort is any client without a copy."""
    tags = {f"c{place}": {"zone": "a"} for place in range(4)}
    actives = {name: ((0, place),) for place, name in enumerate(sorted(tags))}
    drafts = by_tags(tags, actives, Kip441Config(num_standby_replicas=1, rack_aware_tags=("zone",)))
    assert [len(draft.standby) for draft in drafts.values()] == [1] * 4


@pytest.mark.parametrize(("count", "placed"), [(1, 0), (3, 2)], ids=["one client", "three clients"])
def test_copies_that_nobody_can_take_are_left_out(count: int, placed: int) -> None:
    config = Kip441Config(num_standby_replicas=3, rack_aware_tags=("zone",))
    tags = dict(list(wide().items())[:count])
    assert len(holders(by_tags(tags, {"ax": ((0, 0),)}, config), (0, 0))) == placed


@pytest.mark.parametrize(("zone", "standbys"), [("a", [2, 1]), ("b", [3, 0])], ids=["same tags", "different tags"])
def test_evening_out_moves_a_standby_between_clients_of_the_same_tags_only(zone: str, standbys: list[int]) -> None:
    tags = {"c1": {"zone": "a"}, "c2": {"zone": zone}, "c3": {"zone": "b"}}
    drafts = {name: Draft(ClientState(name, {}, tags=tags[name])) for name in tags}
    for partition in range(3):
        drafts["c1"].standby.add((0, partition))
        drafts["c3"].active.add((0, partition))
    place_standbys(list(drafts.values()), [], Kip441Config(rack_aware_tags=("zone",)))
    assert [len(drafts[name].standby) for name in ("c1", "c2")] == standbys


def test_the_whole_assignor_honours_tags() -> None:
    tasks = TaskSet(grid(2, 6), grid(3, 3)[6:])
    config = Kip441Config(num_standby_replicas=1, rack_aware_tags=("zone",))
    lags = dict.fromkeys(tasks.stateful, 10)
    clients = [ClientState(f"c{place}", lags, tags={"zone": ZONES[place % 3]}) for place in range(6)]
    assignment = assign(clients, tasks, config)
    assert faults(assignment, tasks, config) == []
    zone = {state.client: state.tags["zone"] for state in clients}
    for name, held in assignment.clients.items():
        assert all(zone[assignment.owners[task]] != zone[name] for task in held.standby)
