"""Run a broker until Ctrl-C, as ``make kafka`` does: ``python -m batonpass.kafka [FOLDER]``."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from batonpass.kafka.broker import BOOTSTRAP_VARIABLE, LocalBroker
from batonpass.kafka.broker_parts import BrokerUnavailable, broker_version
from batonpass.terminal import say, say_on_stderr


def tell(words: str) -> None:
    say_on_stderr(*f"batonpass: {words}".splitlines())


def main() -> int:
    """Start a broker on the folder named, or on a temporary one, print where it listens, and wait."""
    parser = argparse.ArgumentParser(prog="python -m batonpass.kafka", description="Run a broker until Ctrl-C.")
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="where its data are kept; else they are thrown away"
    )
    named = parser.parse_args().folder
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="batonpass-kafka-") as thrown_away:
        folder = Path(named or thrown_away)
        try:
            with LocalBroker(folder, say=tell) as broker:
                tell(f"Apache Kafka {broker_version()} listens; its data and log are in {folder}. Ctrl-C stops it")
                say(f"{BOOTSTRAP_VARIABLE}={broker.bootstrap_servers}")
                while broker.is_running:
                    time.sleep(0.5)
                tell(f"the broker ended by itself; see {broker.log}")
        except BrokerUnavailable as error:
            tell(str(error))
        except KeyboardInterrupt:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
