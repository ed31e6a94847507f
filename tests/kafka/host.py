"""A process that runs the one broker of a test run, for as long as any process of the run needs it.

``python -m tests.kafka.host FOLDER``: every process that uses the broker holds a shared lock on FOLDER/users, which the
system lets go of when the process ends, however it ends. When nobody holds it any more, the broker is stopped.
"""

import fcntl
import sys
from pathlib import Path

from batonpass.kafka.broker import LocalBroker
from batonpass.kafka.broker_parts import BrokerUnavailable

SETTINGS = {"log.cleaner.backoff.ms": "500", "log.retention.ms": "-1"}
"""A compacted topic is looked at so often; by default it takes 15 s until a deletion is forgotten. Others keep what
they have: records of tests may be of 1970, and retention takes those half a minute after the start, and later."""


def main() -> None:
    """Start the broker, say on standard output where it listens, and wait for its last user to go."""
    folder = Path(sys.argv[1])
    try:
        with (folder / "users").open("a") as users, LocalBroker(folder / "broker", settings=SETTINGS) as broker:
            print(broker.bootstrap_servers, flush=True)  # noqa: T201 - how the starter learns it
            # The starter holds the lock from before it starts this process, so this waits for it and all others.
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "bootstrap").unlink()
    except BrokerUnavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
