"""What the SDK sends is what a coordinator answers soonest: heads that it knows again, and polls without a task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.pairs import SECRET, paired, until
from tests.worker.recording import Ownership, Recorder
from tests.worker.test_member_pair import CONFIG

from batonpass.api.express import Express, Known
from batonpass.api.parking import Stay
from batonpass.worker import Member


async def test_a_steady_member_takes_the_short_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeats, whose head and body come apart, are answered without being parsed; its long-poll is parked."""
    known: list[str] = []
    stays: list[Stay] = []
    answer, begin = Express.answer_known, Stay.begin

    def noted(self: Express, head: Known, body: bytes) -> Any:
        found = answer(self, head, body)
        known.append(type(found).__name__)
        return found

    def begun(self: Stay) -> None:
        stays.append(self)
        begin(self)

    monkeypatch.setattr(Express, "answer_known", noted)
    monkeypatch.setattr(Stay, "begin", begun)
    async with paired(monkeypatch) as pair:
        await pair.declare("apples")
        etag = (await pair.call("GET", "/v1/groups/apples")).headers["etag"]
        config = CONFIG | {"heartbeat_interval_ms": 100}
        changed = await pair.call("PUT", "/v1/groups/apples", json={"config": config}, headers={"if-match": etag})
        assert changed.is_success
        async with Member(pair.urls[0], "apples", Recorder("a", Ownership(), restore_s=0), token=SECRET) as one:
            await until(lambda: one.may_process("0_0"))
            await until(lambda: known[-10:] == ["bytes"] * 10)
            assert stays
            assert pair.processes[0].edge.limits.polls.taken == 1
