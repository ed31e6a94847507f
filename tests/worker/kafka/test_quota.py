"""A broker's quota on what restores: it slows down a member that restores much, and no handover."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, check_exactly_once, expected, new_job, write

from batonpass.demo.quotas import limit_reading
from batonpass.worker.protocol import Role

pytestmark = pytest.mark.needs("kafka")
TASK = "0_0"


async def test_a_promotion_does_not_wait_for_a_quota(bootstrap: str, new_topic: NewTopics, tmp_path: Path) -> None:
    """What the copy still lacks is read over a connection that the quota for restoring spares."""
    job = await new_job(bootstrap, new_topic)
    # A name of its own, so that the quota stays this test's.
    job = replace(job, connection=replace(job.connection, client_id=job.group))
    await write(job, 300)
    a, b = Owner(job.runtime(tmp_path / "a", "a")), Owner(job.runtime(tmp_path / "b", "b"))
    a.hold(TASK, Role.ACTIVE)
    b.hold(TASK, Role.WARMUP)
    await until(lambda: b.is_caught_up(TASK) and b.totals() == expected(300))
    client = f"{job.connection.client_id}-{TASK}-changelog"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await limit_reading(admin, [client], 50.0)
        await write(job, 300, first=300)
        # It has read more than it may for the next while, and is answered no more until that is over.
        await until(lambda: a.totals() == expected(600) and b.totals() != expected(300))
        await write(job, 300, first=600)
        await until(lambda: a.totals() == expected(900))
        assert b.totals() != expected(900)
        final = await a.give_up(TASK)
        assert isinstance(final, int)
        began = time.monotonic()
        b.hold(TASK, Role.ACTIVE, restore_to=final)
        await until(lambda: b.states == ["running"])
        # The broker would not answer the other connection for some ten seconds.
        assert time.monotonic() - began < 5
        assert (b.runtime.restored(TASK) or 0) > 0
        assert b.totals() == expected(900)
    finally:
        await admin.close()
    await write(job, 100, first=900)
    await until(lambda: b.totals() == expected(1000))
    await b.give_up(TASK)
    await check_exactly_once(job, 1000)
