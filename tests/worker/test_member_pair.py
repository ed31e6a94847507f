"""A member that knows two real coordinators goes on at the other one, under the same lease, and stops nothing."""

import itertools
import json
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
from tests.api.pairs import BEARER, SECRET, Divided, Pair, paired
from tests.waiting import until
from tests.worker.recording import Ownership, Recorder

from batonpass.sockets import bind, url_of
from batonpass.worker import Member

CONFIG = {
    "initial_rebalance_delay_ms": 0,
    "rebalance_batch_ms": 0,
    "heartbeat_interval_ms": 200,
    "session_timeout_ms": 5_000,
}


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two coordinators, the second of which owns the group `b`; the first one passes requests for it on."""
    async with paired() as found:
        await found.declare("b")
        etag = (await found.call("GET", "/v1/groups/b")).headers["etag"]
        changed = await found.call("PUT", "/v1/groups/b", json={"config": CONFIG}, headers={"if-match": etag})
        assert changed.is_success
        yield found


class Tap(httpx.AsyncHTTPTransport):
    """The network, and a list of the heartbeats that went over it: to which port, with which seq, answered how."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[tuple[int | None, int, int]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, and write down what became of it; 0 where it was not answered."""
        status = 0
        try:
            answer = await super().handle_async_request(request)
            status = answer.status_code
        finally:
            if request.url.path.endswith("/heartbeat"):
                self.beats.append((request.url.port, json.loads(request.content)["seq"], status))
        return answer

    def answered(self, url: str) -> int:
        """Return how many heartbeats were answered under a URL."""
        return sum(status == 200 and port == httpx.URL(url).port for port, _, status in self.beats)


def member(pair: Pair, worker: Recorder, tap: Tap) -> Member:
    """Return a member that knows both coordinators, from one setting."""
    return Member(", ".join(pair.urls), "b", worker, token=SECRET, transport=tap)


def lived_through(one: Member, worker: Recorder, tap: Tap, seen: tuple[str | None, int]) -> None:
    """Check that it was the same run under the same grant all along, and that no seq was used for two heartbeats."""
    assert one.may_process("0_0")
    assert (one.member_id, one.tasks["0_0"].fencing_token) == seen
    assert worker.of("revoke") == []
    seqs = [seq for _, seq, _ in tap.beats]
    assert seqs == sorted(seqs)
    taken = [seq for _, seq, status in tap.beats if status == 200]
    assert all(before < after for before, after in itertools.pairwise(taken))


async def test_a_member_goes_on_at_the_second_coordinator_when_the_first_is_stopped(pair: Pair) -> None:
    worker, tap = Recorder("a", Ownership(), restore_s=0), Tap()
    async with member(pair, worker, tap) as one:
        await until(lambda: one.may_process("0_0") and tap.answered(pair.urls[0]) > 1)
        seen = one.member_id, one.tasks["0_0"].fencing_token or 0
        await pair.stop(0)
        await until(lambda: tap.answered(pair.urls[1]) > 2, within_s=12)
        lived_through(one, worker, tap, seen)
        url = f"{pair.urls[1]}/v1/groups/b/members/{one.member_id}"
        parked = pair.processes[1].policy.limits.polls
        await until(lambda: parked.taken == 1)
        assert (await pair.client.post(f"{url}/drain", headers=BEARER)).status_code == 202
        await until(lambda: "drain-blocked" in worker.statuses, within_s=12)


async def test_a_heartbeat_answered_503_goes_to_the_other_coordinator_at_once_with_its_seq(pair: Pair) -> None:
    worker, tap = Recorder("a", Ownership(), restore_s=0), Tap()
    async with member(pair, worker, tap) as one:
        await until(lambda: one.may_process("0_0") and tap.answered(pair.urls[0]) > 1)
        seen = one.member_id, one.tasks["0_0"].fencing_token or 0
        with bind("127.0.0.1", 0) as silent:
            divided = pair.processes[0].store.ownership
            assert isinstance(divided, Divided)
            divided.owners = {"b": url_of(silent, is_tls=False)}
            await until(lambda: tap.answered(pair.urls[1]) > 2, within_s=12)
        lived_through(one, worker, tap, seen)
    refused = [(seq, status) for _, seq, status in tap.beats if status == 503]
    assert refused
    again = {seq for port, seq, status in tap.beats if status == 200 and port == httpx.URL(pair.urls[1]).port}
    assert {seq for seq, _ in refused} <= again
