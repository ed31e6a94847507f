"""The tasks of all groups of a coordinator together are bounded, and so is its memory."""

import asyncio
from typing import Any

import httpx2 as httpx
from tests.api.pairs import Pair, paired
from tests.api.test_streams import advice_body, process
from tests.waiting import until

from batonpass.core.state.errors import LimitExceeded
from batonpass.core.state.ids import GroupId, MemberId
from batonpass.core.state.inputs import PartitionCounts

ONE_MAX, ALL_MAX = 8, 12
SOON = {"initial_rebalance_delay_ms": 0, "rebalance_batch_ms": 0}


async def declare(pair: Pair, group: str, partitions: int | None, *, epoch: int = 1, etag: str = "") -> httpx.Response:
    """Declare a group of the first coordinator with so many tasks, or with those that Kafka will tell."""
    part: dict[str, Any] = {"id": "0", "source_topics": [f"in-{group}"], "changelog_topics": ["s"]}
    topology = {"epoch": epoch, "subtopologies": [part | ({} if partitions is None else {"partitions": partitions})]}
    headers = {"if-match": etag} if etag else {}
    return await pair.call("PUT", f"/v1/groups/{group}", json={"topology": topology}, headers=headers)


async def test_groups_that_are_larger_than_all_may_be_together_are_refused() -> None:
    async with paired(tasks_max=ONE_MAX, tasks_total_max=ALL_MAX) as pair:
        assert (await declare(pair, "a-1", ONE_MAX)).status_code == 201
        refused = await declare(pair, "a-2", 5)
        assert (refused.status_code, refused.json()["type"]) == (429, "limit-exceeded")
        for word in ("a-2", "5 tasks", "have 8", "may have 12", "BATONPASS_TASKS_TOTAL_MAX"):
            assert word in refused.json()["detail"]
        assert (await pair.call("GET", "/v1/groups/a-2")).status_code == 404
        small = await declare(pair, "a-2", 4)
        assert small.status_code == 201
        same = await declare(pair, "a-2", 4, epoch=2, etag=small.headers["etag"])
        assert same.status_code == 200, "what grows by nothing passes"
        assert (await declare(pair, "a-2", 5, epoch=3, etag=same.headers["etag"])).status_code == 429
        assert (await declare(pair, "b-1", ONE_MAX)).status_code == 201, "another coordinator has room of its own"
        await pair.call("DELETE", "/v1/groups/a-1?reason=x")
        assert (await declare(pair, "a-3", ONE_MAX)).status_code == 201


async def test_what_members_have_yet_to_give_up_takes_room() -> None:
    """And what has ended takes none, however often a group is deleted or gets other tasks."""
    async with paired(tasks_max=ONE_MAX, tasks_total_max=ALL_MAX) as pair:
        coordinator = pair.processes[0].coordinator

        async def redeclare(epoch: int, etag: str) -> httpx.Response:
            topology = {"epoch": epoch, "subtopologies": [{"id": f"part-{epoch}", "partitions": ONE_MAX}]}
            return await pair.call(
                "PUT", "/v1/groups/a-1", json={"topology": topology, "config": SOON}, headers={"if-match": etag}
            )

        made = await declare(pair, "a-1", ONE_MAX)
        for epoch in range(2, 6):
            made = await redeclare(epoch, made.headers["etag"])
            assert made.status_code == 200
        group, _ = await coordinator.look(GroupId("a-1"))
        assert set(group.tasks) == set(group.table.ids)
        await pair.call("PUT", "/v1/groups/a-1/members/m", json={})
        await until(lambda: len(coordinator.loaded_groups()[0][0].members[MemberId("m")].assignment) == ONE_MAX)
        held = await redeclare(6, (await pair.call("GET", "/v1/groups/a-1")).headers["etag"])
        assert held.status_code == 200, "one change of topology may be under way"
        refused = await redeclare(7, held.headers["etag"])
        assert (refused.status_code, "8 of them of earlier topologies" in refused.json()["detail"]) == (429, True)
        await pair.call("DELETE", "/v1/groups/a-1/members/m")
        assert (await redeclare(7, held.headers["etag"])).status_code == 200


async def test_groups_that_are_declared_at_once_share_the_room() -> None:
    async with paired(tasks_max=ONE_MAX, tasks_total_max=ALL_MAX) as pair:
        answers = await asyncio.gather(*(declare(pair, f"a-{number}", ONE_MAX) for number in range(5)))
        assert sorted(answer.status_code for answer in answers) == [201, 429, 429, 429, 429]


async def test_partitions_that_kafka_tells_need_room_too() -> None:
    async with paired(tasks_max=ONE_MAX, tasks_total_max=ALL_MAX) as pair:
        await declare(pair, "a-1", ONE_MAX)
        assert (await declare(pair, "a-2", None)).status_code == 201
        coordinator = pair.processes[0].coordinator
        for partitions, is_refused in ((5, True), (4, False), (5, True)):
            counted = PartitionCounts({"in-a-2": partitions})
            assert isinstance(await coordinator.ask(GroupId("a-2"), counted), LimitExceeded) is is_refused
        group, _ = await coordinator.look(GroupId("a-2"))
        assert len(group.table.ids) == 4


async def test_a_kafka_streams_application_needs_room_too() -> None:
    async with paired(tasks_max=ONE_MAX, tasks_total_max=ALL_MAX) as pair:
        await declare(pair, "a-1", ONE_MAX)
        for partitions, status in ((5, 429), (4, 200)):
            body = advice_body(process("a"), tasks=partitions)
            assert (await pair.call("POST", "/v1/groups/a-app/advice", json=body)).status_code == status
        wider = advice_body(process("a"), tasks=ONE_MAX)
        assert (await pair.call("POST", "/v1/groups/a-app/advice", json=wider)).status_code == 429
        refused = (await pair.call("GET", "/v1/groups/a-app")).json()["application"]["refused"]
        assert (refused["times"], "BATONPASS_TASKS_TOTAL_MAX" in refused["why"]) == (1, True)
        smaller = advice_body(process("a"), tasks=3)
        assert (await pair.call("POST", "/v1/groups/a-app/advice", json=smaller)).status_code == 200
