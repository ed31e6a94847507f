"""The cases: each has a name, a law, the rules of docs/protocol.md behind it, and a function that tests a client."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

from batonpass.worker.testing.conformance.laws import SLACK_S
from batonpass.worker.testing.conformance.scripted_coordinator import (
    INTERVAL_MS,
    SESSION_MS,
    Broken,
    Call,
    ScriptedCoordinator,
    always,
    refusal,
)
from batonpass.worker.testing.http import Reply

Play = Callable[[ScriptedCoordinator], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case; ``play`` is called as soon as the client has been started."""

    name: str
    law: str
    rules: tuple[str, ...]
    play: Play


CASES: dict[str, Case] = {}


def case(law: str, *, rules: tuple[str, ...], begins: bool = True) -> Callable[[Play], Play]:
    """Add a function to the cases, under its own name; it begins once the client runs task 0_0, or with the client."""

    def add(play: Play) -> Play:
        async def play_on(coordinator: ScriptedCoordinator) -> None:
            await coordinator.until_runs("0_0", token=1)
            await play(coordinator)

        name = play.__name__.replace("_", "-")
        CASES[name] = Case(name, law, rules, play_on if begins else play)
        return play

    return add


def needs(holds: object, otherwise: str) -> None:
    """Require a condition.

    Raises:
        Broken: when it does not hold.
    """
    if not holds:
        raise Broken(otherwise)


async def beats(coordinator: ScriptedCoordinator, count: int) -> list[Call]:
    """Wait for ``count`` heartbeats from now on, and return them."""
    since = time.monotonic()
    await coordinator.until(lambda: len(coordinator.of("heartbeat", since=since)) >= count, f"{count} heartbeats come")
    return coordinator.of("heartbeat", since=since)[:count]


# --- the conversation: joining, heartbeats, long-polls, answers that are late, doubled, lost or strange ---------------


@case(
    "A member joins with an id and a body of its own, echoes its epoch, and runs what it is granted.",
    rules=("3.1", "4.3"),
)
async def joins(coordinator: ScriptedCoordinator) -> None:
    """The plain beginning."""
    (join, *more) = coordinator.of("join")
    needs(not more, "it joined more than once though it was let in")
    needs(join.body.get("on_lease_lost", "stop") == "stop", "it did not join with on_lease_lost stop")
    await coordinator.reported("0_0", "active", epoch=1)


@case("Heartbeats come at the interval that the answers name, also when it changes.", rules=("4.1",))
async def heartbeat_interval(coordinator: ScriptedCoordinator) -> None:
    """Two intervals, one after the other."""
    for interval_ms in (INTERVAL_MS, 900):
        coordinator.interval_ms = interval_ms
        await beats(coordinator, 2)
        began = time.monotonic()
        count = 4
        await beats(coordinator, count)
        each_ms = (time.monotonic() - began) * 1_000 / count
        needs(each_ms < 2 * interval_ms, f"at an interval of {interval_ms} ms heartbeats came every {each_ms:.0f} ms")
        needs(each_ms > interval_ms / 3, f"at an interval of {interval_ms} ms heartbeats came every {each_ms:.0f} ms")


@case("One long-poll is open at all times, and what it brings is acted on at once.", rules=("6.1", "6.3"), begins=False)
async def listens(coordinator: ScriptedCoordinator) -> None:
    """A task is granted between two heartbeats that are far apart in time."""
    coordinator.interval_ms, coordinator.session_ms = 8_000, 30_000
    await coordinator.until_runs("0_0")
    await coordinator.until(lambda: coordinator.of("poll"), "a long-poll is opened")
    coordinator.give("0_1", "active")
    began = time.monotonic()
    await coordinator.until(lambda: coordinator.wrote("0_1"), "a task that the long-poll granted runs", within_s=4)
    await coordinator.until(
        lambda: [
            one for one in coordinator.of("poll", since=began) if one.query.get("after") == str(coordinator.run.epoch)
        ],
        "the long-poll is opened again after the new epoch",
    )


