"""`batonpass audit --nightly`: keeps running, and starts an audit as a separate process for every day that is over."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, NoReturn

from batonpass.audit.nights import Nights, keep_nights
from batonpass.audit.runs import ENDS, stoppable
from batonpass.child_environment import child_environment
from batonpass.terminal import say_on_stderr

if TYPE_CHECKING:
    from batonpass.audit.job import Audit

END_PATIENCE_S: Final = 5.0
"""How long an audit that is told to stop may take to record that in its row."""


def stay(nights: Nights, wanted: "Audit", *, as_json: bool) -> NoReturn:
    """Have every night audited with the options of ``wanted``, except its day, until a signal ends this process."""
    # Between audits nothing has to be cleaned up: the system ends this process at once, wherever it waits.
    for one in ENDS if os.getpid() != 1 else ():
        signal.signal(one, signal.SIG_DFL)
    env = child_environment(BATONPASS_DATABASE_URL=wanted.database_url)
    options = options_of(wanted, as_json=as_json)

    def audit(day: date) -> int:
        command = [sys.executable, "-m", "batonpass", "audit", "--day", str(day), "--unless-done", *options]
        return carried_out(command, env)

    keep_nights(nights, audit, wait=time.sleep, tell=tell, url=wanted.database_url)
    raise AssertionError  # it goes on until something is raised


def options_of(wanted: "Audit", *, as_json: bool) -> list[str]:
    """Return the options of `batonpass audit` for an audit like ``wanted``, except the day and the database."""
    given = {"--out": wanted.out, "--objective": wanted.objective}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    options += [word for name, value in wanted.spark.items() for word in ("--conf", f"{name}={value}")]
    left_out = {"--no-what-if": wanted.what_if, "--no-replay": wanted.replay, "--no-export": wanted.export}
    options += [name for name, is_wanted in left_out.items() if not is_wanted]
    options += ["--what-if-seconds", f"{wanted.what_if_s:g}"]
    return [*options, *(["--json"] if as_json else [])]


def carried_out(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run an audit and return its exit code; a signal that ends this process ends the audit first."""
    with stoppable():
        # In its own session: Ctrl-C reaches only this process, and all processes of the audit can be ended together.
        process = subprocess.Popen(command, env=env, start_new_session=True)  # noqa: S603 - our own program
        with _ended(process):
            return process.wait()


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_PATIENCE_S)
        # This also ends Spark's own processes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tell(sentence: str) -> None:
    say_on_stderr(f"batonpass: {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {sentence}")
