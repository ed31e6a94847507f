"""What the tasks of a subtopology of an `App` do with each record: first what time has come for, then its functions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from batonpass.worker.kafka.timers import FIRST, Timers
from batonpass.worker.kafka.transaction import Context, Writer
from batonpass.worker.kafka.typed import State, Table, Timer, Topic, read_state
from batonpass.worker.kafka.wall_clock import Punctuation, next_multiple

Function = Callable[..., Awaitable[None]]
"""A function of the worker's own; `App` has its types."""

TIMERS = "batonpass-timers"
"""The store of a task's timers."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that is called with the records of a topic, and with the state of their keys if it wants that."""

    topic: Topic[Any, Any]
    function: Function
    state: Table[Any, Any] | None


@dataclass(slots=True)
class Steps:
    """What happens in the tasks of one subtopology.

    ``tables`` are the topics that are kept as tables, ``calls`` the functions for records, each by topic;
    ``on_timer`` has the functions for timers by the name of their table, with the table, and ``every`` those that are
    called every so many milliseconds of stream time, by their names; ``by_clock`` those of wall-clock time.
    """

    tables: dict[str, Topic[Any, Any]] = field(default_factory=dict)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    on_timer: dict[str, tuple[Table[Any, Any], Function]] = field(default_factory=dict)
    every: dict[str, tuple[int, Punctuation]] = field(default_factory=dict)
    by_clock: dict[str, tuple[int, Punctuation]] = field(default_factory=dict)
    _timers: WeakKeyDictionary[Context, Timers] = field(default_factory=WeakKeyDictionary)
    # Where the index of timers begins, as long as the same producer writes: then nobody else does.
    _earliest: WeakKeyDictionary[Writer, bytes] = field(default_factory=WeakKeyDictionary)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.tables | self.calls)

    @property
    def has_time(self) -> bool:
        return bool(self.on_timer or self.every)

    async def process(self, raw: Any, context: Context) -> None:
        """Process one record.

        Records of topics that are only tables do not move stream time: all of them are read before the first of the
        others. Where more timers are due than one transaction takes, it ends before the record.
        """
        if raw.topic in self.tables:
            _fill(self.tables[raw.topic], raw, context)
        if raw.topic not in self.calls:
            return
        # One that cannot be read lets no time pass.
        records = [(call, call.topic.record(raw)) for call in self.calls[raw.topic]]
        if self.has_time:
            await self._pass_time(raw.timestamp, context)
        if context.is_cut:
            return
        for call, record in records:
            if call.state is None:
                await call.function(record, context)
            else:
                await call.function(record, context, self._state(call.state, context, record.key))

    async def _pass_time(self, to_ms: int, context: Context) -> None:
        timers = self._timers_of(context)
        for due in timers.advance(to_ms):
            if due is not None:
                await self._fire(*due, timers, context)
            await context.turn()
            if not context.has_room():
                context.is_cut = True
                return
        for function_name, (every_ms, _) in self.every.items():
            owner = b"\0" + function_name.encode()
            if timers.of(owner) is None:
                timers.set(owner, next_multiple(timers.now_ms, every_ms))

    async def _fire(self, at_ms: int, owner: bytes, timers: Timers, context: Context) -> None:
        name, _, key = owner.partition(b"\0")
        if not name:
            await self._call_every(key, at_ms, timers, context)
        else:
            table, function = self.on_timer[name.decode()]
            of = read_state(table, table.key, key, key)
            with context.calling_for_time(f"for the timer of table {table.name}, key {of!r:.100}, at {at_ms} ms"):
                await function(Timer(of, at_ms), context, self._state(table, context, of))

    async def _call_every(self, name: bytes, at_ms: int, timers: Timers, context: Context) -> None:
        if name.decode() not in self.every:
            # An earlier release had it.
            return
        every_ms, function = self.every[name.decode()]
        timers.set(b"\0" + name, next_multiple(timers.now_ms, every_ms))
        with context.calling_for_time(f"while it called {name.decode()} for {at_ms} ms of stream time"):
            await function(at_ms, context)

    def _state(self, table: Table[Any, Any], context: Context, key: Any) -> State[Any]:
        timers = self._timers_of(context) if table.name in self.on_timer else None
        return State(table, context.store(table), key, timers)

    def _timers_of(self, context: Context) -> Timers:
        timers = self._timers.get(context)
        if timers is None:
            by = context._producer  # noqa: SLF001 - no matter of the worker's own code
            earliest = self._earliest.get(by, FIRST)
            made = timers = self._timers[context] = Timers(context.store(TIMERS), earliest, self._has_function)
            context.when_applied.append(lambda: self._earliest.update({by: made.earliest}))
        return timers

    def _has_function(self, owner: bytes) -> bool:
        """Say whether anything is called for a timer; if not, another release may have set it, which may come back."""
        name = owner.partition(b"\0")[0].decode()
        return not name or name in self.on_timer


def _fill(topic: Topic[Any, Any], raw: Any, context: Context) -> None:
    store = context.store(topic.name)
    if raw.value is None:
        store.delete(raw.key)
    else:
        # Read once, so that whoever looks it up later finds what the topic says.
        topic.record(raw)
        store.put(raw.key, raw.value)
