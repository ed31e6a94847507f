"""Calls that fail: which, how, and where a worker's calls to store, disk, broker and coordinator are met."""

import asyncio
import functools
import inspect
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Never

import httpx2 as httpx
import pytest
import rocksdict
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaTimeoutError

from batonpass.worker.kafka import RocksStore
from batonpass.worker.kafka.stores import Change
from batonpass.worker.kafka.transaction import Producer


class Mode(StrEnum):
    """How a call fails."""

    RAISES = "raises"
    AFTER = "raises-after"
    """It takes effect, and then raises."""
    HANGS = "hangs"
    """It does not return: until its own limit, if the client has one for it, else until its caller gives it up."""
    STICKS = "sticks"
    """It raises, and so does every later call of this store, as with RocksDB after a write that found no space: until
    it is closed, and another one is opened in its folder."""
    HELD = "held"
    """It comes while somebody else is in the middle of a scan of the store, for a second."""


READER = ("start", "getmany", "position", "committed", "beginning_offsets", "end_offsets", "stop")
READER_AT_ONCE = ("seek", "assign", "pause", "resume")
PRODUCER = (
    "connect",
    "fence",
    "begin_transaction",
    "send",
    "write_out",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
    "stop",
)
BY_HAND = frozenset({"DescribeConfigsRequest", "MetadataRequest"})
"""Requests that the worker makes over a client of aiokafka which has no method for them."""

OWN_LIMIT = frozenset({"start", "beginning_offsets", "end_offsets", "send"})
"""What aiokafka gives up by itself, after its `request_timeout_ms`; `getmany` returns after its `timeout_ms`."""

OWN_LIMIT_S = 2.0
HELD_S = 1.0


def modes_of(call: str) -> tuple[Mode, ...]:
    """Return how a call may fail. One that is not awaited cannot hang without the whole process."""
    kind, method = call.split(".")
    modes: tuple[Mode, ...] = (Mode.RAISES, Mode.AFTER)
    if call == "store.apply":
        modes += (Mode.STICKS,)
    elif call in {"store.wipe", "store.close"}:
        modes += (Mode.HELD,)
    elif kind not in {"store", "disk"} and method not in READER_AT_ONCE:
        modes += (Mode.HANGS,)
    return modes


class Fault(NamedTuple):
    """The call of a worker that fails: the first, second, ... of its kind since a phase of the story began."""

    phase: str
    worker: str
    call: str
    number: int
    mode: Mode

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @property
    def text(self) -> str:
        """What its error says, and no other."""
        return f"injected <{self}>"


@dataclass(slots=True)
class Calls:
    """The calls that the workers of one story make, counted, and those that fail: one in a phase at most."""

    faults: tuple[Fault, ...] = ()
    phase: str = ""
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By phase, worker and call."""
    struck: list[Fault] = field(default_factory=list)
    hung_s: dict[Fault, float] = field(default_factory=dict)
    """How long each one that does not return was waited for."""
    _next: Fault | None = None
    _left: int = 0

    def begin(self, phase: str) -> None:
        """Begin a phase of the story. A fault that has not struck in its own may do so in a later one without any."""
        self.phase = phase
        for fault in self.faults:
            if fault.phase == phase:
                self._next, self._left = fault, fault.number

    def meet(self, worker: str, call: str) -> Fault | None:
        """Count a call; return the fault with which it fails, or None."""
        self.counts[self.phase, worker, call] += 1
        fault = self._next
        if fault is None or (worker, call) != (fault.worker, fault.call):
            return None
        self._left -= 1
        if self._left:
            return None
        self.struck.append(fault)
        self._next = None
        return fault

    def spare(self, fault: Fault) -> None:
        """Have the next such call fail instead: this one was given up, or failed by itself."""
        self.struck.remove(fault)
        if self._next is None:
            self._next, self._left = fault, 1


@dataclass(slots=True, eq=False)
class Caller:
    """A worker of a story, whose calls are told from all others by the context in which they are made.

    What is its own is remembered: asyncio tasks, and clients that it has connected.
    """

    name: str
    calls: Calls
    loop: asyncio.AbstractEventLoop
    tasks: weakref.WeakSet[asyncio.Task[Any]] = field(default_factory=weakref.WeakSet)
    clients: list[Any] = field(default_factory=list)
    scans: list[Iterator[tuple[bytes, bytes]]] = field(default_factory=list)

    def meet(self, call: str) -> Fault | None:
        """Count a call; return the fault with which it fails, or None."""
        return self.calls.meet(self.name, call)

    def let_go(self) -> None:
        """Let go of the scans that somebody is in the middle of."""
        self.scans.clear()


HERE: ContextVar[Caller | None] = ContextVar("HERE", default=None)
"""Whose work this is; None: the test's own."""


