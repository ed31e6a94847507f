"""A header's name may be any bytes: what has one that is no text is read like any other record."""

import struct
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.codec import gzip_encode, zstd_encode
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, check_exactly_once, new_job, write

from batonpass.worker.kafka.header_names import Records
from batonpass.worker.protocol import Role

BAD = b"\xff\xfe"
SUM_FROM, HEAD = struct.calcsize(">qiibI"), struct.calcsize(">qiibIhiqqqhii")


def batch(*records: tuple[bytes, bytes], bad: int, codec: int = 0) -> bytes:
    """Return a batch as other producers write it: the headers of one record are called what is no UTF-8."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
    for number, (key, value) in enumerate(records):
        builder.append(number, 1_700_000_000_000, key, value, [("zz" if number == bad else "ok", b"v")])
    data = bytearray(builder.build().replace(b"zz", BAD))
    if codec:
        data = _packed(data, codec)
    struct.pack_into(">I", data, SUM_FROM - 4, calc_crc32c(bytes(data[SUM_FROM:])))
    return bytes(data)


def _packed(data: bytearray, codec: int) -> bytearray:
    encode: Any = {1: gzip_encode, 4: zstd_encode}[codec]
    packed = bytearray(data[:HEAD] + encode(bytes(data[HEAD:])))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    struct.pack_into(">h", packed, SUM_FROM, codec)
    return packed


@pytest.mark.parametrize("codec", [0, 1, 4])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_its_batch_is_read_to_the_end(bad: int, codec: int) -> None:
    data = batch((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), bad=bad, codec=codec)
    found = Records(data * 2)
    for _ in range(2):
        one = found.next_batch()
        assert one.validate_crc()
        read = [(record.offset, record.key, record.value, record.headers) for record in one]
        assert read == [
            (number, key, value, [("��" if number == bad else "ok", b"v")])
            for number, key, value in [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c", b"3")]
        ]
    assert not found.has_next()
    assert found.next_batch() is None


@pytest.mark.needs("kafka")
async def test_a_task_goes_on_behind_such_a_record(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    job = await new_job(bootstrap, new_topic)
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        client.add_topic(job.source)
        await client.force_metadata_update()
        leader = client.cluster.leader_for_partition(TopicPartition(job.source, 0))
        data = batch((b"k0", b"0"), (b"k1", b"1"), bad=1)
        request = ProduceRequest(
            transactional_id=None, required_acks=-1, timeout=10_000, topics=[(job.source, [(0, data)])]
        )
        answer = await client.send(leader, request)
        assert answer.topics[0][1][0][1] == 0
    finally:
        await client.close()
    await write(job, 8, first=2)
    owner = Owner(job.runtime(tmp_path, "a"))
    owner.hold("0_0", Role.ACTIVE)
    await until(lambda: len(owner.totals()) == 10)
    await owner.close()
    assert await check_exactly_once(job, 10) == ["a"] * 10
