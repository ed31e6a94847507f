"""How often one may call, what passes all the same, and what every request is given: an id, and an answer to HEAD."""

import asyncio
import contextlib
import json
import math
import threading
from collections import Counter
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.conftest import Api, serving
from tests.api.test_bodies import NAMES, ORDERS, WITH_BODY, stage
from tests.waiting import until

from batonpass.api import groups
from batonpass.api.context import UNCOUNTED_BYTES, RequestIds
from batonpass.api.health import Readiness
from batonpass.api.limits import SWEEP_AT_LEAST, Limits, Rate
from batonpass.codec.requests import read_what_if
from batonpass.core.state.errors import LimitExceeded
from batonpass.dry_run.whatif import WhatIf
from batonpass.runtime.access import AccessRole, Principal
from batonpass.runtime.places import Places


class Watch:
    """A monotonic clock that is set."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        """Return what it was set to."""
        return self.at_s


@settings(deadline=None)
@given(
    per_s=st.floats(0.5, 50),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 1), min_size=1, max_size=200),
)
def test_never_more_pass_than_the_burst_and_the_rate_allow(per_s: float, burst: int, gaps: list[float]) -> None:
    watch = Watch()
    rate = Rate(per_s, burst, watch)
    passed: list[float] = []
    for gap in gaps:
        watch.at_s += gap
        early = rate.take("m1")
        if early:
            watch.at_s += early + 1e-6
            assert rate.take("m1") == 0
        passed.append(watch.at_s)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - passed[first]) * per_s + 1e-3


def test_callers_do_not_spend_each_others_calls_and_quiet_ones_are_forgotten() -> None:
    watch = Watch()
    rate = Rate(1, 2, watch)
    assert [rate.take("m1") == 0 for _ in range(3)] == [True, True, False]
    assert rate.take("m2") == 0
    for number in range(SWEEP_AT_LEAST - 2):
        rate.take(number)
    assert len(rate) == SWEEP_AT_LEAST
    watch.at_s += 5
    rate.take("new")
    assert len(rate) == 1


def test_places_are_taken_and_given_back() -> None:
    places = Places(3, "long-polls", each=2)
    with places.place("a"):
        with (
            places.place("a"),
            pytest.raises(LimitExceeded, match="a has 2 long-polls already") as own,
            places.place("a"),
        ):
            pass
        with (
            places.place("a"),
            places.place("b"),
            pytest.raises(LimitExceeded, match="3 long-polls") as all_,
            places.place("b"),
        ):
            pass
        assert own.value.retry_after_ms
        assert all_.value.retry_after_ms
        with places.place("a"):
            assert places.taken == 2
    assert places.taken == 0


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 40)), max_size=60))
def test_who_has_less_than_an_equal_share_is_let_in_however_many_the_others_have(takes: list[tuple[int, int]]) -> None:
    """So two callers do not keep a third out; and together they never have much more than all places."""
    places, has = Places(100, "places", each=60), Counter[int]()
    for who, count in takes:
        equal = 100 // len(has.keys() | {who})
        fits = has[who] + count <= 60 and (has.total() + count <= 100 or has[who] + count <= equal)
        with contextlib.nullcontext() if fits else pytest.raises(LimitExceeded):
            places.take(f"{who}", count)
        has += Counter({who: count if fits else 0})
        assert places.taken == has.total() <= 100 * (1 + math.log(len(has) or 1))


HISTORY = [
    "/v1/events",
    "/v1/commands",
    "/v1/audits",
    "/v1/audits/2026-01-01",
    "/v1/groups/orders/events?newest=true",
    "/v1/groups/orders/commands",
    "/v1/groups/orders/generations",
    "/v1/groups/orders/generations/1",
    "/v1/groups/orders/lags?since=2020-01-01T00:00:00Z",
    "/v1/groups/orders/tasks/0_0",
    "/v1/groups/orders/tasks/0_0/explain",
]


@pytest.mark.parametrize("path", HISTORY)
async def test_one_caller_leaves_room_to_read_the_history(path: str) -> None:
    async with serving(limits=tight(operator=1_000_000)) as api:
        await api.declare()
        places = api.policy.limits.history
        places.take("another", 2)
        assert (await api.client.get(path)).status_code in {200, 404}
        places.take("127.0.0.1", 2)
        refused = await api.client.get(path)
        assert refused.status_code == 429
        assert "2 reads of the history already" in refused.json()["detail"]
        assert places.taken == 4


def tight(member: float = 0.1, operator: float = 1_000.0, *, urgent: float = 2.0, polls: int = 100) -> Limits:
    """Return limits that are reached at once, by a clock that stands still."""
    watch = Watch()
    return Limits(
        Rate(member, 2, watch),
        Rate(urgent, urgent, watch),
        Rate(operator, 3, watch),
        polls=Places(polls, "calls that wait for news", each=polls),
        reads=Places(1, "reads of large groups", each=1),
        dry_runs=Places(1, "dry runs", each=1),
        history=Places(4, "reads of the history", each=2),
        bodies=Places(10_000, "bytes of bodies under way", each=6_000),
        body_bytes_max=UNCOUNTED_BYTES + 5_000,
    )


async def test_bodies_that_do_not_end_take_no_more_than_their_share() -> None:
    """Their bytes but for the first count from their arrival until the request is answered."""
    is_over = asyncio.Event()

    async def unending() -> AsyncIterator[bytes]:
        yield b" " * 4_000
        yield b" " * UNCOUNTED_BYTES
        await is_over.wait()

    async with serving(limits=tight()) as api:
        await api.declare()
        places = api.policy.limits.bodies
        held = asyncio.create_task(api.call("POST", "/orders/plan", unending()))
        await until(lambda: places.taken == 4_000)
        refused = await api.call("POST", "/orders/plan", b" " * (UNCOUNTED_BYTES + 4_000))
        assert (refused.status_code, refused.json()["type"]) == (429, "limit-exceeded")
        assert places.taken == 4_000
        is_over.set()
        assert (await held).status_code == 422
        assert places.taken == 0


async def test_however_many_bodies_are_under_way_a_heartbeat_is_heard() -> None:
    """One that is refused would count for nothing, and its member would be fenced."""
    async with serving(limits=tight()) as api:
        await api.declare()
        epoch = (await api.join("m1")).json()["member_epoch"]
        for caller in ("one", "another"):
            api.policy.limits.bodies.take(caller, 5_000)
        assert (await api.call("POST", "/orders/plan", b" " * (UNCOUNTED_BYTES + 3_334))).status_code == 429
        assert (await api.beat("m1", 1, epoch)).status_code == 200
        large = json.dumps({"seq": 2, "member_epoch": epoch}).encode() + b" " * (UNCOUNTED_BYTES + 3_000)
        assert (await api.call("POST", "/orders/members/m1/heartbeat", large)).status_code == 200


@pytest.mark.parametrize("size", [UNCOUNTED_BYTES + 1, 1], ids=["large", "faulty"])
@pytest.mark.parametrize(("method", "path"), [*WITH_BODY, ("POST", ORDERS + "/advice")])
async def test_however_long_it_takes_to_read_a_body_the_event_loop_goes_on(method: str, path: str, size: int) -> None:
    is_over = threading.Event()
    async with serving(limits=tight()) as api:
        await stage(api, path)
        another = asyncio.create_task(api.policy.limits.coding.do("another", lambda: is_over.wait(10)))
        body = b" " * size
        large = asyncio.create_task(api.client.request(method, path.format(**NAMES), content=body))
        try:
            read, _ = await asyncio.wait((large,), timeout=0.3)
            assert not read
            assert (await api.client.get("/livez")).status_code == 200
        finally:
            is_over.set()
        assert await another
        assert (await large).status_code == 422


class Known:
    """A gate that believes what every caller says it is."""

    def remembered(self, authorization: bytes | None) -> Principal:
        """Return the caller."""
        return Principal((authorization or b"").decode(), AccessRole.ADMIN)


async def test_callers_take_turns_in_having_large_bodies_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many one of them sends, a heartbeat of another waits for two of them at most."""
    go_on = threading.Event()

    def read(body: bytes) -> WhatIf:
        assert go_on.wait(20)
        return read_what_if(body)

    monkeypatch.setattr(groups, "read_what_if", read)
    ended: list[str] = []

    async def send(who: str, path: str) -> int:
        body = b" " * (UNCOUNTED_BYTES + 1)
        answer = await api.call("POST", "/orders" + path, body, headers={"authorization": who[0]})
        ended.append(who)
        return answer.status_code

    async with serving(gate=Known(), limits=tight()) as api:
        beats = [send(who, f"/members/{who}/heartbeat") for who in ("w2", "w3", "w4", "v")]
        bodies = [asyncio.create_task(one) for one in (send("w1", "/plan"), *beats)]
        places = api.policy.limits.bodies
        await until(lambda: places.taken == 5)
        await asyncio.sleep(0.05)
        go_on.set()
        assert await asyncio.gather(*bodies) == [422] * 5
    assert ended == ["w1", "w2", "v", "w3", "w4"]


