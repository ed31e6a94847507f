"""Keeps from the console what Spark says at each start and nobody can do anything about; all else is passed on."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from batonpass.terminal import aside

USUAL: Final = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector"
    rb"|Using Spark's default log4j profile: org/apache/spark/log4j2-defaults\.properties"
    rb'|Setting default log level to "WARN"\.'
    rb"|To adjust logging level use sc\.setLogLevel\(newLevel\)\. For SparkR, use setLogLevel\(newLevel\)\."
    rb"|[\d/]+ [\d:]+ WARN NativeCodeLoader: Unable to load native-hadoop library for your platform\.\.\. .*"
)
"""Whole lines that each start says, whatever comes of it. A line that differs in anything is passed on."""


@contextmanager
def without_usual_lines() -> Iterator[int]:
    """Lend a file descriptor to be the standard error of a process, and of those that it starts.

    What is written to it goes on to this process's standard error, line by line, but for ``USUAL``: also after the end,
    for as long as a process has it, so that nothing of a JVM that does not come up is lost.
    """
    read, write = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(read,), name="audit-stderr", daemon=True)
    thread.start()
    try:
        yield write
    finally:
        os.close(write)


def _pass_on(read: int) -> None:
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            if USUAL.fullmatch(line.rstrip(b"\r\n")) is None:
                aside(line.decode(errors="replace").rstrip("\r\n"))
