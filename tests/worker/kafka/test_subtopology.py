"""A job that would count wrong is refused, with what to do: when it is put together, or before a task of it runs."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from tests.waiting import until
from tests.worker.kafka.test_reader_and_store import ended
from tests.worker.kafka.totals import NewTopics, Owner, new_job, write

from batonpass.codec.requests import OWN_NUMBERS
from batonpass.worker.kafka import ActiveOptions, Context, KafkaConnection, KafkaRuntime, Process, Subtopology
from batonpass.worker.kafka.subtopology import check_partitions
from batonpass.worker.kafka.topics import MissingPartition
from batonpass.worker.protocol import Role


async def count(record: ConsumerRecord, context: Context) -> None:
    """Do nothing."""


def blocking(record: ConsumerRecord, context: Context) -> None:
    """Do nothing, and not as a coroutine."""


async def yielding(record: ConsumerRecord, context: Context) -> Any:
    """Yield, which makes it no coroutine."""
    yield record


class Counter:
    """Code of one's own in an object."""

    async def process(self, record: ConsumerRecord, context: Context) -> None:
        """Do nothing."""

    async def __call__(self, record: ConsumerRecord, context: Context) -> None:
        """Do nothing."""


class Blocking:
    """The same, and not as a coroutine."""

    def __call__(self, record: ConsumerRecord, context: Context) -> None:
        """Do nothing."""


GOOD: dict[str, Any] = {"sources": ("clicks",), "process": count}
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a string for a tuple of sources": ({"sources": "clicks"}, TypeError, "as in ('clicks',)"),
    "a string for a tuple of outputs": ({"outputs": "sums"}, TypeError, "as in ('sums',)"),
    "a set, which has no order": ({"sources": {"clicks"}}, TypeError, "sources is a tuple"),
    "no source": ({"sources": ()}, ValueError, "sources is empty"),
    "a source without a name": ({"sources": ("",)}, ValueError, "empty name"),
    "a source that is no string": ({"sources": (b"clicks",)}, TypeError, "b'clicks'"),
    "a source twice": ({"sources": ("clicks", "clicks")}, ValueError, "clicks more than once"),
    "changelogs without stores": ({"changelogs": ("c",)}, TypeError, "maps stores to topics"),
    "two stores of one changelog": ({"changelogs": {"a": "c", "b": "c"}}, ValueError, "c more than once"),
    "a changelog that is a source": ({"changelogs": {"a": "clicks"}}, ValueError, "a changelog and a source"),
    "a changelog that is an output": (
        {"changelogs": {"a": "c"}, "outputs": ("c",)},
        ValueError,
        "a changelog and an output",
    ),
    "a function that is not async": ({"process": blocking}, TypeError, "'blocking' is no coroutine function"),
    "an object that is called and is not async": (
        {"process": Blocking()},
        TypeError,
        "__call__' is no coroutine function",
    ),
    "a part of one": ({"process": partial(blocking)}, TypeError, "'blocking' is no coroutine function"),
    "a lambda, which may forget to return what is to be awaited": (
        {"process": lambda *given: count(*given)},  # noqa: PLW0108 - what is refused
        TypeError,
        "and no lambda (functools.partial binds arguments)",
    ),
    "a function that yields": ({"process": yielding}, TypeError, "'yielding' is no coroutine function"),
    "nothing to call": ({"process": None}, TypeError, "cannot be called"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_subtopology_that_cannot_be_meant_is_refused(case: str) -> None:
    wrong, error, says = REFUSED[case]
    with pytest.raises(error) as refused:
        Subtopology(**(GOOD | wrong))
    assert says in str(refused.value)


@pytest.mark.parametrize("process", [count, partial(count), Counter().process, Counter()])
def test_whatever_can_be_awaited_processes(process: Process) -> None:
    assert Subtopology(sources=("clicks",), process=process).process is process


def part(source: str, **more: Any) -> Subtopology:
    return Subtopology(sources=(source,), process=count, **more)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"0": part("a"), "1": part("a")}, "subtopologies 0 and 1 both read a"),
        ({"0": part("a", changelogs={"x": "c"}), "1": part("b", changelogs={"y": "c"})}, "both have the changelog c"),
        ({"0": part("a", outputs=("c",)), "1": part("b", changelogs={"y": "c"})}, "an output of subtopology 0"),
    ],
)
def test_subtopologies_that_would_disturb_one_another_are_refused(
    parts: Mapping[str, Subtopology], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=says):
        KafkaRuntime(KafkaConnection(bootstrap_servers="localhost:9"), "g", parts, folder=tmp_path)


