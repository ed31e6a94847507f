"""The options of a member, besides its coordinator, its group and its callbacks."""

import inspect
import random
import re
import socket
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TypedDict

import httpx2 as httpx

from batonpass.worker.clock import Clock, system_clock
from batonpass.worker.protocol import LeaveMode, MemberSettings, OnLeaseLost, Progress

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""How large an answer may be by default: room for some 100,000 tasks of one member."""


class Exit(StrEnum):
    """How a worker exits.

    ``leave``: stop; other members take over at once what is warm, and restore the rest. ``restart``: stop, and have the
    place kept for this instance id. ``drain``: keep processing until everything was handed over warm, then leave.
    """

    LEAVE = "leave"
    RESTART = "restart"
    DRAIN = "drain"

    @property
    def mode(self) -> LeaveMode:
        return LeaveMode.RESTART if self is Exit.RESTART else LeaveMode.LEAVE


class MemberOptions(TypedDict, total=False):
    """The keyword arguments of `Member`; `Options` has their meanings and defaults."""

    instance_id: str | None
    takeover: bool
    replaces: str | None
    capacity: float
    max_tasks: int | None
    max_disk_bytes: int | None
    client_tags: Mapping[str, str]
    topology_epoch: int | None
    endpoint: str | None
    on_lease_lost: OnLeaseLost
    stop_early_ms: int
    on_disk: Mapping[str, Progress]
    token: str | Callable[[], str] | None
    tls: ssl.SSLContext | bool
    headers: Mapping[str, str]
    transport: httpx.AsyncBaseTransport | None
    answer_bytes_max: int
    on_exit: Exit | None
    stop_deadline_ms: int
    retry_failed_ms: int
    state_cleanup_delay_ms: int
    drain_deadline_ms: int
    exit_timeout_ms: int
    poll_wait_ms: int
    request_timeout_ms: int
    clock: Clock
    new_member_id: Callable[[], str]
    listen: bool
    jitter_seed: int


def check_count(name: str, count: object, least: int = 1) -> None:
    """Refuse what is no whole number from ``least`` on.

    Raises:
        ValueError: naming it.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise ValueError(f"{name} is a whole number from {least} on, and not {count!r}")


def check_plain(of: object, *names: str) -> None:
    """Refuse functions of these names that are ``async``: they are called and not awaited, and would do nothing.

    Raises:
        TypeError: naming the first.
    """
    for name in names:
        if inspect.iscoroutinefunction(getattr(of, name)):
            raise TypeError(f"{name} is called, and not awaited: write `def`, without `async`")


def fresh_member_id() -> str:
    """Return an id that no run ever had. It begins with the host's name, for those who read what a member is called."""
    host = re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname())[:100]
    return f"{host}-{uuid.uuid4().hex[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MemberSettings):
    """The options of a member. Durations are milliseconds.

    What it says of itself, and how its protocol's machine behaves, is in `MemberSettings`. ``replaces`` is the member
    id of this worker's previous process, if that is known, and known to be dead. ``on_disk`` is the state that the
    process finds when it starts, by task. State of a task that has moved away is removed (`Callbacks.remove_state`) if
    the task does not come back within ``state_cleanup_delay_ms``.

    How it reaches the coordinator: a bearer ``token``, or a function that returns it each time. ``tls`` is False to
    trust any certificate, or a context with authorities and client certificate (`tls_context`). ``headers`` go with
    every request; ``transport`` replaces the network. An answer of more than ``answer_bytes_max`` bytes is not taken.

    How it stops: ``on_exit`` applies when the ``async with`` block ends (by default restart with an instance id, else
    leave). An `on_revoke` may take ``stop_deadline_ms``; after that the commit is given up. An `on_active` that raised
    is called again after ``retry_failed_ms``. A drain lasts ``drain_deadline_ms`` at most, and the rest of an exit
    ``exit_timeout_ms``, with as long again for an `on_close`.

    What a test may want to be the same each time: its ``clock``, the ids of its runs (``new_member_id``), and the
    spread of its retries (``jitter_seed``).

    Raises:
        ValueError: for a choice that there is not, or a duration that is no whole number from 0 on.
    """

    replaces: str | None = None
    on_disk: Mapping[str, Progress] = field(default_factory=dict)
    token: str | Callable[[], str] | None = None
    tls: ssl.SSLContext | bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    transport: httpx.AsyncBaseTransport | None = None
    answer_bytes_max: int = ANSWER_BYTES_MAX
    on_exit: Exit | None = None
    stop_deadline_ms: int = 30_000
    retry_failed_ms: int = 5_000
    state_cleanup_delay_ms: int = 600_000
    drain_deadline_ms: int = 25_000
    exit_timeout_ms: int = 40_000
    clock: Clock = field(default_factory=system_clock)
    new_member_id: Callable[[], str] = fresh_member_id
    jitter_seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(32))

    def __post_init__(self) -> None:
        """Take the name of a choice for the choice, and refuse what means nothing."""
        for name, choice in (("on_lease_lost", OnLeaseLost), ("on_exit", Exit)):
            if (value := getattr(self, name)) is None:
                continue
            if value not in {*choice}:
                raise ValueError(f"{name} is one of {', '.join(choice)}, and not {value!r}")
            object.__setattr__(self, name, choice(value))
        for one in fields(self):
            if one.name.endswith("_ms"):
                check_count(one.name, getattr(self, one.name), 0)
        check_plain(self, "token", "clock", "new_member_id")

    @property
    def exit(self) -> Exit:
        if self.on_exit is not None:
            return self.on_exit
        return Exit.LEAVE if self.instance_id is None else Exit.RESTART