@case("A long-poll that ends without news is opened again, but not in a tight loop.", rules=("6.3",), begins=False)
async def empty_polls(coordinator: ScriptedCoordinator) -> None:
    """Every poll is answered 204 at once."""
    coordinator.answers("poll", always(Reply(204)))
    await coordinator.until_runs("0_0")
    began = await coordinator.while_(3)
    count = len(coordinator.of("poll", since=began))
    needs(count <= 60, f"{count} polls in 3 s")
    needs(count >= 1, "no poll in 3 s")


@case("An answer of a lower epoch than one that was seen is dropped, though it comes later.", rules=("4.3",))
async def late_answer(coordinator: ScriptedCoordinator) -> None:
    """A heartbeat's answer is held back while the long-poll brings the revocation."""
    old = json.dumps(coordinator.body(coordinator.member))

    async def late(_call: Call) -> Reply:
        await asyncio.sleep(3 * INTERVAL_MS / 1_000)
        return Reply(200, old.encode())

    held = coordinator.answers("heartbeat", late, times=1)
    await coordinator.until(lambda: held, "a heartbeat comes")
    epoch = coordinator.take("0_0")
    await coordinator.confirmed("0_0", epoch)
    await asyncio.sleep(3 * INTERVAL_MS / 1_000)
    began = await coordinator.while_(1)
    needs(not coordinator.wrote("0_0", since=began), "task 0_0 runs again, as an old answer had it")


@case("An answer that says what is so already changes nothing.", rules=("5.2",))
async def doubled_answer(coordinator: ScriptedCoordinator) -> None:
    """The long-poll brings the same assignment again and again."""

    async def again(_call: Call) -> Reply:
        return Reply(200, json.dumps(coordinator.body(coordinator.member)).encode())

    coordinator.answers("poll", again, times=5)
    coordinator.give("0_1", "active")
    began = time.monotonic()
    await coordinator.until_runs("0_1")
    await asyncio.sleep(2)
    _uninterrupted(coordinator, "0_0", since=began)


def _uninterrupted(coordinator: ScriptedCoordinator, task: str, *, since: float) -> None:
    times = [since, *(one.at for one in coordinator.wrote(task, since=since)), time.monotonic()]
    longest = max(later - earlier for earlier, later in pairwise(times))
    needs(longest < 1, f"task {task} was silent for {longest:.1f} s, though nothing concerned it")
    tokens = {one.token for one in coordinator.wrote(task, since=since)}
    needs(len(tokens) == 1, f"task {task} wrote under the tokens {sorted(tokens)}")


@case("A heartbeat whose answer was lost is sent again or followed by another; nothing stops for it.", rules=("10.1",))
async def lost_answers(coordinator: ScriptedCoordinator) -> None:
    """Three heartbeats in a row are processed, but their answers are lost."""
    member, lost = coordinator.member, coordinator.answers("heartbeat", coordinator.lose, times=3)
    began = time.monotonic()
    await coordinator.until(lambda: len(lost) == 3, "three heartbeats come")
    await beats(coordinator, 3)
    needs(coordinator.member == member and len(coordinator.of("join")) == 1, "it joined anew because of a lost answer")
    _uninterrupted(coordinator, "0_0", since=began)


@case(
    "A join whose answer was lost is repeated under the same id, or by an id that replaces it.",
    rules=("3.6", "10.1"),
    begins=False,
)
async def lost_join(coordinator: ScriptedCoordinator) -> None:
    """The coordinator knows the member, but the member does not know that."""
    coordinator.answers("join", coordinator.lose, times=1)
    await coordinator.until(lambda: len(coordinator.of("join")) >= 2, "the join is repeated")
    first, second = coordinator.of("join")[:2]
    needs(
        second.member == first.member or second.body.get("replaces") == first.member,
        f"the second join has another id and does not say that it replaces {first.member}",
    )
    await coordinator.until_runs("0_0")


