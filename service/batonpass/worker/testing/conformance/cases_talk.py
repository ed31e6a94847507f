"""Cases of the conversation: joining, heartbeats, long-polls, answers that are late, doubled, lost or strange."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise

from batonpass.worker.testing.conformance.cases import case
from batonpass.worker.testing.conformance.stage import INTERVAL_MS, SESSION_MS, Broken, Call, Stage, refusal
from batonpass.worker.testing.replies import Reply


def needs(holds: object, otherwise: str) -> None:
    """Insist on something.

    Raises:
        Broken: when it does not hold.
    """
    if not holds:
        raise Broken(otherwise)


async def beats(stage: Stage, count: int) -> list[Call]:
    """Wait for so many heartbeats from now on, and return them."""
    since = time.monotonic()
    await stage.until(lambda: len(stage.of("heartbeat", since=since)) >= count, f"{count} heartbeats come")
    return stage.of("heartbeat", since=since)[:count]


@case("joins", "A member joins with an id and a body of its own, echoes its epoch, and runs what it is granted.")
async def joins(stage: Stage) -> None:
    """The plain beginning."""
    await stage.runs("0_0", token=1)
    (join, *more) = stage.of("join")
    needs(not more, "it joined more than once though it was let in")
    needs(join.body.get("on_lease_lost", "stop") == "stop", "it did not join with on_lease_lost stop")
    await stage.until(
        lambda: [one for one in stage.of("heartbeat") if one.epoch == 1 and one.role_of("0_0") == "active"],
        "a heartbeat of epoch 1 reports 0_0 as active",
    )


@case("heartbeat-interval", "Heartbeats come at the interval that the answers name, also when it changes.")
async def heartbeat_interval(stage: Stage) -> None:
    """Two intervals, one after the other."""
    await stage.runs("0_0")
    for interval_ms in (INTERVAL_MS, 900):
        stage.interval_ms = interval_ms
        await beats(stage, 2)
        began = time.monotonic()
        count = 4
        await beats(stage, count)
        each_ms = (time.monotonic() - began) * 1_000 / count
        needs(each_ms < 2 * interval_ms, f"at an interval of {interval_ms} ms heartbeats came every {each_ms:.0f} ms")
        needs(each_ms > interval_ms / 3, f"at an interval of {interval_ms} ms heartbeats came every {each_ms:.0f} ms")


@case("listens", "One long-poll is open at all times, and what it brings is acted on at once.")
async def listens(stage: Stage) -> None:
    """A task is granted between two heartbeats that are far apart."""
    stage.interval_ms, stage.session_ms = 8_000, 30_000
    await stage.runs("0_0")
    await stage.until(lambda: stage.of("poll"), "a long-poll is opened")
    stage.give("0_1", "active")
    began = time.monotonic()
    await stage.until(lambda: stage.wrote("0_1"), "a task that the long-poll granted runs", within_s=4)
    await stage.until(
        lambda: [one for one in stage.of("poll", since=began) if one.query.get("after") == str(stage.seat.epoch)],
        "the long-poll is opened again after the new epoch",
    )


@case("empty-polls", "A long-poll that ends without news is opened again, but not in a tight loop.")
async def empty_polls(stage: Stage) -> None:
    """Every poll is answered 204 at once."""

    async def empty(call: Call) -> Reply | bool:
        return Reply(204) if call.kind == "poll" else False

    stage.override = empty
    await stage.runs("0_0")
    began = await stage.while_(3)
    count = len(stage.of("poll", since=began))
    needs(count <= 60, f"{count} polls in 3 s")
    needs(count >= 1, "no poll in 3 s")


@case("late-answer", "An answer of a lower epoch than one that was seen is dropped, though it comes later.")
async def late_answer(stage: Stage) -> None:
    """A heartbeat's answer is held back while the long-poll brings the revocation."""
    await stage.runs("0_0", token=1)
    old = json.dumps(stage.body(stage.member))
    held: list[Call] = []

    async def hold(call: Call) -> Reply | bool:
        if call.kind != "heartbeat" or held:
            return False
        held.append(call)
        await asyncio.sleep(3 * INTERVAL_MS / 1_000)
        return Reply(200, old.encode())

    stage.override = hold
    await stage.until(lambda: held, "a heartbeat comes")
    epoch = stage.take("0_0")
    await stage.confirmed("0_0", epoch)
    await asyncio.sleep(3 * INTERVAL_MS / 1_000)
    began = await stage.while_(1)
    needs(not stage.wrote("0_0", since=began), "task 0_0 runs again, as an old answer had it")


