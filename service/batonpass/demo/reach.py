"""How a job's broker is reached: at the address that the job names, as BATONPASS_KAFKA_* say of TLS and of logins."""

from __future__ import annotations

import os

from batonpass.worker.kafka import KafkaConnection


def connection(bootstrap: str, client_id: str) -> KafkaConnection:
    """Return the connection of one client of the job.

    Raises:
        OSError: when a file that the environment names cannot be read.
    """
    named = {"BATONPASS_KAFKA_BOOTSTRAP": bootstrap, "BATONPASS_KAFKA_CLIENT_ID": client_id}
    found = KafkaConnection.from_environment(os.environ | named)
    assert found is not None  # noqa: S101 - it has an address
    return found