async def test_one_caller_takes_no_calls_on_a_member_from_another() -> None:
    async with serving(gate=Known(), limits=tight()) as api:
        viewer, worker = {"authorization": "viewer"}, {"authorization": "worker"}
        asked = [await api.call("GET", "/orders/members/m1/safe-to-stop", headers=viewer) for _ in range(3)]
        assert [one.status_code for one in asked] == [404, 404, 429]
        assert (await api.call("GET", "/orders/members/m1/safe-to-stop", headers=worker)).status_code == 404


async def test_a_member_that_beats_too_often_is_told_to_wait_and_its_neighbours_are_not() -> None:
    async with serving(limits=tight()) as api:
        await api.declare()
        epochs = [(await api.join(name)).json()["member_epoch"] for name in ("m1", "m2")]
        statuses = [(await api.beat("m1", seq, epochs[0])).status_code for seq in range(1, 4)]
        refused = await api.beat("m1", 4, epochs[0])
        assert statuses == [200, 200, 429]
        assert (refused.json()["type"], refused.json()["action"]) == ("limit-exceeded", "retry")
        assert refused.json()["retry_after_ms"] == 10_000
        assert refused.headers["retry-after"] == "10"
        assert (await api.beat("m2", 1, epochs[1])).status_code == 200
        assert (await api.assignment("m1", epochs[0], wait_ms=0)).status_code in {200, 204}
        assert api.recorded.lines[0][:2] == ("limit-exceeded", "POST /v1/groups/{group}/members/{member}/heartbeat")
        assert api.recorded.refusals == ["limit-exceeded", "limit-exceeded"]


