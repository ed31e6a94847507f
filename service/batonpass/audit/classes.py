"""Spark's classes as a JVM has them once it has loaded them, kept for the next start: that takes half as long then.

It is class data sharing, as every JVM from 13 on has it (JEP 350). The first session on a machine leaves the archive
behind when it ends; a JVM that finds that an archive is not its own, or of other jars, starts without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""What a JVM says of archives would go to standard output, where findings may go."""

ENDS_S: Final = 120.0
"""So long a JVM may take to end with its archive."""


class Classes:
    """The archive of this user's Spark and Java, in the cache folder (``XDG_CACHE_HOME``)."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _cache()
        self._stem = f"spark-{_marks()}"
        self._held: IO[str] | None = None
        self._part = Path()

    @property
    def path(self) -> Path | None:
        """Where the archive is, if it is there as long as its name says: a JVM does not start with half of one."""
        # Another session may put a new one into its place meanwhile.
        with contextlib.suppress(OSError):
            for one in self._folder.glob(f"{self._stem}-*.jsa") if self._folder else ():
                if one.name == f"{self._stem}-{one.stat().st_size}.jsa":
                    return one
        return None

    @property
    def is_made(self) -> bool:
        """Whether the session that was started with ``options`` is to leave an archive: see ``keep``."""
        return self._held is not None

    def options(self) -> str:
        """Return Java's options to start with the archive; where there is none, to make one if nobody else does."""
        kept = self.path
        if kept is not None:
            return f"-XX:SharedArchiveFile={kept} -Xshare:auto {QUIET}"
        if not self._hold():
            return ""
        return f"-XX:ArchiveClassesAtExit={self._part} {QUIET}"

    def _hold(self) -> bool:
        """Return whether this process is the one that makes the archive; it is until it ends, however it ends."""
        if self._folder is None:
            return False
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            held = (self._folder / f"{self._stem}.lock").open("w")
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                held.close()
                return False
            self._held = held
            self._part = self._folder / f"{self._stem}.part"
            self._part.unlink(missing_ok=True)
            return True
        return False

    def keep(self, tell: Callable[[str], None]) -> None:
        """End the JVM of the session that has been stopped, and put the archive that it leaves into its place.

        Nothing is said of failure: the next start takes as long as this one did.
        """
        from pyspark import SparkContext  # noqa: PLC0415 - importing this module must not need Spark

        gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no other way to the JVM that was started
        if self._held is None or gateway is None or gateway.proc is None:
            return
        tell("keeping Spark's classes, so that it starts faster from now on")
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - another session starts another JVM
        gateway.shutdown()
        gateway.proc.stdin.close()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if gateway.proc.wait(ENDS_S) == 0:
                for old in self._part.parent.glob("spark-*.jsa"):
                    old.unlink(missing_ok=True)
                self._part.rename(self._part.with_name(f"{self._stem}-{self._part.stat().st_size}.jsa"))
        self.let_go()

    def let_go(self) -> None:
        """Let another process make the archive."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _cache() -> Path | None:
    """Return this user's cache folder, as the XDG base directory specification has it; None for one without a home."""
    with contextlib.suppress(RuntimeError):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batonpass"
        # Spark takes Java's options as one text and cuts it at spaces.
        return None if any(one.isspace() for one in str(folder)) else folder
    return None


def _marks() -> str:
    """Return a digest of what an archive belongs to: this Java, and this Spark at its place."""
    import pyspark  # noqa: PLC0415 - see above

    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    told = [pyspark.__version__, str(Path(pyspark.__file__).parent), os.environ.get("SPARK_HOME", "")]
    with contextlib.suppress(OSError):
        whole = java.resolve(strict=True)
        told += [str(whole), str(whole.stat().st_mtime_ns)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