@case("An answer that cannot be read is none: nothing is started or stopped by half an assignment.", rules=("5.2",))
async def half_an_answer(coordinator: ScriptedCoordinator) -> None:
    """Answers that break off, that are not JSON, and that hold an assignment of the wrong shape."""
    broken = [b'{"member_id": "x", "assignm', b"<html>bad gateway</html>", b"", b"[]", b"null"]
    bent = coordinator.body(coordinator.member) | {"member_epoch": 99, "assignment": {"active": [{"task": "0_1"}]}}
    broken.append(json.dumps(bent).encode())

    async def breaks(_call: Call) -> Reply:
        return Reply(200, broken.pop())

    coordinator.answers("heartbeat", breaks, times=len(broken))
    began = time.monotonic()
    await coordinator.until(lambda: not broken, "heartbeats go on")
    await beats(coordinator, 3)
    needs(len(coordinator.of("join")) == 1, "it joined anew because of an answer that it could not read")
    needs(not coordinator.wrote("0_1"), "task 0_1 was started from a grant without a token")
    _uninterrupted(coordinator, "0_0", since=began)


@case("Fields that a newer coordinator adds are ignored, wherever they stand.", rules=("1.3",), begins=False)
async def unknown_fields(coordinator: ScriptedCoordinator) -> None:
    """Every answer has unknown fields."""
    coordinator.extra = {
        "colour": "red",
        "deep": {"list": [1, None]},
        "status": [{"code": "new-code", "detail": "", "x": 1}],
    }
    await coordinator.until_runs("0_0", token=1)
    began = time.monotonic()
    coordinator.give("0_1", "active")
    await coordinator.until_runs("0_1", token=1)
    await beats(coordinator, 3)
    _uninterrupted(coordinator, "0_0", since=began)
    needs(len(coordinator.of("join")) == 1, "it joined more than once")


@case("When an answer asks for a full report, the next heartbeat lists every task.", rules=("4.4", "5.5"))
async def report_full(coordinator: ScriptedCoordinator) -> None:
    """The full report is asked for when the member may have begun to leave its tasks out."""
    coordinator.give("0_1", "standby")
    await coordinator.reported("0_1", "standby")
    await beats(coordinator, 4)
    coordinator.extra = {"report": "full"}
    await beats(coordinator, 1)
    coordinator.extra = {}
    began = time.monotonic()
    listed = await coordinator.until(
        lambda: [one for one in coordinator.of("heartbeat", since=began) if one.tasks is not None],
        "a heartbeat lists the tasks after a full report was asked for",
        within_s=3,
    )
    roles = {task: listed[0].role_of(task) for task in ("0_0", "0_1")}
    needs(roles == {"0_0": "active", "0_1": "standby"}, f"the full report says {roles}")


@case("On 409 stale-member-epoch the member takes the assignment in the answer and goes on.", rules=("4.3", "10.5"))
async def stale_epoch(coordinator: ScriptedCoordinator) -> None:
    """An assignment comes with a refusal."""
    member, refused = coordinator.member, False

    async def refuse(call: Call) -> Reply | bool:
        nonlocal refused
        if call.kind == "poll":
            await asyncio.sleep(30)
        if call.kind == "heartbeat" and not refused:
            refused = True
            coordinator.run.roles["0_1"] = "active"
            coordinator.tokens["0_1"] = 1
            coordinator.run.epoch += 1
            return refusal("stale-member-epoch", 409, answer=coordinator.body(member), action="retry")
        return False

    coordinator.override = refuse
    await coordinator.until(lambda: refused, "a heartbeat comes")
    await coordinator.until(
        lambda: [one for one in coordinator.of("heartbeat") if one.epoch == 2], "the epoch of the answer is echoed"
    )
    await coordinator.until_runs("0_1", token=1)
    needs(len(coordinator.of("join")) == 1, "it joined anew instead of taking the assignment")


