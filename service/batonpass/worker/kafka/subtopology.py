"""What a worker does with the tasks of each subtopology, and which jobs are refused because they would count wrong."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType

from aiokafka import ConsumerRecord

from batonpass.worker.kafka.topics import MissingPartition
from batonpass.worker.kafka.transaction import Context
from batonpass.worker.kafka.wall_clock import ByClock
from batonpass.worker.options import check_count

Process = Callable[["ConsumerRecord", "Context"], Awaitable[None]]
"""The worker's own code, called for one input record. If it raises, the transaction is aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """What a worker does with the tasks of one subtopology.

    A task reads the partition of its own number from every topic in ``sources``. They must have equally many
    partitions, or a key would be with one task in one source and with another in the next; with ``copartitioned`` false
    they may differ, and a task reads those that have its number. Records of several sources are processed by their
    timestamps (``max_task_idle_ms``); sources that ``tables`` names are read to their end first.
    ``by_clock`` are functions by their names, each with the interval in milliseconds at which it is called by the
    clock, in a transaction of the task. ``changelogs`` names
    the changelog topic of each store; without any, the tasks are stateless. ``outputs`` names topics that ``process``
    writes to; for one that is not named, a new owner has to ask the cluster before its first record.

    Raises:
        TypeError: for a value of another type, such as a string in place of a tuple, or a ``process`` that is not
            ``async``.
        ValueError: for topics that are named where they may not be.
    """

    sources: tuple[str, ...]
    process: Process
    changelogs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    copartitioned: bool = True
    tables: tuple[str, ...] = ()
    by_clock: ByClock = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what could only count wrong, or nothing at all."""
        _check_names("sources", self.sources)
        _check_names("outputs", self.outputs)
        _check_names("tables", self.tables)
        if others := set(self.tables).difference(self.sources):
            raise ValueError(f"tables names {', '.join(sorted(others))}, which is no source: name it in both")
        if not self.sources:
            raise ValueError("sources is empty: name the topics that the tasks read")
        if not isinstance(self.changelogs, Mapping):
            raise TypeError(f'changelogs maps stores to topics, as in {{"store": "topic"}}; it is {self.changelogs!r}')
        _check_names("changelogs", tuple(self.changelogs))
        _check_names("changelogs", self.changelog_topics)
        check_process(self.process, "record", "context")
        for every_ms, function in self.by_clock.values():
            check_count("every_ms", every_ms)
            check_process(function, "at_ms", "context")
        for topic in self.changelog_topics:
            if topic in self.sources or topic in self.outputs:
                where = "a source" if topic in self.sources else "an output"
                raise ValueError(f"{topic} is a changelog and {where}: only the store's own changes may be in there")

    @property
    def changelog_topics(self) -> tuple[str, ...]:
        """The changelog topics, in the order of the stores."""
        return tuple(self.changelogs.values())


def check_job(subtopologies: Mapping[str, Subtopology], dead_letter_topic: str = "") -> None:
    """Refuse subtopologies that would disturb one another, or that dead letters would disturb.

    Raises:
        ValueError: when two read one source, because the offsets that one commits would be the other's too; when a
            changelog is named twice; or when dead letters would be read again, or be taken for state.
    """
    reads: dict[str, str] = {}
    keeps: dict[str, str] = {}
    for name, part in sorted(subtopologies.items()):
        for topic in part.sources:
            if topic in reads:
                raise ValueError(
                    f"subtopologies {reads[topic]} and {name} both read {topic}, and would share its committed offsets: "
                    "after a restart records are skipped or counted twice. Read it in one of them, which does both or "
                    "passes the records on, or make the second a group of its own"
                )
            reads[topic] = name
        for topic in part.changelog_topics:
            if topic in keeps:
                raise ValueError(
                    f"subtopologies {keeps[topic]} and {name} both have the changelog {topic}: give each a topic of its own"
                )
            keeps[topic] = name
    if dead_letter_topic in reads | keeps:
        raise ValueError(
            f"dead_letter_topic {dead_letter_topic} is a source or a changelog: what cannot be processed would come back for "
            "ever, or be taken for state. Give it a topic of its own"
        )
    for name, part in sorted(subtopologies.items()):
        for topic in part.outputs:
            if topic in keeps:
                raise ValueError(
                    f"{topic} is an output of subtopology {name} and a changelog of {keeps[topic]}: only the store's own "
                    "changes may be in there"
                )


def check_partitions(part: Subtopology, known: Mapping[str, Collection[int]]) -> None:
    """Refuse topics whose partitions do not fit together. ``known`` has the partitions of sources and changelogs.

    Raises:
        MissingPartition: naming the topics and how many partitions they have. It is one of the errors after which a
            task tries again, for somebody may be adding partitions to one topic after the other.
    """
    counts = {topic: len(known[topic]) for topic in part.sources}
    if part.copartitioned and len(set(counts.values())) > 1:
        raise MissingPartition(
            f"the sources have unequally many partitions ({_listed(counts)}), so that a key is not with the same task in "
            "each: make them equal; or, if no two of them are joined, read them in subtopologies of their own, or say "
            "copartitioned=False"
        )
    wanted = max(counts.values())
    others = {topic: len(known[topic]) for topic in part.changelog_topics if len(known[topic]) != wanted}
    if others:
        raise MissingPartition(
            f"the tasks are as many as {', '.join(part.sources)} has partitions, {wanted}, and a changelog has another number "
            f"({_listed(others)}): make it with {wanted}, if there is no state yet. A source that got more partitions has "
            "keys with other tasks now than their state: write it to a new topic, and read that under a new group id"
        )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} has {count}" for topic, count in counts.items())


def _check_names(where: str, names: object) -> None:
    if isinstance(names, str) or not isinstance(names, (tuple, list)):
        raise TypeError(f"{where} is a tuple of topics, as in ({names!r},); it is {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{where} has {name!r}, which is no string")
        if not name:
            raise ValueError(f"{where} has an empty name")
        if names.count(name) > 1:
            raise ValueError(f"{where} names {name} more than once")


def check_process(process: object, *arguments: str) -> None:
    """Refuse what cannot be awaited, or be called with these arguments.

    Raises:
        TypeError: saying what to write instead.
    """
    if not callable(process):
        raise TypeError(f"process is {process!r}, which cannot be called")
    function: object = process
    while isinstance(function, partial):
        function = function.func
    if not isinstance(function, type | FunctionType | MethodType):
        # An object is called by what its class says.
        function = inspect.getattr_static(function, "__call__", function)
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", function)
    # What is no function, such as one that was compiled, may return something that can be awaited.
    if isinstance(function, FunctionType) and not inspect.iscoroutinefunction(function):
        raise TypeError(
            f"process {name!r} is no coroutine function: write `async def`, without `yield`, and no lambda "
            "(functools.partial binds arguments); give work that blocks to asyncio.to_thread"
        )
    try:
        inspect.signature(process).bind(*arguments)
    except TypeError:
        raise TypeError(
            f"{name!r} is called with {', '.join(arguments)}, and does not take these {len(arguments)} arguments"
        ) from None