# --- the store --------------------------------------------------------------------------------------------------------


class Noted(NamedTuple):
    """What a store held after a change."""

    position: int | None
    contents: dict[bytes, bytes]


class MetStore:
    """A store on disk, each call of which may fail; ``history`` gets what it holds after each change."""

    def __init__(self, folder: Path, caller: Caller, history: list[Noted]) -> None:
        self._caller = caller
        self._history = history
        self._fault: Fault | None = None
        self._stuck = False
        mode = self._meet("open")
        self._inner = RocksStore(folder)
        self._note()
        if mode is Mode.AFTER:
            self._inner.close()
            self._fail()

    @property
    def position(self) -> int | None:
        """As it is."""
        return self._inner.position

    @property
    def level_ms(self) -> int:
        """As it is."""
        return self._inner.level_ms

    def get(self, key: bytes) -> bytes | None:
        """Return a value."""
        found: bytes | None = self._do("get", self._inner.get, key)
        return found

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Begin a scan, each step of which may fail too."""
        return self._steps(self._do("scan", self._inner.scan, prefix, start))

    def _steps(self, items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        while (item := self._do("scan-step", next, items, None)) is not None:
            yield item

    def apply(self, changes: Iterable[Change], position: int) -> None:
        """Apply records."""
        self._do("apply", self._inner.apply, changes, position)

    def note_level(self, level_ms: int) -> None:
        """Note a time."""
        self._do("note_level", self._inner.note_level, level_ms)

    def wipe(self) -> None:
        """Begin anew."""
        self._do("wipe", self._inner.wipe)

    def close(self) -> None:
        """Close. A store that is stuck is closed too, and says once more what is the matter."""
        if self._stuck:
            self._stuck = False
            self._inner.close()
            self._fail()
        self._do("close", self._inner.close)

    def note(self) -> Noted:
        """Return what it holds."""
        return Noted(self._inner.position, dict(self._inner.scan()))

    def _note(self) -> None:
        self._history.append(self.note())

    def _do(self, method: str, call: Callable[..., Any], *arguments: Any) -> Any:
        mode = self._meet(method)
        if mode is Mode.HELD:
            scan = self._inner.scan()
            next(scan, None)
            self._caller.scans.append(scan)
            # A store is closed in a thread.
            self._caller.loop.call_soon_threadsafe(self._caller.loop.call_later, HELD_S, self._caller.let_go)
        done = call(*arguments)
        if method in {"apply", "wipe"}:
            self._note()
        if mode is Mode.AFTER:
            self._fail()
        return done

    def _meet(self, method: str) -> Mode | None:
        fault = self._caller.meet(f"store.{method}")
        self._fault, mode = fault or self._fault, fault and fault.mode
        self._stuck |= mode is Mode.STICKS
        if self._stuck or mode is Mode.RAISES:
            self._fail()
        return mode

    def _fail(self) -> Never:
        raise OSError(f"IO error: {self._fault and self._fault.text}")


# --- what RocksStore asks of the disk, and the worker of the broker ---------------------------------------------------


def at_once(call: str, work: Callable[[], Any], error: type[Exception]) -> Any:
    """Do what a worker calls, unless it is to fail."""
    caller = HERE.get()
    fault = None if caller is None else caller.meet(call)
    if fault is not None and fault.mode is Mode.RAISES:
        raise error(fault.text)
    done = work()
    if fault is not None and fault.mode is Mode.AFTER:
        # Nobody has what was made: a database that was opened is closed by that.
        del done
        raise error(fault.text)
    return done


async def awaited(call: str, work: Callable[[], Awaitable[Any]], hang: Callable[[Calls, Fault], Awaitable[Any]]) -> Any:
    """Do what a worker calls and waits for, unless it is to fail; ``hang`` says how it does not return."""
    caller = HERE.get()
    fault = None if caller is None else caller.meet(call)
    if caller is None or fault is None:
        return await work()
    if fault.mode is Mode.RAISES:
        raise KafkaTimeoutError(fault.text)
    if fault.mode is Mode.HANGS:
        return await hang(caller.calls, fault)
    try:
        done = await work()
    except BaseException:
        caller.calls.spare(fault)
        raise
    if done == {}:
        # A read that brings nothing has no effect.
        caller.calls.spare(fault)
        return done
    raise KafkaTimeoutError(fault.text)


async def for_ever(calls: Calls, fault: Fault) -> None:
    """Do not return until the caller gives up."""
    began = time.monotonic()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        calls.hung_s[fault] = time.monotonic() - began


async def until_own_limit(_calls: Calls, fault: Fault) -> Never:
    """Give up as aiokafka does, after its `request_timeout_ms`."""
    await asyncio.sleep(OWN_LIMIT_S)
    raise KafkaTimeoutError(fault.text)


def met_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a client that may fail when a worker calls it."""
    name = method.__name__

    def call_on(client: Any) -> str:
        if isinstance(client, Producer):
            return f"producer.{name}"
        return f"input.{name}" if client._group_id else f"changelog.{name}"

    @functools.wraps(method)
    def plain(client: Any, *arguments: Any, **options: Any) -> Any:
        return at_once(call_on(client), lambda: method(client, *arguments, **options), KafkaTimeoutError)

    @functools.wraps(method)
    async def waiting(client: Any, *arguments: Any, **options: Any) -> Any:
        async def nothing(_calls: Calls, _fault: Fault) -> dict[object, object]:
            await asyncio.sleep(options["timeout_ms"] / 1_000)
            return {}

        caller = HERE.get()
        if caller is not None and name in {"start", "connect"}:
            caller.clients.append(client)
        hang = nothing if name == "getmany" else until_own_limit if name in OWN_LIMIT else for_ever
        return await awaited(call_on(client), lambda: method(client, *arguments, **options), hang)

    return waiting if inspect.iscoroutinefunction(method) else plain


