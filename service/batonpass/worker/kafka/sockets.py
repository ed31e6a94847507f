"""Connections to brokers that a forked child must not keep open."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka.client import AIOKafkaClient

from batonpass.worker.forked import close_all_in_children


def close_in_children(client: AIOKafkaClient) -> None:
    """Have the connections of a client, present and future ones, closed in every child that is forked."""
    close_all_in_children(client, _descriptors)


def _descriptors(client: AIOKafkaClient) -> Iterator[int]:
    for connection in list(client._conns.values()):  # noqa: SLF001 - aiokafka (0.14) shows them nowhere
        writer = connection._writer  # noqa: SLF001
        if writer is not None and not writer.is_closing():
            yield writer.get_extra_info("socket").fileno()
