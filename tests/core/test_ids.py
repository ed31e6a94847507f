"""Task ids: how they are written, read and put in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.core.state.ids import split_task_id, subtopology_sort_key, task_id, task_sort_key


@pytest.mark.parametrize(
    ("subtopology", "partition", "text"),
    [("0", 3, "0_3"), ("orders", 0, "orders_0"), ("a_b", 12, "a_b_12"), ("_", 1, "__1")],
)
def test_a_task_id_names_its_subtopology_and_partition(subtopology: str, partition: int, text: str) -> None:
    assert task_id(subtopology, partition) == text
    assert split_task_id(text) == (subtopology, partition)


@pytest.mark.no_cover
@given(st.text(min_size=1), st.integers(min_value=0, max_value=10**6))
def test_any_subtopology_name_survives_in_a_task_id(subtopology: str, partition: int) -> None:
    assert split_task_id(task_id(subtopology, partition)) == (subtopology, partition)


@pytest.mark.parametrize(
    "text", ["", "0", "_3", "0_", "0_x", "0_-1", "0_1.5", "0_٣", "0_²", "0_ 1", "0_+1", "0_00", "0_07"]
)
def test_what_is_not_a_task_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a task id") as refused:
        split_task_id(text)
    assert repr(text) in str(refused.value)


def test_numbered_subtopologies_come_in_the_order_of_their_numbers() -> None:
    names = ["b", "10", "9", "a", "0", "٣"]
    assert sorted(names, key=subtopology_sort_key) == ["0", "9", "10", "a", "b", "٣"]


def test_equal_numbers_written_differently_keep_one_order() -> None:
    assert sorted(["1", "01"], key=subtopology_sort_key) == sorted(["01", "1"], key=subtopology_sort_key)


def test_tasks_come_by_subtopology_and_then_by_partition() -> None:
    tasks = ["1_0", "0_10", "x_2", "0_9", "10_0", "0_0"]
    assert sorted(tasks, key=task_sort_key) == ["0_0", "0_9", "0_10", "1_0", "10_0", "x_2"]