@case("503 means: keep processing within the lease, and retry.", rules=("10.5",))
async def unavailable(coordinator: ScriptedCoordinator) -> None:
    """Every heartbeat is refused for more than half of the session timeout."""
    coordinator.answers("heartbeat poll", always(refusal("store-unavailable", 503, action="retry", retry_after_ms=200)))
    began = await coordinator.while_(SESSION_MS * 0.6 / 1_000)
    asked = len(coordinator.of("heartbeat", since=began))
    coordinator.override = None
    await beats(coordinator, 3)
    needs(asked >= 2, f"only {asked} heartbeats while they were refused")
    needs(len(coordinator.of("join")) == 1, "it joined anew because of a 503")
    _uninterrupted(coordinator, "0_0", since=began)


@case("429 names how long to wait, and no heartbeat comes before that.", rules=("10.3", "10.5"))
async def rate_limit(coordinator: ScriptedCoordinator) -> None:
    """One refusal asks the member to wait for more than a second."""
    wait_ms = 1_200
    refusing = always(refusal("limit-exceeded", 429, action="retry", retry_after_ms=wait_ms))
    refused = coordinator.answers("heartbeat", refusing, times=1)
    await coordinator.until(lambda: refused, "a heartbeat comes")
    (following,) = await beats(coordinator, 1)
    waited_ms = (following.at - refused[0].at) * 1_000
    needs(waited_ms >= wait_ms * 0.95, f"told to wait {wait_ms} ms, it waited {waited_ms:.0f} ms")
    needs(len(coordinator.of("join")) == 1, "it joined anew because of a 429")


@case(
    "A join refused with instance-id-in-use is tried again after the time that it names.",
    rules=("10.3", "10.5"),
    begins=False,
)
async def instance_in_use(coordinator: ScriptedCoordinator) -> None:
    """The former process's lease has a while to run."""
    wait_ms = 1_500
    refusing = always(refusal("instance-id-in-use", 409, action="retry", retry_after_ms=wait_ms))
    coordinator.answers("join", refusing, times=1)
    await coordinator.until(lambda: len(coordinator.of("join")) >= 2, "the join is tried again")
    first, second = coordinator.of("join")[:2]
    waited_ms = (second.at - first.at) * 1_000
    needs(waited_ms >= wait_ms * 0.95, f"told to wait {wait_ms} ms, it joined again after {waited_ms:.0f} ms")
    await coordinator.until_runs("0_0")


# --- the work: what runs when, revocations, fencing, the lease, and going ---------------------------------------------


def silent_since(coordinator: ScriptedCoordinator, task: str, at: float) -> None:
    """Require that a task wrote nothing since a time, except what was on its way.

    Raises:
        Broken: when it did.
    """
    later = coordinator.wrote(task, since=at + SLACK_S)
    needs(not later, f"task {task} wrote {later[-1].at - at:.2f} s too late" if later else "")


@case("A revoked task is confirmed with the epoch that announced it, after it has stopped.", rules=("4.6", "5.3"))
async def revocation(coordinator: ScriptedCoordinator) -> None:
    """One of two tasks is revoked."""
    coordinator.give("0_1", "active")
    await coordinator.until_runs("0_1", token=1)
    epoch = coordinator.take("0_0")
    confirmed = await coordinator.confirmed("0_0", epoch)
    await asyncio.sleep(1)
    silent_since(coordinator, "0_0", confirmed.at)
    needs(confirmed.role_of("0_1") == "active", "the other task is not reported as active any more")
    await coordinator.until_runs("0_1", token=1)


