"""The options of actives."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import ConsumerRecord

from batonpass.worker.options import check_count, check_plain

OnError = Callable[["ConsumerRecord", Exception], str]
"""Says what becomes of a record that could not be processed: ``retry``, ``skip`` or ``dead-letter``."""

ON_ERROR = ("retry", "skip", "dead-letter")


_CHOICES = {
    "start": ("earliest", "latest"),
    "offset_gone": ("fail", "earliest", "latest"),
    "changelog_short": ("fail", "run"),
}
_OF_AIOKAFKA = ("input_options", "changelog_options", "producer_options")
_LEAST = {
    "commit_interval_ms": 0,
    "records_max": 1,
    "transaction_timeout_ms": 1,
    "retry_ms": 0,
    "missing_topic_ms": 0,
    "unable_ms": 0,
    "max_task_idle_ms": 0,
    "delete_retention_ms": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveOptions:
    """How actives work. Durations are milliseconds.

    A transaction is committed ``commit_interval_ms`` after its first record, at ``records_max`` records, or when the
    task is to stop. A broker aborts a transaction that does not end within ``transaction_timeout_ms``. Where no offset
    was committed yet, the input is read from ``start`` (``earliest`` or ``latest``), and tables from their beginning.
    Where the committed offset is not in the input any more, ``offset_gone`` says what to do: ``fail``, or go on from
    ``earliest`` or ``latest``. Where the changelog ends before the place up to which the last owner wrote,
    ``changelog_short`` says: ``fail``, or ``run`` with what there is. After an error of the cluster an active begins
    anew once ``retry_ms`` are over. One whose topics are missing for ``missing_topic_ms`` has failed, and so has one
    that cannot commit for ``unable_ms`` although the cluster answers. Of several sources, one that was read to its end
    holds the others up for ``max_task_idle_ms`` more, in case a record is about to come that is older than theirs
    (KIP-353). Where the worker's own code raises for a record, ``on_error`` says what becomes of it, or is a function
    that does: ``retry`` (the task has failed, and is tried again), ``skip``, or ``dead-letter``, which writes it to
    ``dead_letter_topic`` with the cause in its headers. With ``connect_ahead`` a copy keeps the connections ready that
    it would need as an active, about four, so that its promotion does not wait for them. A copy's age is compared with
    the changelog's own ``delete.retention.ms``, or with ``delete_retention_ms`` if the cluster does not tell it. A
    changelog that is not compacted is refused unless ``uncompacted_changelogs``. The rest are keyword arguments of
    aiokafka's clients. ``load`` is called with an active task and the share of time in which it kept the event loop
    busy, and returns what is reported as its load (protocol 4.11): another number where the work is done elsewhere, as
    in threads. Without it that share is reported, of copies too. ``clock`` gives milliseconds since 1970, by which the
    age of state is measured.

    Raises:
        TypeError: for options of aiokafka's that are no mapping, and for a function that is ``async``.
        ValueError: for a number that means nothing, or a choice that there is not.
    """

    commit_interval_ms: int = 100
    records_max: int = 5_000
    transaction_timeout_ms: int = 60_000
    start: str = "earliest"
    offset_gone: str = "fail"
    changelog_short: str = "fail"
    retry_ms: int = 500
    missing_topic_ms: int = 30_000
    unable_ms: int = 300_000
    connect_ahead: bool = True
    max_task_idle_ms: int = 0
    on_error: str | OnError = "retry"
    dead_letter_topic: str = ""
    delete_retention_ms: int = 86_400_000
    uncompacted_changelogs: bool = False
    input_options: Mapping[str, Any] = field(default_factory=dict)
    changelog_options: Mapping[str, Any] = field(default_factory=dict)
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    load: Callable[[str, float], float] | None = None
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def __post_init__(self) -> None:
        """Refuse a number that means nothing, and a choice that there is not."""
        for name, least in _LEAST.items():
            check_count(name, getattr(self, name), least)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}, and not {getattr(self, name)!r}")
        for name in _OF_AIOKAFKA:
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(
                    f"{name} maps keyword arguments of aiokafka to values; it is {getattr(self, name)!r}: leave it out for none"
                )
        if self.commit_interval_ms >= self.transaction_timeout_ms:
            raise ValueError(
                f"a transaction is committed after commit_interval_ms, {self.commit_interval_ms}, and a broker aborts it "
                f"after transaction_timeout_ms, {self.transaction_timeout_ms}: that has to be more"
            )
        check_plain(self, "on_error", "load", "clock")
        if not callable(self.on_error):
            self._checked(self.on_error)

    def what_becomes_of(self, record: ConsumerRecord, error: Exception) -> str:
        """Return what `on_error` says of a record.

        Raises:
            ValueError: when it says what there is not.
            Exception: what it raises itself.
        """
        return self._checked(self.on_error(record, error)) if callable(self.on_error) else self.on_error

    def _checked(self, choice: str) -> str:
        if choice not in ON_ERROR:
            raise ValueError(
                f"on_error is one of {', '.join(ON_ERROR)}, or a function that returns one, and not {choice!r}"
            )
        if choice == "dead-letter" and not self.dead_letter_topic:
            raise ValueError("on_error is dead-letter, and nothing says where to: name a dead_letter_topic")
        return choice
