"""What is written to standard error: JSON lines for machines, readable ones for people, each with its causal id.

One line for each command, generation and defect, one for each class of refusal now and then; none for a heartbeat.
"""

import logging
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

from batonpass.runtime.ports import Observer
from batonpass.terminal import printable, printable_lines

if TYPE_CHECKING:
    from batonpass.core.state.errors import ProtocolError
    from batonpass.core.state.ids import GroupId
    from batonpass.core.state.inputs import Input
    from batonpass.invariants import Violation
    from batonpass.runtime.history import Asked
    from batonpass.runtime.ports import Commit

REFUSALS_EVERY_S: Final = 10.0
"""How often refusals of one class, and a library's warnings of one text, are written at most; the line says how many
there were since the last one."""

PASSING: Final = ("NotLeaderForPartition", "LeaderNotAvailable", "GroupCoordinatorNotAvailable")
"""Errors that Kafka's client meets while a partition gets a leader, or a group its coordinator. It tries again by
itself; if that does not help it fails with another error, which is logged."""

WORRYING: Final = {"lease-lost", "lease-not-renewed", "database-clock-moved", "group-locked"}
CLASSES_MAX: Final = 1_000
NOT_ADMITTED: Final = frozenset({401, 403, 413, 429})
"""The statuses of calls without a token, without the right, too large, or too often."""

READER_PATIENCE_MS: Final = 200
"""How long a line waits for room in a pipe, unless the one before it waited in vain."""
PIECE: Final = select.PIPE_BUF // 4
"""How many characters are written at once. In UTF-8 a character has up to four bytes, and in a pipe that is ready so
many bytes wait for nobody."""