@case(
    "However long a member may keep positions to itself, it tells at once what it holds and what it gave up.",
    rules=("4.6", "4.10"),
    begins=False,
)
async def report_interval(coordinator: ScriptedCoordinator) -> None:
    """A standby and an active come and go."""
    coordinator.extra = {"report_interval_ms": 60_000}
    await coordinator.until_runs("0_0", token=1)
    for role in ("standby", "active"):
        await coordinator.reported("0_1", role, coordinator.give("0_1", role))
    await coordinator.confirmed("0_1", coordinator.take("0_1"))


@case("An active that is to be a standby stops processing before it is reported as one.", rules=("4.6", "5.3"))
async def demotion(coordinator: ScriptedCoordinator) -> None:
    """An active is demoted in place."""
    epoch = coordinator.give("0_0", "standby")
    confirmed = await coordinator.confirmed("0_0", epoch)
    await asyncio.sleep(1)
    silent_since(coordinator, "0_0", confirmed.at)
    await coordinator.reported("0_0", "standby", epoch)


@case("A warmup is reported with its progress, does not process, and runs once it is promoted.", rules=("0.1", "4.5"))
async def promotion(coordinator: ScriptedCoordinator) -> None:
    """A warmup is promoted."""
    coordinator.give("0_1", "warmup")

    def reported() -> bool:
        said = [(call.tasks or {})["0_1"] for call in coordinator.of("heartbeat") if call.role_of("0_1") == "warmup"]
        return any({"lag", "position", "positions"} & one.keys() for one in said)

    await coordinator.until(reported, "0_1 is reported as warmup with a lag or a position")
    needs(not coordinator.wrote("0_1"), "a warmup wrote")
    coordinator.give("0_1", "active")
    await coordinator.until_runs("0_1", token=1)


@case("An assignment that is several epochs ahead revokes and grants at once; both are done.", rules=("4.6", "5.3"))
async def skipped_epochs(coordinator: ScriptedCoordinator) -> None:
    """A revocation and, an epoch later, a grant reach the member together."""

    async def hold(_call: Call) -> None:
        await asyncio.sleep(1)

    coordinator.answers("poll", hold)
    await asyncio.sleep(0.5)
    coordinator.take("0_0")
    epoch = coordinator.give("0_1", "active")
    coordinator.override = None
    confirmed = await coordinator.confirmed("0_0", epoch)
    await coordinator.until_runs("0_1", token=1)
    silent_since(coordinator, "0_0", confirmed.at)


@case("A task that came and went between two assignments is given up by a list without it.", rules=("4.4", "4.6"))
async def granted_and_revoked(coordinator: ScriptedCoordinator) -> None:
    """The member never saw the grant, but the coordinator waits for its confirmation all the same."""
    await beats(coordinator, 3)
    coordinator.run.roles["0_1"] = "active"
    coordinator.tokens["0_1"] = 1
    coordinator.run.epoch += 1
    epoch = coordinator.take("0_1")
    await coordinator.confirmed("0_1", epoch)


@case(
    "A newer token for a running task means that it was another's meanwhile: it starts anew under it.", rules=("5.4",)
)
async def newer_token(coordinator: ScriptedCoordinator) -> None:
    """The same task under another token."""
    coordinator.give("0_0", "active")
    await coordinator.until_runs("0_0", token=2)
    began = await coordinator.while_(1)
    needs(not coordinator.wrote("0_0", since=began, token=1), "task 0_0 still writes under its old token")