@case("doubled-answer", "An answer that says what is so already changes nothing.")
async def doubled_answer(stage: Stage) -> None:
    """The long-poll brings the same assignment again and again."""
    await stage.runs("0_0", token=1)
    count = 0

    async def again(call: Call) -> Reply | bool:
        nonlocal count
        if call.kind == "poll" and count < 5:
            count += 1
            return Reply(200, json.dumps(stage.body(stage.member)).encode())
        return False

    stage.override = again
    stage.give("0_1", "active")
    began = time.monotonic()
    await stage.runs("0_1")
    await asyncio.sleep(2)
    _uninterrupted(stage, "0_0", since=began)


def _uninterrupted(stage: Stage, task: str, *, since: float, gap_s: float = 1.0) -> None:
    times = [since, *(one.at for one in stage.wrote(task, since=since)), time.monotonic()]
    longest = max(later - earlier for earlier, later in pairwise(times))
    needs(longest < gap_s, f"task {task} was silent for {longest:.1f} s, though nothing concerned it")
    tokens = {one.token for one in stage.wrote(task, since=since)}
    needs(len(tokens) == 1, f"task {task} wrote under the tokens {sorted(tokens)}")


@case("lost-answers", "A heartbeat whose answer was lost is sent again or followed by another; nothing stops for it.")
async def lost_answers(stage: Stage) -> None:
    """Three heartbeats in a row are heard, and their answers lost."""
    await stage.runs("0_0", token=1)
    member, lost = stage.member, 0

    async def lose(call: Call) -> Reply | bool | None:
        nonlocal lost
        if call.kind == "heartbeat" and lost < 3:
            lost += 1
            await stage.play(call)
            return None
        return False

    stage.override = lose
    began = time.monotonic()
    await stage.until(lambda: lost == 3, "three heartbeats come")
    await beats(stage, 3)
    needs(stage.member == member and len(stage.of("join")) == 1, "it joined anew because of a lost answer")
    _uninterrupted(stage, "0_0", since=began)


@case("lost-join", "A join whose answer was lost is repeated under the same id, or by an id that replaces it.")
async def lost_join(stage: Stage) -> None:
    """The member is known, and does not know it."""
    lost = 0

    async def lose(call: Call) -> bool | None:
        nonlocal lost
        if call.kind == "join" and not lost:
            lost += 1
            await stage.play(call)
            return None
        return False

    stage.override = lose
    await stage.until(lambda: len(stage.of("join")) >= 2, "the join is repeated")
    first, second = stage.of("join")[:2]
    needs(
        second.member == first.member or second.body.get("replaces") == first.member,
        f"the second join has another id and does not say that it replaces {first.member}",
    )
    await stage.runs("0_0")


@case("half-an-answer", "An answer that cannot be read is none: nothing is started or stopped by half an assignment.")
async def half_an_answer(stage: Stage) -> None:
    """Answers that break off, that are no JSON, and that hold an assignment of the wrong shape."""
    await stage.runs("0_0", token=1)
    broken = [b'{"member_id": "x", "assignm', b"<html>bad gateway</html>", b"", b"[]", b"null"]
    bent = stage.body(stage.member) | {"member_epoch": 99, "assignment": {"active": [{"task": "0_1"}]}}
    broken.append(json.dumps(bent).encode())

    async def breaks(call: Call) -> Reply | bool:
        if call.kind == "heartbeat" and broken:
            return Reply(200, broken.pop())
        return False

    stage.override = breaks
    began = time.monotonic()
    await stage.until(lambda: not broken, "heartbeats go on")
    await beats(stage, 3)
    needs(len(stage.of("join")) == 1, "it joined anew because of an answer that it could not read")
    needs(not stage.wrote("0_1"), "task 0_1 was started from a grant without a token")
    _uninterrupted(stage, "0_0", since=began)


@case("unknown-fields", "Fields that a newer coordinator adds are ignored, wherever they stand.")
async def unknown_fields(stage: Stage) -> None:
    """Every answer has some."""
    stage.extra = {"colour": "red", "deep": {"list": [1, None]}, "status": [{"code": "new-code", "detail": "", "x": 1}]}
    await stage.runs("0_0", token=1)
    began = time.monotonic()
    stage.give("0_1", "active")
    await stage.runs("0_1", token=1)
    await beats(stage, 3)
    _uninterrupted(stage, "0_0", since=began)
    needs(len(stage.of("join")) == 1, "it joined more than once")


