"""Kafka's tests of tag-aware standbys (KIP-708): where standbys may stand, and what gives way when values run out.

Where a case says nothing else, ours does as Kafka does.
"""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.kafka.groups import client, config, counts, grid, plan
from tests.often import cases

from batonpass.dry_run.plan import Plan
from batonpass.dry_run.snapshot import SnapshotMember


def cloud(zones: int, clusters: int, **fields: object) -> list[SnapshotMember]:
    """Return one client in every zone of every cluster."""
    names = list(product(range(zones), range(clusters)))
    return [client(f"z{z}c{c}", tags={"zone": f"z{z}", "cluster": f"c{c}"}, **fields) for z, c in names]  # type: ignore[arg-type]


def places(made: Plan, clients: list[SnapshotMember], key: str) -> dict[str, list[str]]:
    """Return the tag values of every task's copies in the target, its active first."""
    tags = {one.id: one.client_tags.get(key, "") for one in clients}
    found: dict[str, list[str]] = {}
    for role in ("active", "standby"):
        for member_id, held in sorted(made.target.items()):
            for task in held[role]:
                found.setdefault(task, []).append(tags[member_id])
    return found


def test_stateless_tasks_have_no_standbys_whatever_the_tags() -> None:
    made = plan(
        cloud(2, 2), [], stateless=grid(1, 4), settings=config(num_standby_replicas=2, rack_aware_tags=["zone"])
    )
    assert counts(made, "standby") == [0, 0, 0, 0]


def test_all_standbys_are_placed_where_there_are_clients_enough() -> None:
    clients = [client(f"c{n}", tags={"zone": f"z{n}"}) for n in range(3)]
    made = plan(clients, grid(1, 3), settings=config(num_standby_replicas=2, rack_aware_tags=["zone"]))
    assert counts(made, "standby") == [2, 2, 2]


def test_missing_standbys_are_no_failure() -> None:
    clients = [client(f"c{n}", tags={"zone": f"z{n}"}) for n in range(3)]
    made = plan(clients, grid(1, 3), settings=config(num_standby_replicas=3, rack_aware_tags=["zone"]))
    assert counts(made, "standby") == [2, 2, 2]


@pytest.mark.parametrize("owner", ["z0c0", "z1c1", "z2c0"])
def test_with_three_zones_and_clusters_copies_differ_in_both(owner: str) -> None:
    keys = ["zone", "cluster"]
    clients = [
        client(one.id, tags=one.client_tags, disk={"0_0": 0} if one.id == owner else None) for one in cloud(3, 3)
    ]
    made = plan(clients, grid(1, 6), settings=config(num_standby_replicas=2, rack_aware_tags=keys))
    assert sum(counts(made, "standby")) == 12
    for key in keys:
        for values in places(made, clients, key).values():
            assert len(set(values)) == 3


def test_standbys_of_actives_in_one_zone_stand_in_the_others() -> None:
    clients = cloud(3, 3)
    tasks = grid(1, 6)
    had = {"z0c0": tasks[:2], "z0c1": tasks[2:4], "z0c2": tasks[4:]}
    clients = [
        client(one.id, tags=one.client_tags, runs=had.get(one.id, []), capacity=1 if one.id in had else 1e-9)
        for one in clients
    ]
    made = plan(clients, tasks, settings=config(num_standby_replicas=2, rack_aware_tags=["zone", "cluster"]))
    for key in ("zone", "cluster"):
        for values in places(made, clients, key).values():
            assert len(set(values)) == 3
    standbys = {str(name): len(held["standby"]) for name, held in made.target.items()}
    assert all(count == 0 for name, count in standbys.items() if name.startswith("z0"))
    assert all(count == 2 for name, count in standbys.items() if not name.startswith("z0"))


def test_a_key_whose_values_are_used_up_gives_way_and_the_other_holds() -> None:
    clients = cloud(3, 2)
    made = plan(clients, grid(1, 2), settings=config(num_standby_replicas=2, rack_aware_tags=["cluster", "zone"]))
    assert sum(counts(made, "standby")) == 4
    for values in places(made, clients, "zone").values():
        assert len(set(values)) == 3
    for values in places(made, clients, "cluster").values():
        assert len(set(values)) == 2


def test_capacity_runs_out_before_the_zones_do() -> None:
    clients = [client(f"c{n}", tags={"zone": f"z{n % 3}"}) for n in range(6)]
    made = plan(clients, grid(1, 6), settings=config(num_standby_replicas=1, rack_aware_tags=["zone"]))
    assert counts(made) == counts(made, "standby") == [1] * 6
    for values in places(made, clients, "zone").values():
        assert len(set(values)) == 2


def test_tags_that_are_not_listed_do_not_matter() -> None:
    tagged, bare = cloud(2, 2), [client(one.id) for one in cloud(2, 2)]
    settings_ = config(num_standby_replicas=1)
    assert plan(tagged, grid(1, 5), settings=settings_) == plan(bare, grid(1, 5), settings=settings_)


def test_one_value_under_two_keys_is_two_values() -> None:
    clients = [
        client("a", tags={"zone": "x", "cluster": "y"}),
        client("b", tags={"zone": "y", "cluster": "x"}),
        client("c", tags={"zone": "x", "cluster": "x"}),
    ]
    made = plan(clients, grid(1, 3), settings=config(num_standby_replicas=1, rack_aware_tags=["zone", "cluster"]))
    placed = {task: [name for name, held in made.target.items() if task in held["standby"]] for task in grid(1, 3)}
    for task in made.target["a"]["active"]:  # type: ignore[index]
        assert placed[task] == ["b"]


def test_where_all_share_a_value_load_decides() -> None:
    clients = [client(f"c{n}", tags={"zone": "only"}) for n in range(4)]
    made = plan(clients, grid(1, 4), settings=config(num_standby_replicas=1, rack_aware_tags=["zone"]))
    assert counts(made, "standby") == [1, 1, 1, 1]


def test_one_client_has_no_standby() -> None:
    """Kafka logs a warning."""
    made = plan([client("c0", runs=["0_0"], tags={"zone": "z"})], ["0_0"], settings=config(num_standby_replicas=1))
    assert counts(made, "standby") == [0]
    assert made.at_rest


def test_a_standby_moves_only_where_it_does_not_lower_the_spread() -> None:
    """c2 would level the counts, but is in zone a like the owner."""
    clients = [
        client("c0", runs=["0_0", "0_1"], tags={"zone": "a"}),
        client("c1", stands_by={"0_0": 0, "0_1": 0}, tags={"zone": "b"}, capacity=1e-9),
        client("c2", tags={"zone": "a"}, capacity=1e-9),
    ]
    made = plan(clients, grid(1, 2), settings=config(num_standby_replicas=1, rack_aware_tags=["zone"]))
    assert {str(name): list(held["standby"]) for name, held in made.target.items()} == {
        "c0": [],
        "c1": ["0_0", "0_1"],
        "c2": [],
    }


@settings(max_examples=cases(60), deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), min_size=1, max_size=8),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_the_first_key_is_as_spread_as_it_can_be(tags: list[tuple[str, str]], tasks: int, standbys: int) -> None:
    clients = [client(f"c{n}", tags={"zone": zone, "rack": rack}) for n, (zone, rack) in enumerate(tags)]
    settings_ = config(num_standby_replicas=standbys, rack_aware_tags=["zone", "rack"])
    made = plan(clients, grid(1, tasks), settings=settings_)
    copies = min(len(clients), 1 + standbys)
    for values in places(made, clients, "zone").values():
        assert len(values) == copies
        assert len(set(values)) == min(copies, len({zone for zone, _ in tags}))