async def test_a_heartbeat_with_news_passes_the_limit_up_to_a_rate_of_its_own() -> None:
    async with serving(limits=tight(urgent=1.0)) as api:
        await api.declare(partitions=4)
        epoch = (await api.join("m1")).json()["member_epoch"]
        tasks = {f"0_{number}": {"role": "active", "state": "running"} for number in range(4)}
        for seq in (1, 2):
            assert (await api.beat("m1", seq, epoch, tasks)).status_code == 200
        assert (await api.beat("m1", 3, epoch, tasks)).status_code == 429
        await api.join("m2", tasks={"0_0": {"role": "none", "lag": 0}, "0_1": {"role": "none", "lag": 0}})
        await api.beat("m2", 1, 2, {"0_0": {"role": "warmup", "lag": 0}, "0_1": {"role": "warmup", "lag": 0}})
        news = await api.assignment("m1", epoch, wait_ms=1_000)
        assert news.status_code == 200
        newer = news.json()["member_epoch"]
        assert newer > epoch
        assert (await api.beat("m1", 4, newer, tasks)).status_code == 200
        given_up = {name: report for name, report in tasks.items() if name in {"0_2", "0_3"}}
        assert (await api.beat("m1", 5, newer, given_up)).status_code == 429


async def test_long_polls_have_places_and_a_rate() -> None:
    async with serving(limits=tight(member=1_000.0, polls=1)) as api:
        await api.declare()
        epoch = (await api.join("m1")).json()["member_epoch"]
        waiting = asyncio.create_task(api.assignment("m1", epoch, wait_ms=30_000))
        await asyncio.sleep(0.02)
        refused = await api.assignment("m1", epoch)
        assert (refused.status_code, refused.json()["type"]) == (429, "limit-exceeded")
        waiting.cancel()
        await asyncio.sleep(0.02)
        assert api.policy.limits.polls.taken == 0
        assert (await api.assignment("m1", epoch, wait_ms=0)).status_code == 429, (
            "the rate of a clock that stands still"
        )


@pytest.mark.parametrize("spelled", ["60000", "6e4", "60000.0", "6E+4"])
async def test_however_a_wait_is_spelled_it_takes_a_place(spelled: str) -> None:
    """As it is spelled, the route waits for a minute."""
    async with serving(limits=tight(member=1_000.0, polls=1)) as api:
        await api.declare()
        await api.join("m1")
        waiting = asyncio.create_task(api.call("POST", f"/orders/members/m1/drain?wait_ms={quote(spelled)}"))
        await until(lambda: api.policy.limits.polls.taken == 1)
        refused = await api.call("POST", f"/orders/members/m1/drain?wait_ms={quote(spelled)}")
        assert (refused.status_code, refused.json()["type"]) == (429, "limit-exceeded")
        waiting.cancel()
        await until(lambda: api.policy.limits.polls.taken == 0)


