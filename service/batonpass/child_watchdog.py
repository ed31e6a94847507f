"""The watchdog of an embedded server: a process that starts it, and that ends it when its own parent is gone.

The parent holds the other end of standard input. When that closes, because the parent wants to stop the server or was
killed, the watchdog stops the server and ends too. If the watchdog itself is killed, Linux signals the server.

It runs as a script of its own, outside any environment, so it imports the standard library only. Its one argument is a
JSON object: ``command``, ``folder`` (where it runs), ``environment``, ``user`` (keywords of ``Popen``), and ``log``, a
file that the server's output is added to. It prints the server's process id and exits with the server's exit code.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

PATIENCE_S = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
"""The signals that stop the server, and how long it may take after each. Postgres: roll back and write out; end at
once; be killed. A Java program: end in good order; write its threads' stacks to the log; be killed."""

PR_SET_PDEATHSIG = 1


def watch(
    command: list[str], log: str, folder: str, environment: dict[str, str], user: dict[str, int | list[int]]
) -> int:
    """Run the server until it ends or standard input does; return its exit code."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    # A signal to all processes at once is meant for the parent, which stops the server when it has no more use for it.
    # A function, unlike SIG_IGN, is not inherited by the server.
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # Postgres takes a lock file that names its parent or grandparent for stale, which is right: process ids are soon
    # used again in containers. Other servers ignore this variable.
    environment = environment | {"PG_GRANDPARENT_PID": str(os.getppid())}
    with open(log, "ab") as output:  # noqa: PTH123 - pathlib would be half of this process's start
        server = subprocess.Popen(  # noqa: S603 - the command is the parent's own
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - this process has one thread
            **user,  # type: ignore[call-overload]
        )
    print(server.pid, flush=True)  # noqa: T201 - how the parent learns it
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin.fileno(), woken], [], [])
        if woken in readable:
            woken.recv(4_096)
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 1):
            stop(server)
    return int(server.returncode)


def end_with_parent() -> Callable[[], None]:
    """Return what a child runs first. It ends if this process is gone already; Linux signals it when this one dies."""
    parent = os.getpid()
    control = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def arm() -> None:
        if control is not None:
            control(PR_SET_PDEATHSIG, int(signal.SIGINT))
        if os.getppid() != parent:
            os._exit(1)

    return arm


def stop(server: subprocess.Popen[bytes]) -> None:
    """Have the server end, in good order if it can."""
    for number, patience_s in PATIENCE_S:
        server.send_signal(number)
        try:
            server.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return


if __name__ == "__main__":
    sys.exit(watch(**json.loads(sys.argv[1])) & 0xFF)
