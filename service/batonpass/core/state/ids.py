"""The ids of groups, members and tasks.

At run time they are plain strings, which cost nothing and travel as JSON. Their types keep them apart for the reader
and the type checker.
"""

from typing import NewType

GroupId = NewType("GroupId", str)
"""The name of one group: the members that share one set of tasks."""

MemberId = NewType("MemberId", str)
"""One run of one worker process. The caller chooses it, and never uses it twice."""

InstanceId = NewType("InstanceId", str)
"""A name that survives restarts of a worker (static membership, KIP-345)."""

HostId = NewType("HostId", str)
"""Where a member runs, as far as is known: its instance id, or without one its member id."""

TaskId = NewType("TaskId", str)
"""One partition of one subtopology, written ``{subtopology}_{partition}``."""


def task_id(subtopology: str, partition: int) -> TaskId:
    return TaskId(f"{subtopology}_{partition}")


def split_task_id(task: str) -> tuple[str, int]:
    """Return the subtopology and the partition of a task id.

    Raises:
        ValueError: the text is not ``{subtopology}_{partition}``. The partition has plain digits and no leading zeros,
            so that each task has one id.
    """
    subtopology, separator, partition = task.rpartition("_")
    if not separator or not subtopology or not partition.isascii() or not partition.isdigit():
        message = f"{task!r} is not a task id; expected {{subtopology}}_{{partition}}, for example 0_3"
        raise ValueError(message)
    if partition != "0" and partition.startswith("0"):
        message = (
            f"{task!r} is not a task id; without the zeros before its partition it is {subtopology}_{int(partition)}"
        )
        raise ValueError(message)
    return subtopology, int(partition)


def subtopology_sort_key(subtopology: str) -> tuple[int, int, str]:
    """Return a sort key that puts numbered subtopologies, in the order of their numbers, before named ones."""
    if subtopology.isascii() and subtopology.isdigit():
        return (0, int(subtopology), subtopology)
    return (1, 0, subtopology)


def task_sort_key(task: str) -> tuple[tuple[int, int, str], int]:
    """Return the sort key of a task: subtopology first, then partition."""
    subtopology, partition = split_task_id(task)
    return (subtopology_sort_key(subtopology), partition)
