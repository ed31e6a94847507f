"""Solves large networks of placement in a separate process, so that the event loop goes on meanwhile.

The solver holds the interpreter's lock until it is done, which takes seconds when a whole fleet restarts. The process
is started on first use, and kept. It runs the same function, so it gives the same flows. It has no state: if it ends,
the next network goes to a new process. When this process ends in any way, the input of the other one ends, and so does
the other one; if it is solving, then as soon as it has solved.
"""

import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Final, cast

from batonpass.placement.flow import Ints, PlacementError, minimum_flow

ARCS_SOLVED_HERE: Final = 30_000
"""Networks with no more arcs than this are solved in this process: that takes about 50 ms at most."""

LIMIT_S: Final = 60.0
"""How long the process may take for one network, before it is ended; the largest take 1 to 4 s."""

_ENDED: Final = (OSError, EOFError, pickle.UnpicklingError)
"""The errors of reading from or writing to a process that ended or could not be started."""


class SolverProcess:
    """Solves networks of placement; for use from any thread, one network at a time."""

    def __init__(self, *, arcs_here: int = ARCS_SOLVED_HERE, limit_s: float = LIMIT_S) -> None:
        self._arcs_here = arcs_here
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def solve(self, *network: Ints) -> Ints:
        """Return what flows through each arc, as `minimum_flow` does.

        Raises:
            PlacementError: there is no best flow, or two processes, one after the other, ended before they answered.
        """
        if len(network[0]) <= self._arcs_here:
            return minimum_flow(*network)
        with self._lock:
            try:
                answer = self._ask(network)
            except _ENDED:
                # Try once more: decisions should not depend on whether a process ended by accident.
                try:
                    answer = self._ask(network)
                except _ENDED as error:
                    raise PlacementError(
                        f"the process that solves placement ended twice before it had solved {len(network[0])} arcs, "
                        f"or was ended after {self._limit_s:g} s: see whether the machine is short of memory"
                    ) from error
        if isinstance(answer, PlacementError):
            raise answer
        return answer

    def close(self) -> None:
        """End the process, as soon as it has solved its present network."""
        with self._lock:
            self._end()

    def _ask(self, network: tuple[Ints, ...]) -> Ints | PlacementError:
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            command = [sys.executable, "-P", "-m", __name__]
            self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - this module
        asked, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        limit = threading.Timer(self._limit_s, process.kill)
        limit.start()
        try:
            pickle.dump(network, asked, pickle.HIGHEST_PROTOCOL)
            asked.flush()
            return cast("Ints | PlacementError", pickle.load(answers))  # noqa: S301 - what our own process says
        except BaseException:
            # Half a question, or half an answer, may be in its pipes.
            self._end()
            raise
        finally:
            limit.cancel()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # Closing a pipe with unwritten data raises the error once more.
            with suppress(OSError), process:
                process.kill()


def _serve() -> None:
    """Solve the networks from stdin until it ends. Ctrl-C is handled by the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        while True:
            network = pickle.load(asked)  # noqa: S301 - what our own process asks
            answer: Ints | PlacementError
            try:
                answer = minimum_flow(*network)
            except PlacementError as error:
                answer = error
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


if __name__ == "__main__":
    _serve()