def _after_refusal(kind: str, status: int, *, on: str) -> Play:
    async def play(coordinator: ScriptedCoordinator) -> None:
        old = coordinator.member

        async def refuse(_call: Call) -> Reply:
            coordinator.runs[old].is_gone = True
            return refusal(kind, status, action="stop-and-rejoin")

        refused = coordinator.answers(on, refuse, times=1)
        if on == "poll":
            # The open one is ended, so that the next one can be refused.
            coordinator.give("0_1", "standby")
        await coordinator.until(lambda: refused, f"a {on} comes")
        join: Call = await coordinator.until(
            lambda: next((one for one in coordinator.of("join") if one.member != old), None), "it joins under a new id"
        )
        needs(join.body.get("replaces") == old, f"its join replaces {join.body.get('replaces')!r} and not {old!r}")
        silent_between = [one for one in coordinator.wrote("0_0", token=1) if one.at > join.at + SLACK_S]
        needs(not silent_between, "task 0_0 still wrote under its old token after the join that vouches for its stop")
        await coordinator.until_runs("0_0", token=2)
        later = [one for one in coordinator.of("heartbeat", member=old) if one.at > join.at + SLACK_S]
        needs(not later, "it still sends heartbeats under its old id")

    play.__name__ = f"{kind}-{on}"
    return play


for _kind, _status, _on in (
    ("fenced", 409, "heartbeat"),
    ("fenced", 409, "poll"),
    ("gone", 409, "heartbeat"),
    ("unknown-member", 404, "heartbeat"),
):
    case(
        f"Refused with {_kind} on a {_on}, the member stops its actives, then joins with a new id that replaces the old.",
        rules=("3.6", "6.1", "9.5") if _on == "poll" else ("3.6", "9.5"),
    )(_after_refusal(_kind, _status, on=_on))


@case("Refused with fenced-instance-id, the member stops for good.", rules=("9.5",))
async def taken_over(coordinator: ScriptedCoordinator) -> None:
    """A newer process of the same instance is there."""
    refusing = always(refusal("fenced-instance-id", 409, action="stop"))
    refused = coordinator.answers("heartbeat poll join", refusing)
    await coordinator.until(lambda: refused, "a heartbeat comes")
    refused_at = refused[0].at
    await asyncio.sleep(3)
    silent_since(coordinator, "0_0", refused_at + 0.5)
    later = [call for call in coordinator.calls if call.at > refused_at + 1]
    needs(not later, f"it still calls: {later[0].target}" if later else "")


def _lease_end(coordinator: ScriptedCoordinator, member: str) -> float:
    """Return when the lease is over at the latest: counted from the first receipt of the highest answered heartbeat."""
    run = coordinator.runs[member]
    return run.first_at[run.answered_seq] + coordinator.session_ms / 1_000


@case(
    "When the lease is over every active stops; answered again, it runs on under its token.",
    rules=("7.1", "7.3", "7.4"),
)
async def lease_over(coordinator: ScriptedCoordinator) -> None:
    """Nothing is answered for longer than the session timeout, and then everything is again."""
    await beats(coordinator, 2)
    member = coordinator.member
    coordinator.answers("heartbeat poll", always(None))
    await asyncio.sleep(SESSION_MS / 1_000 + 1.5)
    end = _lease_end(coordinator, member)
    wrote = [one.at for one in coordinator.wrote("0_0")]
    needs(max(wrote) <= end + SLACK_S, f"task 0_0 wrote {max(wrote) - end:.1f} s after its lease was over")
    needs(
        max(wrote) >= end - SESSION_MS * 0.4 / 1_000,
        f"task 0_0 stopped {end - max(wrote):.1f} s before its lease was over",
    )
    running = [
        call
        for call in coordinator.of("heartbeat", since=end + SLACK_S)
        if ((call.tasks or {}).get("0_0") or {}).get("state") == "running"
    ]
    needs(not running, "a heartbeat sent after the lease says that 0_0 is running")
    coordinator.override = None
    await coordinator.until_runs("0_0", token=1)
    needs(len(coordinator.of("join")) == 1, "it joined anew though nobody refused it")


