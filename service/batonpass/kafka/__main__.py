"""Run a broker until Ctrl-C, as ``make kafka`` does: ``python -m batonpass.kafka [FOLDER]``."""

import signal
import sys
import tempfile
import time
from pathlib import Path

from batonpass.kafka.broker import GIVEN, LocalBroker
from batonpass.kafka.broker_parts import BrokerUnavailable, broker_version


def say(words: str) -> None:
    """Tell the one who waits."""
    print(f"batonpass: {words}", file=sys.stderr, flush=True)  # noqa: T201 - it is run by people


def end(*_: object) -> None:
    """End as Ctrl-C does, whoever asks."""
    raise KeyboardInterrupt


def main() -> int:
    """Start a broker on the folder named, or on one that is thrown away, print where it listens, and wait."""
    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory(prefix="batonpass-kafka-") as thrown_away:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else thrown_away)
        try:
            with LocalBroker(folder, say=say) as broker:
                say(f"Apache Kafka {broker_version()} listens; its data and log are in {folder}. Ctrl-C stops it")
                print(f"{GIVEN}={broker.bootstrap_servers}", flush=True)  # noqa: T201 - for a shell to take over
                while broker.is_running:
                    time.sleep(0.5)
                say(f"the broker ended by itself; see {broker.log}")
        except BrokerUnavailable as error:
            say(str(error))
        except KeyboardInterrupt:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
