"""Connections to a broker, and the children that a worker forks."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from tests.kafka.cluster import NewTopics
from tests.worker.children import connections, forked

from batonpass.worker.kafka.metadata import adopt

pytestmark = pytest.mark.needs("kafka")


async def test_a_child_has_no_connection_of_a_client_that_said_so_and_the_client_goes_on(
    bootstrap: str, new_topic: NewTopics
) -> None:
    topic, port = await new_topic("orders"), int(bootstrap.rpartition(":")[2])
    before = connections(port)
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        adopt(producer.client)
        adopt(consumer._client)
        await producer.send_and_wait(topic, b"one")
        assert (await consumer.getone()).value == b"one"
        assert connections(port) > before
        with forked(lambda: connections(port)) as left:
            await producer.send_and_wait(topic, b"two")
            assert (await consumer.getone()).value == b"two"
            assert left() == before