@case("A long-poll's answer neither renews the lease nor starts anything while it is over.", rules=("6.2", "7.4"))
async def poll_renews_nothing(coordinator: ScriptedCoordinator) -> None:
    """Heartbeats go unanswered while long-polls work, and bring a grant after the end of the lease."""
    await beats(coordinator, 2)
    member = coordinator.member
    coordinator.answers("heartbeat", always(None))
    await asyncio.sleep(SESSION_MS / 2_000)
    coordinator.give("0_2", "standby")
    await asyncio.sleep(SESSION_MS / 2_000 + 1)
    end = _lease_end(coordinator, member)
    late = [one for one in coordinator.wrote("0_0") if one.at > end + SLACK_S]
    needs(not late, "task 0_0 wrote after its lease was over: the long-poll seems to have renewed it")
    coordinator.give("0_1", "active")
    await asyncio.sleep(1.5)
    needs(not coordinator.wrote("0_1"), "task 0_1 was started by a long-poll's answer while the lease was over")
    coordinator.override = None
    await coordinator.until_runs("0_1", token=1)
    await coordinator.until_runs("0_0", token=1)


@case(
    "The lease counts from when an answered heartbeat was first sent, never from a retry.", rules=("7.1",), begins=False
)
async def lease_from_first_sending(coordinator: ScriptedCoordinator) -> None:
    """A heartbeat is answered only when it comes again, a good while later; then nothing is answered any more."""
    coordinator.interval_ms, coordinator.session_ms = 3_500, 7_000
    await coordinator.until_runs("0_0", token=1)
    await beats(coordinator, 1)
    member, first, answered = coordinator.member, 0.0, 0.0

    async def late(call: Call) -> bool | None:
        nonlocal first, answered
        if call.kind == "poll":
            return None
        if call.kind != "heartbeat":
            return False
        first = first or call.at
        if not answered and call.at - first > 1.0:
            answered = call.at
            return False
        return None

    coordinator.override = late
    await coordinator.until(lambda: answered, "a heartbeat that was not answered is repeated, or another one sent")
    end = _lease_end(coordinator, member)
    await asyncio.sleep(max(0.0, end - time.monotonic()) + 1.2)
    last = max(one.at for one in coordinator.wrote("0_0"))
    needs(last <= end + SLACK_S, f"task 0_0 wrote {last - end:.1f} s after its lease was over")


@case(
    "The lease of a join counts from when it was first sent, never from when it was repeated.",
    rules=("7.1",),
    begins=False,
)
async def lease_from_first_join(coordinator: ScriptedCoordinator) -> None:
    """A join is answered only when it comes again, a good while later; then nothing is answered any more."""
    coordinator.interval_ms, coordinator.session_ms = 3_500, 8_000
    first: dict[str, float] = {}
    answered = ""

    async def late(call: Call) -> bool | None:
        nonlocal answered
        if call.kind != "join":
            return None
        first.setdefault(call.member, call.at)
        if not answered and call.at - min(first.values()) > 1.5:
            answered = call.member
        return False if answered else None

    coordinator.override = late
    await coordinator.until_runs("0_0", token=1)
    end = first[answered] + coordinator.session_ms / 1_000
    await asyncio.sleep(max(0.0, end - time.monotonic()) + 1.2)
    last = max(one.at for one in coordinator.wrote("0_0"))
    needs(last <= end + SLACK_S, f"task 0_0 wrote {last - end:.1f} s after the lease of its join was over")


@case("Told to go, a member stops its actives before it says so.", rules=("9.1",))
async def goodbye(coordinator: ScriptedCoordinator) -> None:
    """SIGTERM."""
    coordinator.stop_client()
    leave: list[Call] = await coordinator.until(
        lambda: coordinator.of("leave"), "it says goodbye with DELETE after SIGTERM"
    )
    mode = leave[0].query.get("mode", "leave")
    needs(mode in {"leave", "restart"}, f"it leaves with the mode {mode!r}")
    await asyncio.sleep(1)
    silent_since(coordinator, "0_0", leave[0].at)
    end = time.monotonic() + 10
    while not coordinator.client_ended():
        if time.monotonic() > end:
            raise Broken("its process has not ended 10 s after its goodbye")
        await asyncio.sleep(0.05)
