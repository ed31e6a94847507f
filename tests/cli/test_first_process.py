"""Commands that are the first process of a container."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from tests.programs import TERMINATED, first_process, terminate


@pytest.mark.parametrize("command", ["db upgrade", "audit --nightly"])
def test_sigterm_ends_a_command_that_waits_for_its_database(command: str) -> None:
    """The kernel drops a signal that has no handler, if it is for process 1."""
    apart = first_process()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/one"
        process = subprocess.Popen(
            [*apart, sys.executable, "-m", "batonpass", *command.split()],
            env=os.environ | {"BATONPASS_DATABASE_URL": url},
        )
        with process:
            try:
                connection, _ = silent.accept()
                with connection:
                    terminate(process, is_apart=bool(apart))
                    assert process.wait(60) == (TERMINATED if apart else -signal.SIGTERM)
            finally:
                process.kill()