def test_subtopologies_may_be_chained(tmp_path: Path) -> None:
    chained = {"0": part("a", outputs=("b",)), "1": part("b", changelogs={"y": "c"})}
    KafkaRuntime(KafkaConnection(bootstrap_servers="localhost:9"), "g", chained, folder=tmp_path)


async def test_a_worker_on_kafka_says_of_itself_what_heartbeats_have_a_number_for(tmp_path: Path) -> None:
    runtime = KafkaRuntime(KafkaConnection(bootstrap_servers="localhost:9"), "g", {"0": part("a")}, folder=tmp_path)
    assert (await runtime.numbers()).keys() == OWN_NUMBERS, "`KafkaRuntime.numbers` measures it (protocol 4.5)"


@pytest.mark.parametrize(
    ("counts", "copartitioned", "says"),
    [
        ({"a": 8, "b": 4, "c": 8}, True, "unequally many partitions (a has 8, b has 4)"),
        ({"a": 8, "b": 8, "c": 4}, True, "a changelog has another number (c has 4)"),
        ({"a": 4, "b": 4, "c": 8}, True, "(c has 8): make it with 4, if there is no state yet"),
        ({"a": 8, "b": 8, "c": 4}, True, "write it to a new topic, and read that under a new group id"),
        ({"a": 8, "b": 4, "c": 4}, False, "(c has 4): make it with 8"),
        ({"a": 8, "b": 8, "c": 8}, True, ""),
        ({"a": 8, "b": 4, "c": 8}, False, ""),
    ],
)
def test_partitions_have_to_fit(counts: dict[str, int], *, copartitioned: bool, says: str) -> None:
    both = Subtopology(sources=("a", "b"), process=count, changelogs={"store": "c"}, copartitioned=copartitioned)
    known = {topic: range(number) for topic, number in counts.items()}
    if not says:
        check_partitions(both, known)
        return
    with pytest.raises(MissingPartition) as refused:
        check_partitions(both, known)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "wrong", [{"records_max": 0}, {"retry_ms": -1}, {"commit_interval_ms": 0.1}, {"retry_ms": True}]
)
def test_a_number_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is a whole number from "):
        ActiveOptions(**wrong)


@pytest.mark.parametrize("name", ["input_options", "changelog_options", "producer_options"])
def test_options_of_aiokafka_are_a_mapping_or_left_out(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"{name} maps keyword arguments of aiokafka to values; it is None: leave it out"
    ):
        ActiveOptions(**{name: None})  # type: ignore[arg-type]


def test_a_transaction_that_a_broker_aborts_before_it_is_committed_is_refused() -> None:
    """Each would be, and the task would say that somebody else has it."""
    with pytest.raises(ValueError, match=r"commit_interval_ms, 60000, .* transaction_timeout_ms, 60000: "):
        ActiveOptions(commit_interval_ms=60_000)


@pytest.mark.needs("kafka")
async def test_a_task_waits_for_its_topics_to_fit_and_then_runs(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = await new_job(bootstrap, new_topic)
    other = await new_topic("other", partitions=2)
    both = dataclasses.replace(job.subtopology("a"), sources=(job.source, other))
    runtime = KafkaRuntime(
        job.connection,
        job.group,
        {"0": both},
        folder=tmp_path,
        options=ActiveOptions(retry_ms=50, missing_topic_ms=60_000),
    )
    one = Owner(runtime)
    one.hold("0_0", Role.ACTIVE)
    await until(lambda: "unequally many partitions" in caplog.text)
    assert one.states == []
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_partitions({job.source: NewPartitions(2)})
    await until(lambda: "a changelog has another number" in caplog.text)
    await admin.create_partitions({job.changelog: NewPartitions(2)})
    await admin.close()
    await until(lambda: one.states == ["running"])
    await one.close()


@pytest.mark.needs("kafka")
async def test_an_error_names_the_record_that_was_not_processed(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path
) -> None:
    job = await new_job(bootstrap, new_topic)
    await write(job, 3, keys=2)

    async def refuse(record: ConsumerRecord, context: Context) -> None:
        if record.offset == 1:
            raise ValueError("no amount")

    one = Owner(job.runtime(tmp_path, "a", process=refuse))
    one.hold("0_0", Role.ACTIVE)
    error = await ended(one)
    assert error.__notes__ == [f"in {job.source}-0 at offset 1, key b'k1'"]
    await one.close()
