"""What stands between instances and their coordinator, and fails as it is told to."""

import itertools
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

LATE_S = 1.0
"""How late an answer is that is late: twice what the plug-in waits for by default."""

HOLDS_S = 120
HUGE_BYTES = 20 << 20
"""More than `batonpass.max.answer.bytes` is by default."""

Forward = Callable[[], bytes]
"""Asks the coordinator, and returns the whole of its answer, as it came."""

Fault = Callable[["Relay", Forward, socket.socket], None]
"""What becomes of one question."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of those who leave in the middle, on either side: that is what is tried here."""


class Relay:
    """Passes a question and its answer on for each connection, as the plug-in makes them, or does what a fault says."""

    def __init__(self, to: str) -> None:
        """Listen on any free port, for a coordinator that may be exchanged for another later."""
        self.to = to
        self.versions: set[str] = set()
        """Of the plug-ins that have asked."""
        self.holds = threading.Event()
        """Whether a question is held back that nobody has been asked yet."""
        self._fault: Fault = passed
        self._released = threading.Event()
        self._port = 0
        self._listen()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Fail in that way meanwhile."""
        self._fault = fault
        self.holds.clear()
        self._released.clear()
        try:
            yield
        finally:
            self._fault = passed
            self._released.set()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuse connections meanwhile."""
        self.close()
        try:
            yield
        finally:
            self._listen()

    def hold(self) -> None:
        """Wait until the fault is over."""
        self.holds.set()
        self._released.wait(HOLDS_S)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _listen(self) -> None:
        relay = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                relay._serve(self.request)

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _serve(self, leader: socket.socket) -> None:
        question = _question(leader)
        body = question.partition(b"\r\n\r\n")[2]
        if not body:
            # An instance that starts looks its group up; faults are those of rebalances.
            leader.sendall(_asked(self.to, question))
            return
        self.versions.add(json.loads(body)["plugin_version"])
        self._fault(self, lambda: _asked(self.to, question), leader)


def passed(_: Relay, forward: Forward, leader: socket.socket) -> None:
    """Do nothing to it."""
    leader.sendall(forward())


def frozen(relay: Relay, _: Forward, __: socket.socket) -> None:
    """Take the question and say nothing; the coordinator hears nothing of it."""
    relay.hold()


def late(_: Relay, forward: Forward, leader: socket.socket) -> None:
    """Have the coordinator decide, and pass its answer on when nobody waits for it any more."""
    answer = forward()
    time.sleep(LATE_S)
    leader.sendall(answer)


def lost(_: Relay, forward: Forward, __: socket.socket) -> None:
    """Have the coordinator decide, and end the connection without its answer."""
    forward()


def cut(_: Relay, forward: Forward, leader: socket.socket) -> None:
    """Pass the first half of the answer on, and end the connection."""
    answer = forward()
    leader.sendall(answer[: len(answer) // 2])


def failed(_: Relay, __: Forward, leader: socket.socket) -> None:
    """Answer as a coordinator does that has a defect."""
    leader.sendall(_answer(b'{"title": "the coordinator failed on this request"}', "500 Internal Server Error"))


def rubbish(_: Relay, __: Forward, leader: socket.socket) -> None:
    """Answer as a gateway does that has no idea what it is asked."""
    leader.sendall(_answer(b"<html>welcome</html>"))


def huge(_: Relay, __: Forward, leader: socket.socket) -> None:
    """Answer with more than anybody can have meant."""
    with suppress(OSError):
        leader.sendall(_answer(b" " * HUGE_BYTES))


def task_left_out(_: Relay, forward: Forward, leader: socket.socket) -> None:
    """Leave a task out of the answer: nobody would process it."""

    def change(assignment: dict[str, Any]) -> None:
        max(assignment.values(), key=lambda has: len(has["active"]))["active"].pop()

    leader.sendall(_changed(forward(), change))


def unknown_process(_: Relay, forward: Forward, leader: socket.socket) -> None:
    """Give a task to a process that the group does not have."""

    def change(assignment: dict[str, Any]) -> None:
        fullest = max(assignment.values(), key=lambda has: len(has["active"]))
        assignment["00000000-0000-0000-0000-000000000000"] = {"active": [fullest["active"].pop()]}

    leader.sendall(_changed(forward(), change))


def in_turn(*faults: Fault) -> Fault:
    """Return a fault that is one of these for each question, one after the other."""
    # Taken before it is answered: whoever has the answer may ask again before the relay does anything more.
    turns = itertools.cycle(faults)

    def fail(relay: Relay, forward: Forward, leader: socket.socket) -> None:
        next(turns)(relay, forward, leader)

    return fail


def _changed(answer: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    change(body["assignment"])
    return _answer(json.dumps(body).encode())


def _answer(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return f"{head}\r\n\r\n".encode() + body


def _question(leader: socket.socket) -> bytes:
    """Return a question as it came: the head, and as much as this announces."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _part(leader)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += _part(leader)
    return head + b"\r\n\r\n" + body


def _part(leader: socket.socket) -> bytes:
    part = leader.recv(1 << 16)
    if not part:
        raise ConnectionError("the leader left in the middle of its question")
    return part


def _asked(url: str, question: bytes) -> bytes:
    """Ask a coordinator, which ends the connection after its answer, as the question says."""
    address = urlsplit(url)
    answer = b""
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=HOLDS_S) as coordinator:
        coordinator.sendall(question)
        while part := coordinator.recv(1 << 16):
            answer += part
    return answer