REPR_MAX: Final = 2_000
PLACES_MAX: Final = 5
"""How many of many partitions one line names."""
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(
    form: str = "auto",
    level: str = "info",
    stream: TextIO | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Have all logs written to standard error (or ``stream``), those of other libraries included, in one form.

    ``form`` is ``json``, ``console``, or ``auto``: for people where the stream is a terminal.
    """
    given = stream or sys.stderr
    for_people = form == "console" or (form == "auto" and given.isatty())
    out = _Unfailing(given)
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    ending: list[Any] = [structlog.processors.JSONRenderer(default=str)]
    if for_people:
        renderer = structlog.dev.ConsoleRenderer(
            colors=given.isatty(), timestamp_key="at", exception_formatter=structlog.dev.plain_traceback
        )
        ending = [_show, renderer]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", out)),
        cache_logger_on_first_use=False,
    )
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        # If it is started in another way, the server sets up a form of its own.
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(logging.NOTSET)
    passed_on = _ToStructlog(monotonic)
    if level != "debug":
        passed_on.addFilter(_is_news)
    logging.basicConfig(handlers=[passed_on], level=max(_LEVELS[level], logging.WARNING), force=True)


def _show(_logger: Any, _method: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Make callers' text safe for a terminal. JSON has it escaped, and values other than text are shown by `repr`."""
    return {
        name: value if not isinstance(value, str) else (printable_lines if name == "exception" else printable)(value)
        for name, value in said.items()
    }


class _Unfailing:
    """A stream whose reader may be gone, or read no more: what cannot be written is lost, and the writer goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._patience_ms = READER_PATIENCE_MS

    def write(self, text: str) -> int:
        for start in range(0, len(text), PIECE):
            try:
                if not self._has_room():
                    return start
                self._stream.write(text[start : start + PIECE])
                self._stream.flush()
            except (OSError, ValueError):
                return start
        return len(text)

    def _has_room(self) -> bool:
        """Say whether a piece can be written at once. Who reads slowly is waited for, who reads no more only once."""
        try:
            number = self._stream.fileno()
        except (OSError, ValueError):
            return True  # It is no stream of the system's.
        asking = select.poll()
        asking.register(number, select.POLLOUT)
        has_room = bool(asking.poll(self._patience_ms))
        self._patience_ms = READER_PATIENCE_MS if has_room else 0
        return has_room

    def flush(self) -> None:
        """Each piece was flushed."""


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a library's line is worth logging: it is not if it is about an error of ``PASSING``."""
    is_passing = record.name.startswith("aiokafka") and record.levelno <= logging.ERROR
    return not (is_passing and any(name in record.getMessage() for name in PASSING))


class _Seldom:
    """Lets a line pass the first time, and then now and then, with how many like it there were in between."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._passed: dict[tuple[str, str], tuple[float, int]] = {}

    def count(self, key: tuple[str, str]) -> int | None:
        """Return how many were held back since the last line; None: this one is held back too."""
        now = self._monotonic()
        since, count = self._passed.get(key, (now - REFUSALS_EVERY_S, 0))
        if now - since < REFUSALS_EVERY_S:
            self._passed[key] = since, count + 1
            return None
        if len(self._passed) >= CLASSES_MAX:
            self._passed.clear()
        self._passed[key] = now, 0
        return count


class _ToStructlog(logging.Handler):
    """Passes on what libraries write by the standard library's logging.

    Any client that reaches the port can make the server warn of an invalid request, so a warning that comes again and
    again is written once in a while.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._warnings = _Seldom(monotonic)

    def emit(self, record: logging.LogRecord) -> None:
        text, more = record.getMessage(), {}
        if record.levelno == logging.WARNING and not record.exc_info:
            before = self._warnings.count((record.name, text))
            if before is None:
                return
            more = {"before": before} if before else {}
        structlog.get_logger().log(record.levelno, text, logger=record.name, exc_info=record.exc_info or None, **more)


class LoggingObserver(Observer):
    """Writes down generations, commands, refusals at admission, failures of the store, and defects."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log: Any = structlog.get_logger()
        self._refusals = _Seldom(monotonic)

    def committed(self, commit: "Commit", append_ms: float) -> None:
        """Write down a new generation: what led to it, and its moves beside the lower bound."""
        made, asked = commit.history.generation, commit.history.asked
        if made is None:
            return
        self._log.info(
            "generation",
            group=commit.group_id,
            generation=made.number,
            group_epoch=made.group_epoch,
            because=",".join(made.triggers),
            moves=made.moves,
            lower_bound=made.lower_bound,
            warmups=made.warmups,
            members=made.members,
            tasks=made.tasks,
            decide_ms=round(made.decide_ms, 1),
            append_ms=round(append_ms, 1),
            who=asked.who,
            cause=asked.cause,
        )

    def commanded(self, group: str, asked: "Asked") -> None:
        self._log.info(
            "command", group=group, command=asked.command, who=asked.who, reason=asked.reason, cause=asked.cause
        )

    def refused(self, error: "ProtocolError", call: str, who: str, cause: str) -> None:
        """Write down now and then that calls of a class are not admitted, and how many were since the last line."""
        if error.status not in NOT_ADMITTED:
            return
        before = self._refusals.count((error.type, call))
        if before is not None:
            self._log.warning(
                "refused", type=error.type, call=call, who=who, cause=cause, before=before, detail=error.detail
            )

    def failed(self, error: BaseException, call: str, cause: str) -> None:
        self._log.error("failed", call=call, cause=cause, exc_info=error)

    def store_failed(self, group_id: "GroupId", reason: str) -> None:
        """Write down now and then that appends or reads do not go through, and how many were since the last line."""
        before = self._refusals.count((group_id, reason))
        if before is not None:
            self._log.warning("store-failed", group=group_id, reason=reason, before=before)

    def fleet(self, event: str, more: Mapping[str, object]) -> None:
        """Write down what became of this coordinator's lease, or of a group that it took over or let go."""
        write = self._log.warning if event in WORRYING else self._log.info
        write(event, **more)

    def law_broken(self, group_id: "GroupId", item: "Input", violations: "Sequence[Violation]") -> None:
        for violation in violations:
            self._log.error("law-broken", group=group_id, item=type(item).__name__, **violation._asdict())

    def defect(self, group_id: "GroupId", item: "Input", error: Exception) -> None:
        self._log.error("defect", group=group_id, item=repr(item)[:REPR_MAX], exc_info=error)

    def stalled(self, gap_ms: float) -> None:
        self._log.warning("stalled", gap_ms=round(gap_ms))

    def kafka_away(self, reason: str | None) -> None:
        """Write down that Kafka cannot be asked, or (without a reason) that it can be again."""
        if reason is None:
            self._log.info("kafka-back")
        else:
            self._log.warning("kafka-away", reason=reason)

    def kafka_not_listened_to(self, group_id: "GroupId") -> None:
        """Write down that members of a group may speak over Kafka, where this coordinator does not listen."""
        detail = (
            "the group's kafka_heartbeats is on, and BATONPASS_KAFKA_HEARTBEATS is not set here: who speaks over Kafka is"
            " not answered, and members that were not heard here do not expire; set it, or turn the group's off"
        )
        self._log.error("kafka-not-listened-to", group=group_id, detail=detail)

    def changelogs_held_up(self, group_id: "GroupId", begins: Mapping[tuple[str, int], int]) -> None:
        """Write down at which offsets transactions stay open in a group's changelogs, or (without any) that none is."""
        if not begins:
            self._log.info("changelogs-readable", group=group_id)
            return
        places = [f"{topic}-{partition}@{offset}" for (topic, partition), offset in begins.items()]
        detail = "transactions stay open there; no copy can be read beyond them, and no task is handed over"
        self._log.warning(
            "changelogs-held-up", group=group_id, count=len(places), first=places[:PLACES_MAX], detail=detail
        )

    def connections_are_fewer(self, wanted: int, fit: int) -> None:
        """Write down that the system lets this process open too few files for the connections that it may have."""
        detail = (
            f"the limit on open files leaves room for {fit}; raise it (ulimit -Hn, LimitNOFILE), or lower the setting"
        )
        self._log.info("connections-are-fewer", connections_max=wanted, fit=fit, detail=detail)

    def variables_unread(self, names: "Sequence[str]") -> None:
        """Write down which variables look like settings and are none: what they were to set is as it is by default."""
        detail = "nothing reads these variables; docs/settings.md says how each is written"
        self._log.warning("variables-unread", names=names, detail=detail)

    def access_is_off(self) -> None:
        """Write down that every caller may do everything."""
        self._log.warning("access-is-off", detail="BATONPASS_AUTH=off: whoever is on this machine may do everything")
