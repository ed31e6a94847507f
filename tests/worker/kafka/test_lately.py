"""What a worker asks the cluster again and again does not grow with its tasks: an answer has all partitions."""

from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.kafka.totals import NewTopics, Owner, new_job

from batonpass.core.state.ids import task_id
from batonpass.worker.kafka import MemoryStore, metadata
from batonpass.worker.kafka.metadata import MetadataClient, TopicIds
from batonpass.worker.protocol import Role

TASKS = 6
MODULES = {Role.STANDBY: "changelog", Role.ACTIVE: "clients"}


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
async def test_tasks_share_what_they_ask_of_their_topics(
    bootstrap: str, new_topic: NewTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    looks, questions = list[object](), list[object]()
    send, topic_ids = MetadataClient.send, metadata.topic_ids

    async def noting(self: MetadataClient, node_id: Any, request: Any, **more: Any) -> Any:
        if isinstance(request, TopicIds):
            questions.append(request)
        return await send(self, node_id, request, **more)

    async def looking(*given: Any) -> dict[str, str]:
        looks.append(given)
        return await topic_ids(*given)

    monkeypatch.setattr(MetadataClient, "send", noting)
    monkeypatch.setattr(f"batonpass.worker.kafka.{MODULES[role]}.topic_ids", looking)
    monkeypatch.setattr(metadata, "LATELY_S", 3_600, raising=False)
    for module in ("active", "changelog"):
        monkeypatch.setattr(f"batonpass.worker.kafka.{module}.TOPICS_LOOK_S", 0.05)
    job = await new_job(bootstrap, new_topic, partitions=TASKS)
    one = Owner(job.runtime(tmp_path, "a", open_store=lambda _: MemoryStore()))
    for number in range(TASKS):
        one.hold(task_id("0", number), role)
    # At its begin each asks for itself.
    await until(lambda: len(looks) >= 10 * TASKS)
    assert len(questions) < 5 * TASKS
    await one.close()
