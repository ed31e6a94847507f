"""What each start of Spark says is kept from the console, and nothing else is."""

from __future__ import annotations

import subprocess
import sys

SAYS = """
import sys
from batonpass.audit.quiet import without_usual_lines
import subprocess
said = sys.argv[1]
with without_usual_lines() as errors:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", said], stderr=errors)
child.wait()
import threading
[one.join(30) for one in threading.enumerate() if one.name == "audit-stderr"]
"""
USUAL = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    'Setting default log level to "WARN".',
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
    "26/11/22 17:51:26 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using others",
)
OTHERS = (
    "WARNING: Using incubator modules: jdk.incubator.other",
    "26/11/22 17:51:26 ERROR NativeCodeLoader: Unable to load native-hadoop library for your platform...",
    "Error: Could not create the Java Virtual Machine.",
    "without an end of its line",
)


def test_only_the_usual_lines_are_kept_back() -> None:
    """A JVM that does not come up, or warns of anything else, is heard; a line without an end gets one."""
    said = "\n".join((*USUAL, *OTHERS))
    done = subprocess.run([sys.executable, "-c", SAYS, said], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.splitlines() == list(OTHERS)