@case("report-full", "When an answer asks for a full report, the next heartbeat lists every task.")
async def report_full(stage: Stage) -> None:
    """Asked once the member may have begun to leave its tasks out."""
    await stage.runs("0_0")
    stage.give("0_1", "standby")
    await stage.until(
        lambda: [one for one in stage.of("heartbeat") if one.role_of("0_1") == "standby"], "0_1 is reported as standby"
    )
    await beats(stage, 4)
    stage.extra = {"report": "full"}
    await beats(stage, 1)
    stage.extra = {}
    began = time.monotonic()
    listed = await stage.until(
        lambda: [one for one in stage.of("heartbeat", since=began) if one.tasks is not None],
        "a heartbeat lists the tasks after a full report was asked for",
        within_s=3,
    )
    roles = {task: listed[0].role_of(task) for task in ("0_0", "0_1")}
    needs(roles == {"0_0": "active", "0_1": "standby"}, f"the full report says {roles}")


@case("stale-epoch", "On 409 stale-member-epoch the member takes the assignment in the answer and goes on.")
async def stale_epoch(stage: Stage) -> None:
    """An assignment comes with a refusal."""
    await stage.runs("0_0", token=1)
    member, refused = stage.member, False

    async def refuse(call: Call) -> Reply | bool:
        nonlocal refused
        if call.kind == "poll":
            await asyncio.sleep(30)
        if call.kind == "heartbeat" and not refused:
            refused = True
            stage.seat.roles["0_1"] = "active"
            stage.tokens["0_1"] = 1
            stage.seat.epoch += 1
            return refusal("stale-member-epoch", 409, answer=stage.body(member), action="retry")
        return False

    stage.override = refuse
    await stage.until(lambda: refused, "a heartbeat comes")
    await stage.until(
        lambda: [one for one in stage.of("heartbeat") if one.epoch == 2], "the epoch of the answer is echoed"
    )
    await stage.runs("0_1", token=1)
    needs(len(stage.of("join")) == 1, "it joined anew instead of taking the assignment")


@case("unavailable", "503 means: keep processing within the lease, and retry.")
async def unavailable(stage: Stage) -> None:
    """More than half of the session timeout long every heartbeat is refused."""
    await stage.runs("0_0", token=1)
    refusing = True

    async def refuse(call: Call) -> Reply | bool:
        if call.kind in {"heartbeat", "poll"} and refusing:
            return refusal("store-unavailable", 503, action="retry", retry_after_ms=200)
        return False

    stage.override = refuse
    began = await stage.while_(SESSION_MS * 0.6 / 1_000)
    asked = len(stage.of("heartbeat", since=began))
    refusing = False
    await beats(stage, 3)
    needs(asked >= 2, f"only {asked} heartbeats while they were refused")
    needs(len(stage.of("join")) == 1, "it joined anew because of a 503")
    _uninterrupted(stage, "0_0", since=began)


@case("rate-limit", "429 names how long to wait, and no heartbeat comes before that.")
async def rate_limit(stage: Stage) -> None:
    """Told once to wait for more than a second."""
    await stage.runs("0_0", token=1)
    wait_ms, refused_at = 1_200, 0.0

    async def refuse(call: Call) -> Reply | bool:
        nonlocal refused_at
        if call.kind == "heartbeat" and not refused_at:
            refused_at = time.monotonic()
            return refusal("limit-exceeded", 429, action="retry", retry_after_ms=wait_ms)
        return False

    stage.override = refuse
    await stage.until(lambda: refused_at, "a heartbeat comes")
    (following,) = await beats(stage, 1)
    waited_ms = (following.at - refused_at) * 1_000
    needs(waited_ms >= wait_ms * 0.95, f"told to wait {wait_ms} ms, it waited {waited_ms:.0f} ms")
    needs(len(stage.of("join")) == 1, "it joined anew because of a 429")


@case("instance-in-use", "A join refused with instance-id-in-use is tried again after the time that it names.")
async def instance_in_use(stage: Stage) -> None:
    """The former process's lease has a while to run."""
    wait_ms = 1_500

    async def refuse(call: Call) -> Reply | bool:
        if call.kind == "join" and len(stage.of("join")) == 1:
            return refusal("instance-id-in-use", 409, action="retry", retry_after_ms=wait_ms)
        return False

    stage.override = refuse
    await stage.until(lambda: len(stage.of("join")) >= 2, "the join is tried again")
    first, second = stage.of("join")[:2]
    waited_ms = (second.at - first.at) * 1_000
    needs(waited_ms >= wait_ms * 0.95, f"told to wait {wait_ms} ms, it joined again after {waited_ms:.0f} ms")
    await stage.runs("0_0")