@pytest.mark.parametrize("spelled", ["", "soon", "-1", "300001", "60000.5", "1e400"])
async def test_a_wait_that_is_no_number_in_its_range_is_refused_and_takes_no_place(spelled: str) -> None:
    async with serving(limits=tight(member=1_000.0, polls=0)) as api:
        await api.declare()
        await api.join("m1")
        refused = await api.call("POST", f"/orders/members/m1/drain?wait_ms={spelled}")
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "query.wait_ms")


async def test_operators_calls_are_limited_together_and_probes_are_not() -> None:
    async with serving(limits=tight(operator=0.5)) as api:
        statuses = [(await api.call("GET", "/none")).status_code for _ in range(2)]
        statuses += [(await api.call("GET", "")).status_code for _ in range(2)]
        assert statuses == [404, 404, 200, 429]
        assert (await api.client.get("/metrics")).status_code == 429
        for path in ("/livez", "/readyz"):
            assert (await api.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-request-id": "deploy-7"}, "deploy-7"),
        ({"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}, "a" * 32),
        ({"x-request-id": "deploy-7", "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}, "deploy-7"),
        ({"x-request-id": "two words"}, None),
        ({"x-request-id": "x" * 129}, None),
        ({"traceparent": "00-" + "0" * 32 + "-" + "b" * 16 + "-01"}, None),
        ({"traceparent": "nonsense"}, None),
        ({}, None),
    ],
)
async def test_a_request_keeps_its_id_or_is_given_one(api: Api, headers: dict[str, str], expected: str | None) -> None:
    """Protocol 1.10."""
    for path in ("/livez", "/v1/groups/none", "/v1/groups/g/members/m/assignment?after=0", "/nonsense"):
        found = (await api.client.get(path, headers=headers)).headers["x-request-id"]
        assert found == expected if expected else found not in headers.values()


def test_ids_of_our_own_are_not_made_twice() -> None:
    one, other = RequestIds(), RequestIds()
    made = {causes.of(None, None) for causes in (one, other) for _ in range(100)}
    assert len(made) == 200


async def test_head_is_get_without_a_body(api: Api) -> None:
    """Protocol 1.9."""
    await api.declare()
    for path in ("/v1/groups", "/v1/groups/orders", "/v1/groups/none", "/livez", "/metrics"):
        shown, head = await api.client.get(path), await api.client.head(path)
        assert (head.status_code, head.content) == (shown.status_code, b"")
        assert head.headers["content-type"] == shown.headers["content-type"]
    assert (await api.client.head("/v1/groups/orders")).headers["etag"] == '"1"'
    refused = await api.client.head("/v1/groups/orders/members/m1/heartbeat")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_probes_and_scrapes_may_have_parameters_of_their_own(api: Api) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await api.client.get(f"{path}?verbose=1")).status_code == 200
    assert (await api.client.get("/v1/tokens?verbose=1")).status_code == 422


async def test_a_ready_coordinator_says_so_and_any_other_says_why() -> None:
    reasons, ages = ["the store is away", ""], [5.0]
    readiness = Readiness(lambda: reasons[0], lambda: reasons[1])
    async with serving(readiness=readiness, loop_age_ms=lambda: ages[0], loop_age_max_ms=1_000) as api:
        answer = await api.client.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["the store is away"])
        readiness.is_stopping = True
        assert (await api.client.get("/readyz")).json()["reasons"][0] == "the coordinator is stopping"
        readiness.is_stopping, reasons[0] = False, ""
        assert (await api.client.get("/readyz")).status_code == 200
        assert (await api.client.get("/livez")).status_code == 200
        ages[0] = 1_001
        answer = await api.client.get("/livez")
        assert (answer.status_code, answer.json()["status"]) == (503, "stalled")


async def test_a_failure_of_the_program_is_logged_with_its_id_and_is_a_500() -> None:
    async def broken(_accept: str) -> tuple[bytes, str]:
        raise RuntimeError("broken scrape")

    async with serving(scrape=broken) as api:
        answer = await api.client.get("/metrics", headers={"x-request-id": "c-9"})
        assert (answer.status_code, answer.json()["type"], answer.headers["x-request-id"]) == (
            500,
            "internal-error",
            "c-9",
        )
        ((error, call, cause),) = api.recorded.failures
        assert (str(error), call, cause) == ("broken scrape", "GET /metrics", "c-9")
        assert (await api.client.get("/livez")).status_code == 200
        api.recorded.failures.clear()