def met_send(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return what sends a request; only those that aiokafka does not make by itself may fail."""

    @functools.wraps(send)
    async def call(client: Any, node: int, request: Any, **options: Any) -> Any:
        kind = type(request).__name__
        if kind not in BY_HAND:
            return await send(client, node, request, **options)
        return await awaited(f"cluster.{kind}", lambda: send(client, node, request, **options), until_own_limit)

    return call


class MetRocks:
    """`rocksdict.Rdict`, of which opening may fail."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Return what else it has."""
        return getattr(self._inner, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Open a database."""
        return at_once("disk.open", lambda: self._inner(*arguments, **options), OSError)


def met_remove(remove: Callable[..., None]) -> Callable[..., None]:
    """Return `shutil.rmtree`, which may fail where its errors are not ignored anyway."""

    @functools.wraps(remove)
    def call(*arguments: Any, **options: Any) -> None:
        if options.get("ignore_errors"):
            remove(*arguments, **options)
        else:
            at_once("disk.remove", lambda: remove(*arguments, **options), OSError)

    return call


def meet_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the calls of workers be met, whoever makes the clients; those of the test itself pass."""
    for name in (*READER, *READER_AT_ONCE):
        monkeypatch.setattr(AIOKafkaConsumer, name, met_method(getattr(AIOKafkaConsumer, name)))
    for name in PRODUCER:
        monkeypatch.setattr(Producer, name, met_method(getattr(Producer, name)))
    monkeypatch.setattr(AIOKafkaClient, "send", met_send(AIOKafkaClient.send))
    monkeypatch.setattr(rocksdict, "Rdict", MetRocks(rocksdict.Rdict))
    monkeypatch.setattr(shutil, "rmtree", met_remove(shutil.rmtree))


# --- the coordinator --------------------------------------------------------------------------------------------------

REQUESTS = {
    ("PUT", ""): "join",
    ("DELETE", ""): "leave",
    ("POST", "heartbeat"): "heartbeat",
    ("GET", "assignment"): "poll",
}


class MetTransport(httpx.AsyncBaseTransport):
    """Carries a member's requests, each of which may get lost, or lose its answer."""

    def __init__(self, inner: httpx.AsyncBaseTransport, caller: Caller) -> None:
        self._inner = inner
        self._caller = caller

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry one.

        Raises:
            httpx.ConnectError: when it is lost.
            httpx.ReadError: when its answer is lost.
        """
        tail = request.url.path.split("/")[6:]
        fault = self._caller.meet(f"coordinator.{REQUESTS[request.method, '/'.join(tail)]}")
        if fault is not None and fault.mode is Mode.RAISES:
            raise httpx.ConnectError(fault.text)
        if fault is not None and fault.mode is Mode.HANGS:
            await asyncio.get_running_loop().create_future()
        answer = await self._inner.handle_async_request(request)
        if fault is not None and fault.mode is Mode.AFTER:
            raise httpx.ReadError(fault.text)
        return answer
