"""Topology: which tasks there are, and which changes of it are accepted."""

import pytest

from batonpass.core.state.errors import InvalidTopology
from batonpass.core.state.ids import TaskId
from batonpass.core.state.model import EMPTY_TABLE, Subtopology, TaskTable, Topology
from batonpass.core.state.topology import build_table, is_ready, next_topology, why_not_ready, with_partitions


def weights(named: dict[str, float]) -> dict[TaskId, float]:
    """Return weights by task."""
    return {TaskId(task): weight for task, weight in named.items()}


def test_the_table_lists_tasks_by_subtopology_and_partition() -> None:
    parts = (
        Subtopology("10", 1, stateful=False, weight=2.0, epoch=4),
        Subtopology("b", 1, epoch=3),
        Subtopology("2", 2, weight=0.5, epoch=1),
    )
    assert build_table(Topology(4, parts)) == TaskTable(
        ids=("2_0", "2_1", "10_0", "b_0"),  # type: ignore[arg-type]
        subtopology=(0, 0, 1, 2),
        stateful=(True, True, False, True),
        weight=(0.5, 0.5, 2.0, 1.0),
        topology_epoch=(1, 1, 4, 3),
    )


def test_a_task_weighs_what_is_said_of_it_alone() -> None:
    parts = (Subtopology("0", 3, weight=2.0, task_weights=weights({"0_1": 5.0, "0_7": 9.0})), Subtopology("1", 2))
    table = build_table(Topology(1, parts))
    assert dict(zip(table.ids, table.weight, strict=True)) == {
        "0_0": 2.0,
        "0_1": 5.0,
        "0_2": 2.0,
        "1_0": 1.0,
        "1_1": 1.0,
    }
    assert not table.uniform


def test_weights_of_tasks_that_are_not_there_are_refused_by_path() -> None:
    foreign = weights({"0_0": 2.0, "0_2": 2.0, "1_0": 2.0, "0_01": 2.0})
    with pytest.raises(InvalidTopology) as refused:
        next_topology(Topology(), Topology(1, (Subtopology("0", 2, task_weights=foreign), Subtopology("1", 2))))
    path = "topology.subtopologies[0].task_weights"
    assert dict(refused.value.errors) == {
        f"{path}.0_2": "there is no task 0_2: subtopology 0 has 2 partitions, up to 0_1",
        f"{path}.1_0": "1_0 is no task of subtopology 0; name it in its own",
        f"{path}.0_01": "'0_01' is not a task id; without the zeros before its partition it is 0_1",
    }


def test_a_partition_that_kafka_is_still_to_have_may_be_weighed() -> None:
    part = Subtopology("0", source_topics=("orders",), task_weights=weights({"0_2": 4.0}))
    topology = with_partitions(next_topology(Topology(), Topology(1, (part,))), {"orders": 2})
    assert build_table(topology).weight == (1.0, 1.0)
    assert build_table(with_partitions(topology, {"orders": 3})).weight == (1.0, 1.0, 4.0)


def test_a_weight_of_a_task_is_a_change_of_its_part_under_any_epoch() -> None:
    before = next_topology(Topology(), Topology(1, (Subtopology("0", 2), Subtopology("1", 2))))
    heavy = weights({"0_1": 3.0})
    wanted = (Subtopology("0", 2, task_weights=heavy), Subtopology("1", 2))
    for epoch in (1, 2):
        after = next_topology(before, Topology(epoch, wanted))
        assert [part.epoch for part in after.subtopologies] == [epoch, 1]
        assert build_table(after).weight == (1.0, 3.0, 1.0, 1.0)


def test_a_part_without_known_partitions_has_no_tasks() -> None:
    assert build_table(Topology(1, (Subtopology("0"),))) is EMPTY_TABLE
    assert build_table(Topology()) is EMPTY_TABLE


def test_a_topology_is_ready_when_every_partition_count_is_known() -> None:
    known, unknown = Subtopology("0", 3), Subtopology("1", source_topics=("orders", "users"))
    assert is_ready(Topology(1, (known,)))
    assert why_not_ready(Topology(1, (known,))) == ""
    assert not is_ready(Topology(1, (known, unknown)))
    assert "1 (orders, users)" in why_not_ready(Topology(1, (known, unknown)))
    assert "2 (no source topics)" in why_not_ready(Topology(1, (Subtopology("2"),)))
    assert not is_ready(Topology())
    assert "no subtopologies" in why_not_ready(Topology())


def test_few_of_many_topics_that_are_awaited_are_named() -> None:
    """Every answer to a member says it, and there may be ten thousand of them."""
    many = Topology(1, tuple(Subtopology(f"{one}", source_topics=(f"t{one}",) * 1_000) for one in range(1_000)))
    said = why_not_ready(many)
    assert said.endswith("4 (t4, t4, t4, t4, t4) and 995 more")
    assert len(said) < 200


def test_parts_that_stay_as_they_are_keep_their_epoch() -> None:
    """So old programs keep what they know."""
    before = next_topology(Topology(), Topology(1, (Subtopology("0", 2), Subtopology("1", 2))))
    after = next_topology(
        before, Topology(2, (Subtopology("2", 1), Subtopology("1", 2, weight=3.0), Subtopology("0", 2)))
    )
    assert after == Topology(
        2, (Subtopology("0", 2, epoch=1), Subtopology("1", 2, weight=3.0, epoch=2), Subtopology("2", 1, epoch=2))
    )


def test_more_partitions_are_no_new_program() -> None:
    before = next_topology(Topology(), Topology(1, (Subtopology("0", 2),)))
    assert next_topology(before, Topology(5, (Subtopology("0", 3),))) == Topology(5, (Subtopology("0", 3, epoch=1),))


def test_partitions_left_out_stay_as_known() -> None:
    before = next_topology(Topology(), Topology(1, (Subtopology("0", 2),)))
    assert next_topology(before, Topology(1, (Subtopology("0"),))) == before
    unknown = next_topology(Topology(), Topology(1, (Subtopology("0"),)))
    assert next_topology(unknown, Topology(1, (Subtopology("0", 4),))) == Topology(1, (Subtopology("0", 4, epoch=1),))


def test_fewer_partitions_are_refused_by_path() -> None:
    before = next_topology(Topology(), Topology(1, (Subtopology("0", 4), Subtopology("1", 4))))
    with pytest.raises(InvalidTopology) as refused:
        next_topology(before, Topology(2, (Subtopology("1", 5), Subtopology("0", 3))))
    assert [path for path, _ in refused.value.errors] == ["topology.subtopologies[1].partitions"]
    assert "4 partitions" in refused.value.detail


def test_an_epoch_that_goes_back_is_refused() -> None:
    before = next_topology(Topology(), Topology(3, (Subtopology("0", 1),)))
    assert next_topology(before, before) == before
    with pytest.raises(InvalidTopology) as refused:
        next_topology(before, Topology(2, (Subtopology("0", 1),)))
    assert [path for path, _ in refused.value.errors] == ["topology.epoch"]


def test_partition_counts_are_the_highest_of_the_source_topics() -> None:
    """Protocol 2.2."""
    parts = (
        Subtopology("0", None, source_topics=("a", "b")),
        Subtopology("1", 5, source_topics=("a",)),
        Subtopology("2", 2, source_topics=("absent",)),
        Subtopology("3", None, source_topics=("absent",)),
    )
    after = with_partitions(Topology(1, parts), {"a": 3, "b": 4, "unrelated": 9})
    assert [part.partitions for part in after.subtopologies] == [4, 5, 2, None]
    assert after.epoch == 1
    assert with_partitions(after, {"a": 3, "b": 4}) == after
