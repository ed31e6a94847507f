"""When the others have the tasks of an instance that is closed, by the version of Kafka Streams.

python -m tests.benchmarks.streams.versions [VERSION ...]

Each version runs with the same classes of the plug-in, and an instance is closed in each of the ways that are to make
it leave its group. The session is 12 s: who has left is missed at once, who has not only after that.
"""

import argparse
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.streams.scenarios import Settings
from tests.benchmarks.streams.stage import Stage, begin, stage
from tests.clients.streams_job import PARTITIONS
from tests.e2e.serving import SECRET
from tests.programs import program
from tests.waiting import wait_until

VERSIONS = ("3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0")
SESSION_MS = 12_000
PATIENCE_S = 120


@dataclass(frozen=True)
class Way:
    """How an instance is made to leave: by an option at its close, by its settings, or by both."""

    heading: str
    at_close: bool = True
    static: bool = False
    settings: Settings = field(default_factory=dict)


WAYS = (
    Way("`leaveGroup(true)`"),
    Way("the same with `group.instance.id`", static=True),
    Way(
        "`internal.leave.group.on.close=true` instead",
        at_close=False,
        settings={"internal.leave.group.on.close": "true"},
    ),
)
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>io.batonpass</groupId><artifactId>libraries</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


def libraries(version: str, folder: Path) -> str:
    """Return the class path of a version of Kafka Streams with what it brings, which Maven fetches."""
    folder.mkdir()
    (folder / "pom.xml").write_text(POM.format(version))
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
    subprocess.run([program("mvn"), "-q", "-B", goal, "-Dmdep.outputFile=class-path"], cwd=folder, check=True)
    return (folder / "class-path").read_text().strip()


def taken_over_after_s(here: Stage, class_path: str, way: Way) -> float:
    """Close one of two instances; return when the other has all tasks, counted from the signal to close."""
    with here.application(f"closed-{uuid.uuid4().hex[:6]}", {}) as application:
        job = application.job
        job.libraries = class_path
        for name in "AB":
            settings: dict[str, object] = {
                "batonpass.url": here.url,
                "batonpass.token": SECRET,
                "session.timeout.ms": SESSION_MS,
                "max.warmup.replicas": PARTITIONS,
                **way.settings,
                **({"group.instance.id": name} if way.static else {}),
            }
            job.start(name, settings, leaves=way.at_close)
        job.until({"A": PARTITIONS // 2, "B": PARTITIONS // 2}, within_s=PATIENCE_S)
        # Two that begin at the same time have as many tasks each without an answer too.
        wait_until(lambda: " decided for " in job.leader.log.read_text(), seen=job.leader.log.read_text)
        began = time.monotonic()
        job.instances["B"].process.terminate()
        wait_until(
            lambda: len(job.instances["A"].active) == PARTITIONS, within_s=PATIENCE_S, seen=lambda: str(job.counts())
        )
        return time.monotonic() - began


def main() -> int:
    """Measure the versions that are named, or all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    versions = parser.parse_args().versions
    say = begin()
    rows = [f"| Kafka Streams | {' | '.join(way.heading for way in WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
    try:
        with stage() as here:
            for version in versions:
                class_path = libraries(version, here.folder / version)
                found = [taken_over_after_s(here, class_path, way) for way in WAYS]
                say(f"{version}: {', '.join(f'{each:.1f} s' for each in found)}")
                rows.append(f"| {version} | {' | '.join(f'{each:.1f} s' for each in found)} |")
    finally:
        sys.stdout.write("\n".join(["", *rows, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
